// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/semconv"
)

// The ways in which a replay's metrics reach Prometheus, by the runs that use them.
var waysToPrometheus = map[string]string{
	"nightly-1": "through the Collector, over OTLP",
	"nightly-2": "directly, over OTLP",
	"nightly-3": "through a Collector that is scraped",
}

// TestAcceptancePrometheus runs the queries of docs/promql.md and the dashboards in a real Prometheus, about replays whose metrics came in
// every documented way, and about a capture: every query has an answer, percentiles agree with the run's own summary, and metrics have the
// same names in each way.
func TestAcceptancePrometheus(t *testing.T) {
	moonloop, dir := setting(t, "MOONLOOP_BIN"), artefacts(t)
	own, received := testport.Address(t), testport.Address(t)
	p := startPrometheus(t, dir, own, received)
	collector := startConfigured(t, dir, "collector", "otelcol-config.yaml",
		"exporters: {mooncake: {rotation: {max_age: 5s}, grace: 0s}}\n"+ownFigures(t, own), "PROMETHEUS_ENDPOINT="+p.url+"/api/v1/otlp", "JAEGER_ENDPOINT="+testport.Address(t))
	scraped := startConfigured(t, dir, "scraped", filepath.Join("examples", "capture", "cache.yaml"), fmt.Sprintf(`
connectors: {mooncake_cache: {interval: 1s, sampling_ratio: 1, replays: true}}
exporters: {prometheus: {endpoint: %q}}
`, received)+ownFigures(t, testport.Address(t)))
	trace := filepath.Join("..", "..", "examples", "demo.jsonl")
	engine := startSimulator(t, dir, "--fault", "server-error=0.02", "--fault", "cut=0.02")
	production, soldToo := sendProduction(t, collector.address), sendProduction(t, scraped.address)
	for deadline := time.Now().Add(time.Minute); len(p.now(t, "up == 1")) < 2; time.Sleep(100 * time.Millisecond) { // Prometheus finds targets after a few seconds
		if time.Now().After(deadline) {
			t.Fatal("Prometheus does not scrape both Collectors")
		}
	}
	var replays []*process
	for _, run := range slices.Sorted(maps.Keys(waysToPrometheus)) {
		environment := []string{"OTEL_METRIC_EXPORT_INTERVAL=2000"}
		flags := []string{"replay", trace, "--url", engine, "--run-id", run, "--progress", "none", "--slo", "ttft=500ms", "--out", filepath.Join(dir, run)}
		switch run {
		case "nightly-1":
			flags = append(flags, "--otlp-endpoint", "http://"+collector.http)
		case "nightly-2":
			environment = append(environment, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="+p.url+"/api/v1/otlp/v1/metrics",
				"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://"+collector.http+"/v1/traces")
		default:
			flags = append(flags, "--otlp-endpoint", "http://"+scraped.http)
		}
		replays = append(replays, start(t, dir, run+".process", environment, moonloop, flags...))
	}
	for _, r := range replays {
		if code := r.wait(t, 5*time.Minute); code == 2 || code < 0 {
			t.Fatalf("a replay ended with status %d\n%s", code, r.tail())
		}
	}
	note(t, "requests of production", len(production())+len(soldToo()))
	time.Sleep(8 * time.Second) // until a segment of the journal has become a trace, and everything has been scraped

	page, err := os.ReadFile("../../docs/promql.md")
	if err != nil {
		t.Fatal(err)
	}
	for run, way := range waysToPrometheus {
		checkQuantiles(t, p, filepath.Join(dir, run, "summary.json"), run, way)
		checkCountersFromZero(t, p, page, run)
	}
	if models := p.always(t, "sum(mooncake_cache_potential_expired_total)"); len(models) != 1 || models[0].samples[0] != 0 {
		t.Errorf("the number of models that have expired begins with %v, want 0", models)
	}
	names := func(run string) (all []string) {
		for _, one := range p.now(t, fmt.Sprintf(`group by (__name__) (last_over_time({mooncake_run_id=%q, __name__!="target_info"}[10m]))`, run)) {
			all = append(all, one.labels["__name__"])
		}
		slices.Sort(all)
		return all
	}
	for run := range waysToPrometheus {
		if a, b := names("nightly-2"), names(run); !slices.Equal(a, b) || len(b) < 30 {
			t.Errorf("metrics have other names %s:\n%s\nthan directly:\n%s", waysToPrometheus[run], strings.Join(b, " "), strings.Join(a, " "))
		}
	}
	asked := 0
	for _, row := range regexp.MustCompile("(?m)^\\| ([^|]*\\?) \\| `([^`|]+)` \\|").FindAllSubmatch(page, -1) {
		for run := range waysToPrometheus {
			query := strings.ReplaceAll(string(row[2]), "nightly-1", run)
			if run != "nightly-1" && query == string(row[2]) {
				continue // about no run
			}
			asked++
			if len(p.always(t, query)) == 0 {
				t.Errorf("%s, %s: no answer to %s", row[1], waysToPrometheus[run], query)
			}
		}
	}
	judge(t, "questions that were asked", asked, "> 150", asked > 150)
	checkDashboards(t, p)
	for run, way := range waysToPrometheus {
		if n := p.exemplars(t, fmt.Sprintf("gen_ai_client_operation_time_to_first_chunk_seconds{mooncake_run_id=%q}", run)); n == 0 {
			t.Errorf("no exemplar has a trace id, %s", way)
		}
	}
}

