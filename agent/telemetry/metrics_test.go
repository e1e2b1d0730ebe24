// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/observe"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/semconv"
)

// collect reads all metrics, by name.
func collect(t *testing.T, r sdkmetric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.(*sdkmetric.ManualReader).Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	by := make(map[string]metricdata.Metrics)
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			by[m.Name] = m
		}
	}
	return by
}

// points prints the points of a metric in a readable form: attributes that differ between them, then the value.
func points(m metricdata.Metrics) []string {
	var out []string
	add := func(set attribute.Set, value string) {
		var labels []string
		for _, kv := range set.ToSlice() {
			switch kv.Key {
			case "error.type", "gen_ai.token.type", "gen_ai.response.model", semconv.Outcome, semconv.OutcomeReason, semconv.PromptErrorSign, semconv.TelemetryResult:
				labels = append(labels, kv.Value.String())
			}
		}
		out = append(out, strings.Join(append(labels, value), " "))
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			if p.Value != 0 || !d.IsMonotonic { // see TestCountersBeginAtZero
				add(p.Attributes, fmt.Sprint(p.Value))
			}
		}
	case metricdata.Sum[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, fmt.Sprint(p.Value))
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, fmt.Sprint(p.Value))
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, fmt.Sprint(p.Value))
		}
	case metricdata.Histogram[int64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, fmt.Sprintf("n=%d sum=%d %s", p.Count, p.Sum, filled(p.Bounds, p.BucketCounts)))
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			add(p.Attributes, fmt.Sprintf("n=%d sum=%.6g %s", p.Count, p.Sum, filled(p.Bounds, p.BucketCounts)))
		}
	}
	slices.Sort(out)
	return out
}

// filled prints the buckets that are not empty.
func filled(bounds []float64, counts []uint64) string {
	var out []string
	for i, n := range counts {
		if n == 0 {
			continue
		}
		bound := "∞"
		if i < len(bounds) {
			bound = strconv.FormatFloat(bounds[i], 'g', -1, 64)
		}
		out = append(out, fmt.Sprintf("≤%s:%d", bound, n))
	}
	return strings.Join(out, ",")
}

