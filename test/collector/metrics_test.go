// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testprogram"
)

// TestConfigurationsTakeMetrics: programs that send spans to OTEL_EXPORTER_OTLP_ENDPOINT also send metrics there, replays included. A
// configuration that accepts one accepts both.
func TestConfigurationsTakeMetrics(t *testing.T) {
	t.Parallel()
	for _, name := range configurations(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			config := readConfiguration(t, name)
			if fmt.Sprint(config.Get("service::pipelines::traces::receivers")) == "[kafka]" {
				t.Skip("nothing is sent to it: it reads a topic")
			}
			for _, list := range []string{"receivers", "processors"} {
				traces, metrics := config.Get("service::pipelines::traces::"+list), config.Get("service::pipelines::metrics::"+list)
				if all, ok := metrics.([]any); ok { // transform/run is for metrics only
					metrics = slices.DeleteFunc(all, func(name any) bool { return name == "transform/run" })
				}
				if all, ok := traces.([]any); ok { // batch/backend is for what a second pipeline also gets
					traces = slices.DeleteFunc(all, func(name any) bool { return name == "batch/backend" })
				}
				if fmt.Sprint(traces) != fmt.Sprint(metrics) {
					t.Errorf("%s of metrics %v, of traces %v", list, metrics, traces)
				}
			}
		})
	}
}

// readConfiguration reads a Collector's configuration file unchanged, with its variables.
func readConfiguration(t *testing.T, name string) *confmap.Conf {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	retrieved, err := confmap.NewRetrievedFromYAML(content)
	if err != nil {
		t.Fatal(err)
	}
	config, err := retrieved.AsConf()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestReplayThroughTheDocumented sends a replay's telemetry to the configuration at the repository's root: spans are in the journal,
// metrics reach Prometheus with the run's id, nothing is refused, and the replay says so.
func TestReplayThroughTheDocumented(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	runs := make(map[string]bool)
	prometheus := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body []byte
		plain, err := gzip.NewReader(r.Body)
		if err == nil {
			body, err = io.ReadAll(plain)
		}
		request := pmetricotlp.NewExportRequest()
		if err = errors.Join(err, request.UnmarshalProto(body)); err != nil || r.URL.Path != "/api/v1/otlp/v1/metrics" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range request.Metrics().ResourceMetrics().All() {
			id, _ := resource.Resource().Attributes().Get("mooncake.run.id")
			runs[id.Str()] = true
		}
	}))
	t.Cleanup(prometheus.Close)
	e, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewServer(e)
	t.Cleanup(func() {
		engine.Close()
		_ = e.Close()
	})

	dir := t.TempDir()
	otelcol := configure(t, dir, settings{config: "otelcol-config.yaml"})
	otelcol.environment = append(otelcol.environment, "PROMETHEUS_ENDPOINT="+prometheus.URL+"/api/v1/otlp")
	p := otelcol.start(t)
	const rows = 20
	var trace bytes.Buffer
	for i := range rows {
		fmt.Fprintf(&trace, `{"timestamp": %d, "input_length": 100, "output_length": 3, "hash_ids": [%d], "session_id": "s%d"}`+"\n", 10*i, i, i)
	}
	for protocol, endpoint := range map[string]string{"grpc": otelcol.address, "http/protobuf": otelcol.http} {
		run := "run-" + protocol[:4]
		out := filepath.Join(dir, run)
		cmd := exec.CommandContext(t.Context(), testprogram.File(t, "moonloop"), "replay", write(t, dir, "trace.jsonl", trace.String()),
			"--url", engine.URL, "--model", "m", "--endpoint", "completions", "--session-mode", "full", "--progress", "none", "--out", out,
			"--run-id", run, "--otlp-endpoint", "http://"+endpoint, "--otlp-protocol", protocol)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
		said, err := cmd.CombinedOutput()
		if status := cmd.ProcessState.ExitCode(); status != 0 && status != 3 { // a busy machine may make the measurement invalid
			t.Fatalf("%s: %v\n%s", protocol, err, said)
		}
		for _, complaint := range []string{"does not accept them", "nothing at this path", "telemetry is incomplete"} {
			if bytes.Contains(said, []byte(complaint)) {
				t.Errorf("%s: %s", protocol, said)
			}
		}
		var summary struct {
			Telemetry struct {
				Ended    int64 `json:"spans_ended"`
				Accepted int64 `json:"spans_accepted"`
				Exports  int64 `json:"metric_exports"`
				Failed   int64 `json:"metric_exports_failed"`
			}
		}
		content, err := os.ReadFile(filepath.Join(out, "summary.json"))
		if err = errors.Join(err, json.Unmarshal(content, &summary)); err != nil {
			t.Fatal(err)
		}
		// Five spans of each row, and one of the query of the vocabulary.
		if tel := summary.Telemetry; tel.Ended != 5*rows+1 || tel.Accepted != tel.Ended || tel.Exports == 0 || tel.Failed != 0 {
			t.Errorf("%s: %+v", protocol, tel)
		}
	}
	otelcol.drain(t)
	p.stop(t) // which empties the queue to Prometheus
	mu.Lock()
	defer mu.Unlock()
	if !runs["run-grpc"] || !runs["run-http"] || runs[""] {
		t.Errorf("Prometheus has metrics of the runs %v", runs)
	}
	if got := compile(t, dir); len(got.result.Traces) < 2 {
		t.Errorf("%d traces of two replays", len(got.result.Traces))
	}
}
