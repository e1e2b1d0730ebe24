// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/semconv"
)

// ofModels returns rows that name models ("" for none), in order, all with the same prompt of one block.
func ofModels(models ...string) (lines []string) {
	for i, m := range models {
		model := ""
		if m != "" {
			model = fmt.Sprintf(`, "model": %q`, m)
		}
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": 512, "output_length": 1, "hash_ids": [0]%s}`, i, model))
	}
	return lines
}

// TestModelOfEachRow: a row's own model is in its request, span, metrics and record, and has its own cache; --model overrides it, and a
// notice says so.
func TestModelOfEachRow(t *testing.T) {
	trace := ofModels("a", "b", "", "b")
	for _, tc := range []struct {
		name    string
		listed  []string
		model   string
		extra   string
		want    []string // by row
		cached  []int64
		counted map[string]int64
		line    string // that is reported before the first request
	}{
		{"a row's own, else the first that is listed", []string{"c", "a", "b"}, "", "", []string{"a", "b", "c", "b"}, []int64{0, 0, 0, 512}, map[string]int64{"a": 1, "b": 2, "c": 1}, ""},
		{"--model", []string{"a", "b"}, "b", "", []string{"b", "b", "b", "b"}, []int64{0, 512, 512, 512}, nil, `other models in 1 row ("a"): every row goes to the one that the command line names`},
		{"--extra-inputs", []string{"a", "b"}, "", `{"model": "b"}`, []string{"b", "b", "b", "b"}, []int64{0, 512, 512, 512}, nil, `other models in 1 row ("a")`},
		{"a row's own, which is not listed", []string{"a"}, "", "", []string{"a", "b", "a", "b"}, []int64{0, -1, 512, -1}, map[string]int64{"a": 2, "b": 2}, `models in 2 rows that the engine does not list ("b"): these rows may fail; it lists "a"; --model NAME sends every row to one model`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEngine(t, simulator.Config{Models: tc.listed})
			spans := &keepSpans{InMemoryExporter: tracetest.NewInMemoryExporter()}
			metrics := sdkmetric.NewManualReader()
			var lines []string
			told := -1 // lines before the first request
			cfg := Config{Prompt: Prompt{Endpoint: prompt.Completions, Extra: json.RawMessage(tc.extra)}, Target: Target{Model: tc.model}, Schedule: Schedule{FileOrder: true}}
			cfg.Note = func(s string) { lines = append(lines, s) }
			cfg.Warn = cfg.Note
			seen := map[string]int64{}
			cfg.Progress = func(*Live) { told = len(lines) }
			cfg.Telemetry.SpanExporter, cfg.Telemetry.MetricReader = spans, collecting{metrics, seen}
			r := e.replay(t, cfg, trace...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			byModel := map[string]int64{}
			for i, want := range tc.want {
				if got := body(t, r.sent[i]).Model; got != want {
					t.Errorf("row %d was sent to %q, want %q", i, got, want)
				}
				byModel[want]++
				res := r.results[i]
				if tc.cached[i] >= 0 && (res.Result.Usage.Cached != tc.cached[i] || res.Result.Predicted == nil || *res.Result.Predicted != tc.cached[i]) {
					t.Errorf("row %d: %d cached, predicted %v, want %d", i, res.Result.Usage.Cached, res.Result.Predicted, tc.cached[i])
				}
			}
			if diff := cmp.Diff(tc.counted, r.report.Run.Models); diff != "" {
				t.Errorf("models in the report (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(byModel, seen); diff != "" {
				t.Errorf("requests by model in the metrics (-want +got):\n%s", diff)
			}
			named := map[string]int64{}
			for _, s := range spans.GetSpans() {
				for _, kv := range s.Attributes {
					if string(kv.Key) == semconv.GenAIRequestModel && s.Name != semconv.SpanMeasure {
						named[kv.Value.AsString()]++
						if s.Name != semconv.OperationTextCompletion+" "+kv.Value.AsString() {
							t.Errorf("span %q of model %q", s.Name, kv.Value.AsString())
						}
					}
				}
			}
			if diff := cmp.Diff(byModel, named); diff != "" {
				t.Errorf("spans by model (-want +got):\n%s", diff)
			}
			if found := slices.ContainsFunc(lines[:max(0, told)], func(s string) bool { return strings.Contains(s, tc.line) }); tc.line != "" && !found {
				t.Errorf("lines before the first request %q, want %q", lines[:max(0, told)], tc.line)
			}
			if tc.line == "" && len(lines) > 0 {
				t.Errorf("lines %q, want none", lines)
			}
		})
	}
}

// collecting reads its metrics when it is shut down.
type collecting struct {
	*sdkmetric.ManualReader

	requests map[string]int64 // by model
}

// Shutdown implements sdkmetric.Reader.
func (c collecting) Shutdown(ctx context.Context) error {
	var rm metricdata.ResourceMetrics
	if err := c.Collect(ctx, &rm); err != nil {
		return err
	}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if m.Name != semconv.Requests.Name || !ok {
				continue
			}
			for _, point := range sum.DataPoints {
				model, _ := point.Attributes.Value(semconv.GenAIRequestModel)
				c.requests[model.AsString()] += point.Value
			}
		}
	}
	return c.ManualReader.Shutdown(ctx)
}