// Every figure is computed by hand from served and failed in helpers_test.go.
func TestMetrics(t *testing.T) {
	cleanEnv(t)
	synctest.Test(t, func(t *testing.T) {
		cfg, reader := target, sdkmetric.NewManualReader()
		cfg.MetricReader, cfg.SpanExporter = reader, &fakeExporter{}
		p, _ := start(t, cfg)

		finish(p, nil, served(3)) // gaps of 10 ms
		one := served(1)
		one.Exchange.Model, one.Exchange.Coalesced = "", 0
		one.Exchange.Usage = send.Usage{Prompt: 1300, Completion: 1, Cached: send.Unknown, Reasoning: send.Unknown}
		one.Predicted = send.Unknown
		finish(p, nil, one)
		fewer := served(1)
		fewer.Exchange.Usage.Prompt, fewer.Exchange.Attempts = 1290, 2 // retried: out of the latencies
		finish(p, nil, fewer)
		finish(p, nil, failed(send.ClassConnect))
		broke := served(3)
		broke.Outcome, broke.Reason = measure.Failed, string(send.ClassTransport)
		broke.Exchange.Usage, broke.Exchange.Model, broke.Exchange.Coalesced = send.NoUsage, "", 0
		broke.Scheduled = false
		finish(p, nil, broke)
		skipped := failed("")
		skipped.Outcome, skipped.Reason, skipped.Sent = measure.Skipped, measure.SkipSession, false
		finish(p, nil, skipped)
		left := served(3)
		left.Outcome, left.Scheduled, left.Exchange.Usage, left.Exchange.Coalesced = measure.Disconnected, false, send.NoUsage, 0
		finish(p, nil, left)
		unsendable := failed("unsendable")
		unsendable.Sent, unsendable.Exchange, unsendable.Dispatched = false, send.Exchange{}, 99*ms // a hair early
		finish(p, nil, unsendable)
		p.InFlight(3)
		p.InFlight(-1)

		got := collect(t, reader)
		for name, want := range map[string][]string{
			"gen_ai.client.operation.duration": {
				"connect failed n=1 sum=0.097 ≤0.16:1",   // 200 − 103 ms: never on the wire, so from handing over
				"m-2 served n=1 sum=0.065 ≤0.08:1",       // 170 − 105 ms
				"served n=1 sum=0.045 ≤0.08:1",           // 150 − 105 ms
				"transport failed n=1 sum=0.076 ≤0.08:1", // 181 − 105 ms
				"disconnected m-2 n=1 sum=0.076 ≤0.08:1", // on purpose: neither an error nor a latency of the engine
			},
			"gen_ai.client.token.usage": {
				"input m-2 n=2 sum=2592 ≤4096:2", "input n=1 sum=1300 ≤4096:1",
				"m-2 output n=2 sum=4 ≤1:1,≤4:1", "output n=1 sum=1 ≤1:1",
			},
			"gen_ai.client.operation.time_to_first_chunk":   {"m-2 n=1 sum=0.045 ≤0.08:1", "n=1 sum=0.045 ≤0.08:1"},
			"gen_ai.client.operation.time_per_output_chunk": {"m-2 n=2 sum=0.02 ≤0.01:2"},
			"mooncake.latency.ttft":                         {"m-2 n=1 sum=0.05 ≤0.05:1", "n=1 sum=0.05 ≤0.05:1"}, // 150 − 100 ms
			"mooncake.latency.request":                      {"m-2 n=1 sum=0.07 ≤0.1:1", "n=1 sum=0.05 ≤0.05:1"},
			"mooncake.schedule.lateness":                    {"m-2 n=2 sum=0.002 ≤0.001:2", "n=3 sum=0.002 ≤2e-05:1,≤0.001:2"},
			"mooncake.queue.duration":                       {"m-2 n=3 sum=0.006 ≤0.002:3", "n=4 sum=0.01 ≤0.002:3,≤0.005:1"},
			"mooncake.requests": {
				"connect failed 1", "disconnected m-2 1", "m-2 served 2", "served 1", "session_failed skipped 1", "transport failed 1", "unsendable failed 1",
			},
			"mooncake.requests.in_flight":     {"2"},
			"mooncake.cache.predicted_tokens": {"m-2 2048"},
			"mooncake.cache.reported_tokens":  {"m-2 1024"},
			"mooncake.prompt.token_error": {
				"equal n=1 sum=0 ≤0:1", "fewer m-2 n=1 sum=10 ≤16:1", "m-2 more n=1 sum=2 ≤2:1",
			},
			"mooncake.chunks.coalesced": {"m-2 4"},
		} {
			m, ok := got[name]
			if !ok {
				t.Errorf("%s is missing", name)
				continue
			}
			for i := range want {
				want[i] = sortLabels(want[i])
			}
			have := points(m)
			for i := range have {
				have[i] = sortLabels(have[i])
			}
			slices.Sort(want)
			slices.Sort(have)
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if m.Unit == "" || m.Description == "" {
				t.Errorf("%s has unit %q and description %q", name, m.Unit, m.Description)
			}
		}
		for _, point := range got["gen_ai.client.operation.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
			have := attributeMap(point.Attributes.ToSlice())
			for key, want := range map[string]any{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm", "gen_ai.request.model": "m",
				"server.address": "127.0.0.1", "server.port": int64(8000),
			} {
				if have[key] != want {
					t.Errorf("duration: %s = %v, want %v", key, have[key], want)
				}
			}
		}
	})
}

