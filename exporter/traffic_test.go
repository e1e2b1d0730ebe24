// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/moonloop/moonloop/semconv"
)

// counts returns the points of a metric of integers, as "attribute=value … number", sorted.
func counts(t *testing.T, s started, name string) (all []string) {
	t.Helper()
	got, err := s.tel.GetMetric("otelcol_exporter_mooncake_" + name)
	if err != nil {
		return nil
	}
	var points []metricdata.DataPoint[int64]
	switch data := got.Data.(type) {
	case metricdata.Sum[int64]:
		points = data.DataPoints
	case metricdata.Gauge[int64]:
		points = data.DataPoints
	default:
		t.Fatalf("%s is %T", name, data)
	}
	for _, p := range points {
		all = append(all, fmt.Sprintf("%s %d", strings.ReplaceAll(p.Attributes.Encoded(attribute.DefaultEncoder()), ",", " "), p.Value))
	}
	slices.Sort(all)
	return all
}

func wantCounts(t *testing.T, s started, name string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, counts(t, s, name)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// request is a span of a request that a receiver has annotated.
type request struct {
	model, identity, run   string
	outcome                string // of a row
	row, failed            bool
	prompt, output, cached int64 // -1: the span does not have it
	ended                  time.Time
}

func batchOf(requests ...request) ptrace.Traces {
	td := ptrace.NewTraces()
	for i, r := range requests {
		resource := td.ResourceSpans().AppendEmpty()
		if r.run != "" {
			resource.Resource().Attributes().PutStr(semconv.RunID, r.run)
		}
		span := resource.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		span.SetTraceID(pcommon.TraceID{1, byte(i >> 8), byte(i)})
		span.SetSpanID(pcommon.SpanID{1})
		span.SetStartTimestamp(pcommon.NewTimestampFromTime(r.ended.Add(-time.Second)))
		span.SetEndTimestamp(pcommon.NewTimestampFromTime(r.ended))
		if r.failed {
			span.Status().SetCode(ptrace.StatusCodeError)
		}
		a := span.Attributes()
		if r.identity != "" {
			a.PutStr(semconv.Identity, r.identity)
		} else {
			a.PutStr(semconv.GenAIOperationName, "chat")
		}
		if r.row {
			a.PutInt(semconv.Row, int64(i))
		}
		if r.outcome != "" {
			a.PutStr(semconv.Outcome, r.outcome)
		}
		if r.model != "" {
			a.PutStr(semconv.GenAIRequestModel, r.model)
		}
		for key, n := range map[string]int64{
			semconv.GenAIUsageInputTokens: r.prompt, semconv.GenAIUsageOutputTokens: r.output, semconv.GenAIUsageCacheReadTokens: r.cached,
		} {
			if n >= 0 {
				a.PutInt(key, n)
			}
		}
	}
	return td
}

// Requests are counted by the attributes that an operator asks for, and a batch is counted once, when it is in the journal.
func TestTraffic(t *testing.T) {
	s := start(t, func(c *Config) { c.MetricModels = 2 })
	wantCounts(t, s, "request_spans")
	now := time.Now()
	err := s.ConsumeTraces(t.Context(), batchOf(
		request{model: "llama", identity: semconv.IdentityText, prompt: 100, output: 10, cached: 60, ended: now},
		request{model: "llama", identity: semconv.IdentityText, prompt: 50, output: 5, cached: -1, ended: now},
		request{model: "llama", identity: semconv.IdentityNone, prompt: -1, output: -1, cached: -1, failed: true, ended: now},
		request{model: "qwen", identity: semconv.IdentityTokens, prompt: 7, output: 1, cached: 0, ended: now},
		request{model: "llama", identity: semconv.IdentityTrace, row: true, run: "r1", prompt: 30, output: 3, cached: 30, ended: now},
		request{model: "llama", identity: semconv.IdentityTrace, row: true, run: "r1", outcome: semconv.OutcomeSkipped, prompt: -1, output: -1, cached: -1, ended: now},
		request{model: "llama", identity: semconv.IdentityTrace, row: true, run: "r1", outcome: semconv.OutcomeCancelled, prompt: -1, output: -1, cached: -1, ended: now, failed: true},
		request{model: "llama", identity: semconv.IdentityTrace, row: true, run: "r1", outcome: semconv.OutcomeDisconnected, prompt: -1, output: -1, cached: -1, ended: now},
		request{model: "llama", identity: semconv.IdentityTrace, row: true, run: "r1", outcome: semconv.OutcomeFailed, prompt: -1, output: -1, cached: -1, ended: now, failed: true},
		request{model: "gpt", identity: semconv.IdentityText, prompt: 1, output: 1, cached: -1, ended: now},
		request{model: "phi", prompt: 2, output: 2, cached: -1, ended: now},
		request{model: "other", identity: semconv.IdentityText, prompt: 4, output: 4, cached: -1, ended: now},
		request{identity: semconv.IdentityText, prompt: 1 << 29, output: 8, cached: -1, ended: now}, // no trace has such a row
	))
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, s, "request_spans",
		"identity=none model=llama outcome=failed traffic=production 1",
		"identity=text model=llama outcome=served traffic=production 2",
		"identity=text model=other outcome=served traffic=production 2",
		"identity=text model=unknown outcome=served traffic=production 1",
		"identity=tokens model=qwen outcome=served traffic=production 1",
		"identity=trace model=llama outcome=cancelled traffic=replay 1",
		"identity=trace model=llama outcome=disconnected traffic=replay 1",
		"identity=trace model=llama outcome=failed traffic=replay 1",
		"identity=trace model=llama outcome=served traffic=replay 1",
		"identity=trace model=llama outcome=skipped traffic=replay 1",
		"identity=unannotated model=other outcome=served traffic=production 1")
	wantCounts(t, s, "tokens",
		"model=llama traffic=production type=cache_known 100", "model=llama traffic=production type=cached 60",
		"model=llama traffic=production type=output 15", "model=llama traffic=production type=prompt 150",
		"model=llama traffic=replay type=cache_known 30", "model=llama traffic=replay type=cached 30",
		"model=llama traffic=replay type=output 3", "model=llama traffic=replay type=prompt 30",
		"model=other traffic=production type=cache_known 0", "model=other traffic=production type=cached 0",
		"model=other traffic=production type=output 7", "model=other traffic=production type=prompt 7",
		"model=qwen traffic=production type=cache_known 7", "model=qwen traffic=production type=cached 0",
		"model=qwen traffic=production type=output 1", "model=qwen traffic=production type=prompt 7",
		"model=unknown traffic=production type=cache_known 0", "model=unknown traffic=production type=cached 0",
		"model=unknown traffic=production type=output 0", "model=unknown traffic=production type=prompt 0")
	if err := s.ConsumeTraces(t.Context(), batchOf(request{model: "qwen", identity: semconv.IdentityText, prompt: 1, output: 1, cached: 1, ended: now})); err != nil {
		t.Fatal(err)
	}
	if got := counts(t, s, "request_spans"); !slices.Contains(got, "identity=text model=qwen outcome=served traffic=production 1") {
		t.Errorf("the next batch: %v", got)
	}
	stop(t, s)
}

