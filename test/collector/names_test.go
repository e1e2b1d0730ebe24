// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// A dashboard has one spelling of a name. These tests compare it with what the distribution exports, however Prometheus gets it: names
// depend on settings of the Collector's reader, and on OpenTelemetry's translation of names and units.

// TestReaders: every configuration of ours that captures can be scraped, with the names that it has over OTLP.
func TestReaders(t *testing.T) {
	checked := 0
	for _, name := range configurations(t) {
		config := readConfiguration(t, name)
		if !config.IsSet("receivers::mooncake") && !config.IsSet("processors::mooncake") && !config.IsSet("exporters::mooncake") {
			continue // it is for any Collector, which has names of its own
		}
		checked++
		readers, _ := config.Get("service::telemetry::metrics::readers").([]any)
		if len(readers) != 1 {
			t.Errorf("%s: %d readers of the Collector's own metrics", name, len(readers))
			continue
		}
		reader := confmap.NewFromStringMap(readers[0].(map[string]any))
		for _, setting := range []string{"without_type_suffix", "without_units"} {
			if got := reader.Get("pull::exporter::prometheus::" + setting); got != false {
				t.Errorf("%s: %s is %v, and must be false", name, setting, got)
			}
		}
	}
	if checked < 9 {
		t.Errorf("only %d configurations capture", checked)
	}
}

// translator accepts metrics over OTLP and translates their names as Prometheus does.
type translator struct {
	mu    sync.Mutex
	names map[string]bool
	err   error
}

func (b *translator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	request := pmetricotlp.NewExportRequest()
	if err == nil {
		err = request.UnmarshalProto(body)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.err = err
		return
	}
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	for _, resource := range request.Metrics().ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, m := range scope.Metrics().All() {
				name, err := namer.Build(otlptranslator.Metric{Name: m.Name(), Unit: m.Unit(), Type: typeOf(m)})
				if err != nil {
					b.err = err
				}
				b.names[name] = true
			}
		}
	}
}

func typeOf(m pmetric.Metric) otlptranslator.MetricType {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		if m.Sum().IsMonotonic() {
			return otlptranslator.MetricTypeMonotonicCounter
		}
		return otlptranslator.MetricTypeNonMonotonicCounter
	case pmetric.MetricTypeGauge:
		return otlptranslator.MetricTypeGauge
	case pmetric.MetricTypeHistogram:
		return otlptranslator.MetricTypeHistogram
	default:
		return otlptranslator.MetricTypeUnknown
	}
}

func (b *translator) sorted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []string{}
	for name := range b.names {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

var family = regexp.MustCompile(`(?m)^# TYPE (\w+) `)

// scraped returns the names that the Collector's own reader exposes.
func (c *collector) scraped(t *testing.T) []string {
	t.Helper()
	all := []string{}
	for _, match := range family.FindAllStringSubmatch(c.scrape(t), -1) {
		switch name := match[1]; {
		case name == "target_info" || strings.HasPrefix(name, "promhttp_"): // the reader's own
		case name == "otelcol_process_runtime_total_alloc_bytes_total":
			all = append(all, "otelcol_process_runtime_alloc_bytes_total") // Prometheus moves the word total to the end; the reader adds it a second time
		default:
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestOneSpelling: a scrape of the distribution and its metrics over OTLP have the same names, and those of dashboards and alerts are
// among them.
func TestOneSpelling(t *testing.T) {
	t.Parallel()
	over := &translator{names: map[string]bool{}}
	server := httptest.NewServer(over)
	t.Cleanup(server.Close)
	c := configure(t, t.TempDir(), settings{config: "otelcol-config.yaml"})
	host, port := split(t, c.metrics)
	// Segments end soon, so that one is compiled.
	c.configs = append(c.configs, write(t, c.dir, "both.yaml", fmt.Sprintf(`
exporters: {mooncake: {rotation: {max_age: 1s}, grace: 0s}}
service:
  telemetry:
    metrics:
      level: normal
      readers:
        - pull: {exporter: {prometheus: {host: %s, port: %s, without_type_suffix: false, without_units: false}}}
        - periodic: {interval: 200, exporter: {otlp: {protocol: http/protobuf, endpoint: %q, compression: none}}}
`, host, port, server.URL+"/v1/metrics")))
	p := c.start(t)
	td := productionSpans(20, 2048)
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Status().SetCode(ptrace.StatusCodeError) // which is not a row
	l := encode(t, td, 20)
	if err := dial(t, c.address).export(t.Context(), l.next(1, time.Now())); err != nil {
		t.Fatal(err)
	}
	shown := shownNames(t)
	missing := func() (all []string) {
		scraped := c.scraped(t)
		for _, name := range shown {
			if !slices.Contains(scraped, name) {
				all = append(all, name)
			}
		}
		return all
	}
	for deadline := time.Now().Add(2 * time.Minute); len(missing()) > 0 || !slices.Equal(c.scraped(t), over.sorted()); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("dashboards and alerts name metrics that the distribution does not export: %v", missing())
			t.Fatalf("names (-scraped +OTLP):\n%s", cmp.Diff(c.scraped(t), over.sorted()))
		}
	}
	p.stop(t)
	if over.err != nil { // nobody sends now
		t.Error(over.err)
	}
}

// shownNames returns the metrics of the Collector that dashboards and alerts show.
func shownNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "examples/grafana/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range append(files, filepath.Join(root, "examples/prometheus/alerts.yaml")) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`otelcol_\w+`).FindAllString(string(content), -1) {
			all = append(all, strings.TrimSuffix(name, "_bucket"))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) < 2 {
		t.Fatalf("dashboards and alerts show %v of the Collector: this test looks in the wrong place", all)
	}
	return all
}