// TestLatestConventions: after opting in, metrics have the names of the revision after v1.41, and no other names.
func TestLatestConventions(t *testing.T) {
	cleanEnv(t)
	t.Setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http, gen_ai_latest_experimental")
	synctest.Test(t, func(t *testing.T) {
		cfg, reader := target, sdkmetric.NewManualReader()
		cfg.MetricReader, cfg.SpanExporter = reader, &fakeExporter{}
		p, _ := start(t, cfg)
		finish(p, nil, served(3))
		got := collect(t, reader)
		for name, want := range map[string]string{
			"gen_ai.client.inference.duration":                            "served n=1 sum=0.065 ≤0.08:1",
			"gen_ai.client.inference.time_to_first_chunk":                 "n=1 sum=0.045 ≤0.08:1",
			"gen_ai.client.inference.time_per_output_chunk":               "n=2 sum=0.02 ≤0.01:2",
			"gen_ai.client.inference.usage.input_tokens":                  "1302",
			"gen_ai.client.inference.usage.output_tokens":                 "3",
			"gen_ai.client.inference.usage.cache_read.input_tokens":       "512",
			"gen_ai.client.operation.duration, gen_ai.client.token.usage": "",
		} {
			for name := range strings.SplitSeq(name, ", ") {
				var have string
				if m, ok := got[name]; ok {
					have = strings.ReplaceAll(strings.Join(points(m), "; "), "m-2 ", "")
				}
				if have != want {
					t.Errorf("%s: %q, want %q", name, have, want)
				}
			}
		}
	})
}

// Figures that compare two numbers use only rows that have both, for the same thing. Latencies use only rows that the engine got once.
func TestComparableRowsOnly(t *testing.T) {
	cleanEnv(t)
	cfg, reader := target, sdkmetric.NewManualReader()
	cfg.MetricReader = reader
	p, _ := start(t, cfg)
	finish(p, nil, served(2))
	turn := served(2) // a session's new turn: the usage is of the whole conversation
	turn.Prompt, turn.PromptTokens, turn.Exchange.Usage.Prompt = measure.AgreeUnknown, 0, 9000
	turn.Predicted = send.Unknown
	finish(p, nil, turn)
	silent := served(2)
	silent.Exchange.Usage.Cached = send.Unknown
	finish(p, nil, silent)
	resent := served(2)
	resent.Exchange.Replays, resent.Exchange.Resent = 1, 1
	finish(p, nil, resent)
	got := collect(t, reader)
	for name, want := range map[string]string{
		"mooncake.prompt.token_error":     "n=3 sum=6 ≤2:3",
		"mooncake.cache.predicted_tokens": "2048", // of the first and the resent row
		"mooncake.cache.reported_tokens":  "1024",
		"mooncake.latency.request":        "n=3 ",
	} {
		if have := points(got[name]); len(have) != 1 || !strings.Contains(have[0], want) {
			t.Errorf("%s = %v, want %s", name, have, want)
		}
	}
}

// sortLabels orders the words before the value, so that the order of attribute keys does not matter.
func sortLabels(point string) string {
	words := strings.Fields(point)
	n := len(words) - 1
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "n=") }); i >= 0 {
		n = i
	}
	slices.Sort(words[:n])
	return strings.Join(words, " ")
}

func TestExemplars(t *testing.T) {
	cleanEnv(t)
	cfg, reader := target, sdkmetric.NewManualReader()
	cfg.MetricReader, cfg.SpanExporter = reader, &fakeExporter{}
	p, _ := start(t, cfg)
	ref := finish(p, nil, served(3)).Ref()
	for _, name := range []string{"gen_ai.client.operation.duration", "gen_ai.client.operation.time_per_output_chunk", "mooncake.latency.ttft"} {
		point := collect(t, reader)[name].Data.(metricdata.Histogram[float64]).DataPoints[0]
		if len(point.Exemplars) == 0 {
			t.Errorf("%s has no exemplar", name)
			continue
		}
		e := point.Exemplars[0]
		if [16]byte(e.TraceID) != ref.TraceID || [8]byte(e.SpanID) != ref.SpanID {
			t.Errorf("%s: exemplar of %x %x, want the request's span", name, e.TraceID, e.SpanID)
		}
	}
}