// However many models there are in the telemetry, metrics have a bounded number of series, and every request is in one.
func TestModelsAreBounded(t *testing.T) {
	s := start(t, func(c *Config) { c.MetricModels = 3 })
	var all []request
	for i := range 500 {
		all = append(all, request{model: fmt.Sprint("model-", i%250), identity: semconv.IdentityText, ended: time.Now()})
	}
	if err := s.ConsumeTraces(t.Context(), batchOf(all...)); err != nil {
		t.Fatal(err)
	}
	point := func(model string, n int) string {
		return fmt.Sprintf("identity=text model=%s outcome=served traffic=production %d", model, n)
	}
	wantCounts(t, s, "request_spans", point("model-0", 2), point("model-1", 2), point("model-2", 2), point("other", 494))
	stop(t, s)
}

// The lag is that of the request that waited longest, and the age restarts with each request of production.
func TestLagAndAge(t *testing.T) {
	s := start(t, func(*Config) {})
	age := func() float64 {
		got, err := s.tel.GetMetric("otelcol_exporter_mooncake_last_request_age")
		if err != nil {
			t.Fatal(err)
		}
		return got.Data.(metricdata.Gauge[float64]).DataPoints[0].Value
	}
	before := age()
	now := time.Now()
	replayed := request{identity: semconv.IdentityTrace, row: true, run: "r", ended: now.Add(time.Hour)} // its clock is ahead
	if err := s.ConsumeTraces(t.Context(), batchOf(replayed)); err != nil {
		t.Fatal(err)
	}
	unmoved := age()
	late := request{identity: semconv.IdentityText, ended: now.Add(-time.Hour)}
	if err := s.ConsumeTraces(t.Context(), batchOf(request{identity: semconv.IdentityText, ended: now}, late, replayed)); err != nil {
		t.Fatal(err)
	}
	between := time.Now()
	if after := age(); before < 0 || unmoved <= before || after > time.Since(between).Seconds()+time.Since(now).Seconds() || after > unmoved+time.Since(now).Seconds() {
		t.Errorf("ages %v, after a replay's request %v, after production's %v", before, unmoved, after)
	}
	got, err := s.tel.GetMetric("otelcol_exporter_mooncake_lag")
	if err != nil {
		t.Fatal(err)
	}
	lag := got.Data.(metricdata.Histogram[float64]).DataPoints[0]
	least, _ := lag.Min.Value()
	most, _ := lag.Max.Value()
	if lag.Count != 2 || least != 0 || most < 3600 || most > 3600+time.Since(now).Seconds() {
		t.Errorf("%d values from %v to %v s", lag.Count, least, most)
	}
	stop(t, s)
}