// templates serves chats of models whose templates differ.
func templates(t *testing.T, sizes map[string]int) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"data": [{"id": "a"}, {"id": "b"}]}`)
			return
		}
		var req struct {
			Model    string
			Messages []struct{ Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "length"}], "usage": {"prompt_tokens": %d, "completion_tokens": 1}}`,
			len(strings.Fields(req.Messages[0].Content))+sizes[req.Model])
	}))
	t.Cleanup(s.Close)
	return s
}

// TestTemplateOfEachModel: each model's template is measured, so all prompts have their length. A model that first appears after the
// look-ahead is assumed to be like the others, and counted.
func TestTemplateOfEachModel(t *testing.T) {
	engine := templates(t, map[string]int{"a": 10, "b": 40})
	for _, tc := range []struct {
		lookahead, overhead     int
		exact, assumed, differs int64
		reported                int // overhead
	}{
		{0, 0, 3, 0, 0, 40},
		{1, 0, 1, 2, 2, 10},
		{0, 10, 1, 0, 2, 10}, // right for a, wrong for b
	} {
		name := filepath.Join(t.TempDir(), "trace.jsonl")
		if err := os.WriteFile(name, []byte(strings.Join(ofModels("a", "b", "b"), "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		rep, err := Run(t.Context(), Config{
			Trace: Trace{Name: name, Lookahead: tc.lookahead}, Target: Target{URL: engine.URL}, Prompt: Prompt{NoStream: true, Overhead: tc.overhead},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := rep.Run.Words.Overhead; got != tc.reported {
			t.Errorf("look-ahead %d, overhead %d: the report has %d", tc.lookahead, tc.overhead, got)
		}
		tokens := rep.Figures().Tokens
		if tokens.Prompt.Equal != tc.exact || tokens.Prompt.Different != tc.differs || tokens.Assumed != tc.assumed {
			t.Errorf("look-ahead %d, overhead %d: %+v", tc.lookahead, tc.overhead, tokens)
		}
		if warned := slices.ContainsFunc(rep.Warnings, func(s string) bool { return strings.Contains(s, "template was not measured") }); warned != (tc.assumed > 0) {
			t.Errorf("look-ahead %d, overhead %d: warnings %q", tc.lookahead, tc.overhead, rep.Warnings)
		}
	}
}

// TestUnknownModel: rows of a model that the engine does not know fail, but do not keep other rows from being sent. If the engine knows
// none of the models, the run ends before a row is sent.
func TestUnknownModel(t *testing.T) {
	e := newEngine(t, simulator.Config{Models: []string{"a"}})
	r := e.replay(t, Config{}, ofModels("b", "a", "b")...)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if f := r.report.Figures(); f.Rows.Served != 1 || f.Rows.Failed != 2 || f.Errors[0].Reason != "404" || f.Tokens.Prompt.Equal != 1 {
		t.Errorf("%+v, errors %+v, tokens %+v", f.Rows, f.Errors, f.Tokens)
	}
	if !slices.ContainsFunc(r.report.Warnings, func(s string) bool { return strings.Contains(s, `"b"`) && strings.Contains(s, "HTTP 404") }) {
		t.Errorf("warnings %q", r.report.Warnings)
	}
	r = e.replay(t, Config{}, ofModels("b", "c")...)
	if r.err == nil || len(r.sent) > 0 || !strings.Contains(r.err.Error(), "--model NAME sends every row to another one") {
		t.Errorf("error %v, %d rows sent", r.err, len(r.sent))
	}
}