// Every counter of a run exists before its first request, at 0: a rate over the first request needs the value before it.
func TestCountersBeginAtZero(t *testing.T) {
	cleanEnv(t)
	cfg, reader := target, sdkmetric.NewManualReader()
	cfg.MetricReader, cfg.SLO, cfg.Model = reader, measure.SLO{TTFT: time.Second}, "m-1"
	start(t, cfg)
	all := collect(t, reader)
	for name, series := range map[string]int{
		"mooncake.requests": 2, "mooncake.requests.good": 1, "mooncake.requests.judged": 1, "mooncake.cache.predicted_tokens": 1, "mooncake.cache.reported_tokens": 1,
		"mooncake.cache.unpredicted_tokens": 1, "mooncake.chunks.coalesced": 1,
	} {
		sum, ok := all[name].Data.(metricdata.Sum[int64])
		if !ok || len(sum.DataPoints) != series {
			t.Errorf("%s has %d series at the start, want %d", name, len(sum.DataPoints), series)
		}
		for _, p := range sum.DataPoints {
			if model, _ := p.Attributes.Value(semconv.GenAIRequestModel); p.Value != 0 || model.AsString() != "m-1" {
				t.Errorf("%s is %d at the start, of model %q", name, p.Value, model.AsString())
			}
		}
	}
}

// What a run reports about itself: what it replays, its position, its good requests, and at its end the verdict with its reasons.
func TestRunMetrics(t *testing.T) {
	cleanEnv(t)
	cfg, reader := target, sdkmetric.NewManualReader()
	cfg.MetricReader, cfg.SLO = reader, measure.SLO{TTFT: time.Second}
	cfg.Trace, cfg.Digest, cfg.Speedup, cfg.ServerAddress, cfg.ServerPort = "t.jsonl", "0123456789abcdef", 2, "engine", 8000
	p, _ := start(t, cfg)
	p.ObserveRun(func() Progress {
		return Progress{Due: 7, Sent: 6, Chunks: 50, Part: 0.25, Left: 90 * time.Second, RowsLeft: 20}
	})
	finish(p, nil, served(3))
	slow := served(3)
	slow.Intended -= time.Hour // good from its start; the service level is not measured from the scheduled time
	finish(p, nil, slow)
	finish(p, nil, failed(send.ClassTransport))
	for _, waited := range []time.Duration{time.Second, 2 * time.Second} { // the second one has missed the service level
		stopped := failed(send.ClassCancelled)
		stopped.Outcome, stopped.Exchange.End = measure.Cancelled, stopped.Exchange.Start+waited
		finish(p, nil, stopped)
	}
	value := func(all map[string]metricdata.Metrics, name string) string {
		return strings.Join(points(all[name]), "; ")
	}
	all := collect(t, reader)
	for name, want := range map[string]string{
		"mooncake.rows.due": "7", "mooncake.requests.sent": "6", "mooncake.chunks.received": "50", "mooncake.rows.left": "20",
		"mooncake.run.progress": "0.25", "mooncake.run.remaining": "90", "mooncake.run.info": "1", "mooncake.requests.good": "m-2 2", "mooncake.requests.judged": "2; m-2 2",
		"mooncake.run.verdict": "", "mooncake.run.verdict.reason": "",
	} {
		if got := value(all, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	info := all["mooncake.run.info"].Data.(metricdata.Gauge[int64]).DataPoints[0].Attributes
	for key, want := range map[attribute.Key]string{semconv.RunTrace: "t.jsonl", semconv.RunDigest: "0123456789ab", semconv.RunSpeedup: "2", semconv.RunEngine: "engine:8000"} {
		if got, _ := info.Value(key); got.String() != want {
			t.Errorf("%s is %q, want %q", key, got.String(), want)
		}
	}
	p.Conclude(Verdict{Class: "degraded", Classes: []string{"valid", "degraded"}, Reasons: []VerdictReason{{Metric: "hiccup_share", Class: "degraded", Value: 12.5}}})
	all = collect(t, reader)
	if got := all["mooncake.run.verdict"].Data.(metricdata.Gauge[int64]).DataPoints; len(got) != 2 || got[0].Value+got[1].Value != 1 {
		t.Errorf("verdict: %v", got)
	}
	reason := all["mooncake.run.verdict.reason"].Data.(metricdata.Gauge[float64]).DataPoints
	if len(reason) != 1 || reason[0].Value != 12.5 {
		t.Errorf("reasons: %v", reason)
	}
}

func TestExponentialHistograms(t *testing.T) {
	cleanEnv(t)
	cfg, reader := target, sdkmetric.NewManualReader()
	cfg.MetricReader, cfg.ExplicitHistograms = reader, false // the default
	p, _ := start(t, cfg)
	finish(p, nil, served(3))
	histograms := 0
	for name, m := range collect(t, reader) {
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64], metricdata.Histogram[int64]:
			t.Errorf("%s has explicit buckets", name)
		case metricdata.ExponentialHistogram[float64]:
			histograms++
			if name == "gen_ai.client.operation.duration" && d.DataPoints[0].Sum != 0.065 {
				t.Errorf("%s: sum %v", name, d.DataPoints[0].Sum)
			}
		case metricdata.ExponentialHistogram[int64]:
			histograms++
		}
	}
	if histograms != 9 {
		t.Errorf("%d exponential histograms, want 9", histograms)
	}
}