// Every counter whose attributes are known exists before the first span, at 0.
func TestMetricsFromTheStart(t *testing.T) {
	s := start(t, func(*Config) {})
	for _, name := range []string{
		"compilations", "cuts", "dropped_spans", "failed_writes", "left_out_requests", "lost", "oversize_segments", "records", "removed_segments", "rows", "sampled_out", "unreadable_queue_items", "written",
	} {
		got := counts(t, s, name)
		if len(got) == 0 || slices.ContainsFunc(got, func(point string) bool { return !strings.HasSuffix(point, " 0") }) {
			t.Errorf("%s: %v", name, got)
		}
	}
	wantCounts(t, s, "left_out_requests", "reason=cancelled 0", "reason=disconnected 0", "reason=failed 0", "reason=implausible_token_counts 0", "reason=invalid 0", "reason=no_token_counts 0",
		"reason=row_index_occurs_twice 0", "reason=skipped 0", "reason=start_before_2000_or_after_2199 0")
	wantCounts(t, s, "segments", "exporter=mooncake state=closed 0", "exporter=mooncake state=open 1", "exporter=mooncake state=pending 0")
	stop(t, s)
}

// What a segment's own trace contains and leaves out is counted, and the size of everything on disk is correct.
func TestRowsAndUsage(t *testing.T) {
	s := start(t, func(c *Config) { c.Rotation.MaxAge, c.Grace = time.Second, 0 })
	now := time.Now()
	err := s.ConsumeTraces(t.Context(), batchOf(
		request{model: "m", identity: semconv.IdentityNone, prompt: 10, output: 1, cached: -1, ended: now},
		request{model: "m", identity: semconv.IdentityNone, prompt: 10, output: 1, cached: -1, ended: now, failed: true},
		request{model: "m", identity: semconv.IdentityNone, prompt: -1, output: -1, cached: -1, ended: now},
		request{model: "m", identity: semconv.IdentityTrace, run: "r", row: true, prompt: 10, output: 1, cached: -1, ended: now},
	))
	if err != nil {
		t.Fatal(err)
	}
	closed := "exporter=mooncake state=closed 1"
	for range 10_000 {
		if slices.Contains(counts(t, s, "segments"), closed) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	wantCounts(t, s, "segments", closed, "exporter=mooncake state=open 1", "exporter=mooncake state=pending 0")
	wantCounts(t, s, "rows", "identity=engine traffic=production 0", "identity=lengths traffic=production 1", "identity=lengths traffic=replay 1",
		"identity=structure traffic=production 0", "identity=text traffic=production 0", "identity=tokens traffic=production 0", "identity=trace traffic=replay 0")
	wantCounts(t, s, "left_out_requests", "reason=cancelled 0", "reason=disconnected 0", "reason=failed 1", "reason=implausible_token_counts 0", "reason=invalid 0", "reason=no_token_counts 1",
		"reason=row_index_occurs_twice 0", "reason=skipped 0", "reason=start_before_2000_or_after_2199 0")
	got, err := s.tel.GetMetric("otelcol_exporter_mooncake_compile_duration")
	if err != nil || got.Data.(metricdata.Histogram[float64]).DataPoints[0].Count != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	var size int64
	entries, err := os.ReadDir(s.cfg.Directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			size += info.Size()
		}
	}
	wantCounts(t, s, "journal_size", fmt.Sprint("exporter=mooncake ", size))
	stop(t, s)
}