// ownFigures returns the settings of a Collector that exposes its own figures at an address.
func ownFigures(t *testing.T, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`
service:
  telemetry:
    metrics:
      readers: [{pull: {exporter: {prometheus: {host: %s, port: %s, without_type_suffix: false, without_units: false}}}}]
`, host, port)
}

// checkQuantiles fails unless a run's percentiles are those of its summary.
func checkQuantiles(t *testing.T, p *prometheus, summary, run, way string) {
	t.Helper()
	content, err := os.ReadFile(summary)
	if err != nil {
		t.Fatal(err)
	}
	var figures map[string]json.RawMessage
	if err := json.Unmarshal(content, &figures); err != nil {
		t.Fatal(err)
	}
	for figure, series := range map[string]string{
		"time_to_first_token_wire":     "gen_ai_client_operation_time_to_first_chunk_seconds",
		"time_to_first_token_intended": "mooncake_latency_ttft_seconds",
		"inter_chunk_latency":          "gen_ai_client_operation_time_per_output_chunk_seconds",
		"request_latency_wire":         "gen_ai_client_operation_duration_seconds",
		"request_latency_intended":     "mooncake_latency_request_seconds",
		"schedule_lateness":            "mooncake_schedule_lateness_seconds",
	} {
		var want map[string]any
		if err := json.Unmarshal(figures[figure], &want); err != nil {
			t.Fatalf("%s: %v", figure, err)
		}
		served, n := fmt.Sprintf(`sum(%s{mooncake_run_id=%q})`, series, run), want["count"].(float64)
		if figure == "request_latency_wire" { // others are of served requests anyway, or, as the lateness, of failed ones, too
			served = strings.Replace(served, "}", `, mooncake_outcome="served"}`, 1)
		}
		equal(t, fmt.Sprintf("%s, %s: values", figure, way), p.one(t, "histogram_count("+served+")"), n)
		for percentile, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99} {
			// With few values, the next one to either side may be far away, and which one is the percentile is a matter of definition.
			at := func(q float64) float64 { return 1000 * p.one(t, fmt.Sprintf("histogram_quantile(%v, %s)", q, served)) }
			ms := want[percentile].(float64)
			judge(t, fmt.Sprintf("%s %s, %s: Prometheus / summary", figure, percentile, way), fmt.Sprintf("%.4f", at(q)/ms),
				"within 3 % and a rank", ms > at(q-1/n)*0.97 && ms < at(min(1, q+1/n))*1.03)
		}
	}
}

// checkCountersFromZero fails unless every counter of a run has its first sample before the first event.
func checkCountersFromZero(t *testing.T, p *prometheus, page []byte, run string) {
	t.Helper()
	for _, name := range runCounters(page) {
		found := p.always(t, fmt.Sprintf("sum(%s{mooncake_run_id=%q})", name, run))
		if len(found) != 1 || found[0].samples[0] != 0 {
			t.Errorf("%s: %s begins with %v, want 0", run, name, found)
		}
	}
}

// runCounters returns the counters of a run's rows, requests, chunks and cached tokens that the page of docs/promql.md has. Those of a run's
// process and telemetry are left out: they count what happens before the first event, too.
func runCounters(page []byte) (names []string) {
	for _, found := range regexp.MustCompile(`\b(mooncake_(?:rows|requests|chunks|cache)_(?:[a-z_]+_)?total)\{mooncake_run_id=`).FindAllSubmatch(page, -1) {
		names = append(names, string(found[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestRunCounters: docs/promql.md has every counter of a run that begins with 0, so that the acceptance test looks at all of them.
func TestRunCounters(t *testing.T) {
	page, err := os.ReadFile("../../docs/promql.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range []semconv.Metric{
		semconv.RowsDue, semconv.Requests, semconv.RequestsSent, semconv.RequestsGood, semconv.RequestsJudged, semconv.ChunksReceived, semconv.CoalescedChunks,
		semconv.CachePredicted, semconv.CacheReported, semconv.CacheUnpredicted,
	} {
		want = append(want, strings.ReplaceAll(m.Name, ".", "_")+"_total")
	}
	slices.Sort(want)
	if got := runCounters(page); !slices.Equal(got, want) {
		t.Errorf("the page has %v, want %v", got, want)
	}
}

// noAnswer are the panels that have nothing to show for such runs, with the reason.
var noAnswer = map[string]string{
	"Cached, as the engine reports it": "production's telemetry does not mention a cache",
}

// checkDashboards runs every query of every dashboard.
func checkDashboards(t *testing.T, p *prometheus) {
	t.Helper()
	files, err := filepath.Glob("../../examples/grafana/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	asked := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		type query struct{ Expr string }
		var board struct {
			Panels []struct {
				Title   string
				Targets []query
			}
			Annotations struct {
				List []struct {
					query
					Name string
				}
			}
		}
		if err := json.Unmarshal(content, &board); err != nil {
			t.Fatal(err)
		}
		fill := strings.NewReplacer("$__rate_interval", "10s", "$run", "nightly-1", "$model", ".*", "$instance", ".*")
		ask := func(title, expr string) {
			asked++
			_, may := noAnswer[title]
			if query := fill.Replace(expr); len(p.always(t, query)) == 0 && !may {
				t.Errorf("%s: %s: no answer to %s", filepath.Base(file), title, query)
			}
		}
		for _, panel := range board.Panels {
			for _, q := range panel.Targets {
				ask(panel.Title, q.Expr)
			}
		}
		for _, a := range board.Annotations.List {
			if a.Expr != "" {
				ask("annotation "+a.Name, a.Expr)
			}
		}
	}
	judge(t, "queries of dashboards that were asked", asked, "> 90", asked > 90)
}