// The telemetry's own metrics equal its counts; the machine's equal what the observer measured.
func TestSelfObservation(t *testing.T) {
	cleanEnv(t, "OTEL_SPAN_EVENT_COUNT_LIMIT=2")
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		e := &fakeExporter{do: func(context.Context, []sdktrace.ReadOnlySpan) error { <-hold; return nil }}
		cfg, reader := target, sdkmetric.NewManualReader()
		cfg.MetricReader, cfg.SpanExporter, cfg.QueueBytes = reader, e, 4000
		p, _ := start(t, cfg)
		for range 10 {
			finish(p, nil, served(3))
		}
		close(hold)
		time.Sleep(DefaultLinger)
		synctest.Wait()
		if got := collect(t, reader); got["mooncake.process.hiccups"].Data != nil {
			t.Errorf("machine metrics without an observer: %v", points(got["mooncake.process.hiccups"]))
		}
		p.Observe(func() observe.Machine {
			return observe.Machine{
				Hiccups: 3, HiccupTime: 40 * ms, HiccupMax: 20 * ms, GCPauses: 5, GCPauseMax: ms,
				CPU: 2 * time.Second, CPUKnown: true, Throttled: time.Second, MaxRSS: 1 << 20,
			}
		})
		got, loss := collect(t, reader), p.Loss()
		if loss.Lost[semconv.LostQueueFull] == 0 || loss.Accepted == 0 || loss.EventsDropped != 10 {
			t.Fatalf("the test wants some spans lost and some accepted: %+v", loss)
		}
		for name, want := range map[string][]string{
			"mooncake.telemetry.spans.ended":    {"40"},
			"mooncake.telemetry.spans":          {fmt.Sprint("accepted ", loss.Accepted), fmt.Sprint("queue_full ", 40-loss.Accepted)},
			"mooncake.telemetry.events.dropped": {"10"},
			"mooncake.process.hiccups":          {"3"},
			"mooncake.process.hiccup.time":      {"0.04"},
			"mooncake.process.hiccup.max":       {"0.02"},
			"mooncake.process.gc.pauses":        {"5"},
			"mooncake.process.gc.pause.max":     {"0.001"},
			"process.cpu.time":                  {"2"},
			"mooncake.process.memory.peak":      {"1048576"},
		} {
			if diff := cmp.Diff(want, points(got[name])); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		if n := points(got["go.goroutine.count"]); len(n) != 1 || n[0] == "0" {
			t.Errorf("go.goroutine.count = %v, want what the runtime counts", n)
		}
		if m, ok := got["mooncake.process.throttled.time"]; ok {
			t.Errorf("throttled time is unknown, but reported as %v", points(m))
		}
	})
}

// An engine that always fails in new ways, or always names new models, makes neither memory nor the backend grow.
func TestCardinality(t *testing.T) {
	cleanEnv(t)
	cfg, reader := target, sdkmetric.NewManualReader()
	cfg.MetricReader = reader
	p, _ := start(t, cfg)
	for i := range 1000 {
		r := failed(send.Class(fmt.Sprint("error-", i)))
		r.Exchange.Model = fmt.Sprint("model-", i)
		p.Finish(Span{}, r)
	}
	requests := points(collect(t, reader)["mooncake.requests"])
	if len(requests) != maxSets+1 || !slices.Contains(requests, fmt.Sprint("_OTHER failed ", 1000-maxSets)) {
		t.Errorf("%d series, the first: %v", len(requests), requests[:1])
	}
}
