// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/connector/internal/metadata"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
	"github.com/moonloop/moonloop/semconv"
)

// request describes a request's span in a test.
type request struct {
	ids      []uint64
	tokens   int64
	model    string
	response string
	tenant   string
	run      string
	cached   int64 // -1: not reported
	failed   bool
}

// spans makes annotated spans, as the receiver writes them.
func spans(requests ...request) ptrace.Traces {
	td := ptrace.NewTraces()
	for i, r := range requests {
		rs := td.ResourceSpans().AppendEmpty()
		if r.tenant != "" {
			rs.Resource().Attributes().PutStr("team", r.tenant)
		}
		if r.run != "" {
			rs.Resource().Attributes().PutStr(semconv.RunID, r.run)
		}
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1, byte(i), byte(i >> 8), byte(r.tokens), byte(r.tokens >> 8)})
		s.SetSpanID(pcommon.SpanID{2, byte(i), byte(i >> 8)})
		s.SetKind(ptrace.SpanKindClient)
		s.SetStartTimestamp(pcommon.Timestamp(i + 1))
		s.SetEndTimestamp(pcommon.Timestamp(i + 2))
		a := s.Attributes()
		a.PutStr("gen_ai.operation.name", "chat")
		a.PutStr("gen_ai.request.model", r.model)
		if r.response != "" {
			a.PutStr("gen_ai.response.id", r.response)
		}
		if r.failed {
			s.Status().SetCode(ptrace.StatusCodeError)
			a.PutStr("error.type", "500")
		}
		a.PutStr(semconv.Identity, semconv.IdentityTokens)
		if len(r.ids) > 0 {
			a.PutInt(semconv.BlockSize, 512)
			a.PutStr(semconv.HashDomain, "0123abcd")
			list := a.PutEmptySlice(semconv.HashIDs)
			for _, id := range r.ids {
				list.AppendEmpty().SetInt(int64(id))
			}
		}
		if r.tokens > 0 {
			a.PutInt("gen_ai.usage.input_tokens", r.tokens)
		}
		a.PutInt("gen_ai.usage.output_tokens", 1)
		if r.cached >= 0 {
			a.PutInt("gen_ai.usage.cache_read.input_tokens", r.cached)
		}
	}
	return td
}

// start returns a running connector, and what it sends.
func start(t *testing.T, change func(*Config)) (*cacheConnector, *consumertest.MetricsSink) {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	if change != nil {
		change(cfg)
	}
	require.NoError(t, cfg.Validate())
	sink := new(consumertest.MetricsSink)
	made, err := NewFactory().CreateTracesToMetrics(t.Context(), connectortest.NewNopSettings(metadata.Type), cfg, sink)
	require.NoError(t, err)
	require.NoError(t, made.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { assert.NoError(t, made.Shutdown(context.Background())) })
	return made.(*cacheConnector), sink
}

// noPromptComes lets the time pass in which a prompt from log records may come.
func noPromptComes(c *cacheConnector) {
	now := c.clock().Add(joinWithin + time.Second)
	c.clock = func() time.Time { return now }
}

// points returns the values of the last metrics sent, by name and attributes.
func points(t *testing.T, c *cacheConnector, sink *consumertest.MetricsSink) map[string]float64 {
	t.Helper()
	sink.Reset()
	c.send(t.Context())
	got := map[string]float64{}
	for _, md := range sink.AllMetrics() {
		for _, rm := range md.ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				var each pmetric.NumberDataPointSlice
				if m.Type() == pmetric.MetricTypeSum {
					each = m.Sum().DataPoints()
				} else {
					each = m.Gauge().DataPoints()
				}
				for _, p := range each.All() {
					name := m.Name()
					for _, key := range []string{"gen_ai.request.model", semconv.CacheTenant, semconv.CacheCapacity, semconv.CacheRequestResult, semconv.CachePrefix} {
						if v, ok := p.Attributes().Get(key); ok {
							name += " " + v.Str()
						}
					}
					if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
						got[name] = float64(p.IntValue())
					} else {
						got[name] = p.DoubleValue()
					}
				}
			}
		}
	}
	return got
}

func TestPotential(t *testing.T) {
	c, sink := start(t, func(c *Config) {
		c.SamplingRatio = 1
		c.Capacities = []int64{1024, 4096}
		c.Models = []ModelConfig{{Model: "m*", Layers: 2, KVHeads: 4, HeadDim: 8}} // 256 bytes a token
	})
	require.NoError(t, c.ConsumeTraces(t.Context(), spans(
		request{ids: []uint64{1, 2}, tokens: 1024, model: "m1", response: "a", cached: 0},
		request{ids: []uint64{1, 2}, tokens: 1024, model: "m1", response: "a", cached: 0}, // the gateway's span of the same request
		request{ids: []uint64{1, 3}, tokens: 1024, model: "m1", response: "b", cached: 512},
		request{ids: []uint64{1, 2}, tokens: 1024, model: "m1", response: "c", cached: 1024},
		request{ids: []uint64{1, 2}, tokens: 1024, model: "m1", response: "d", failed: true, cached: -1},
		request{tokens: 100, model: "m1", response: "e", cached: -1},
		request{ids: []uint64{1}, model: "m1", response: "f", cached: -1},
		request{ids: []uint64{1, 2}, tokens: 1024, model: "m1", response: "g", run: "run-1", cached: -1},
		request{ids: []uint64{1, 2}, tokens: 1024, model: "other", response: "h", cached: -1},
	)))
	noPromptComes(c)
	got := points(t, c, sink)
	for name, want := range map[string]float64{
		"mooncake.cache.potential.hit_ratio m1 infinite":          0.5, // 512 + 1024 of 3072
		"mooncake.cache.potential.hit_ratio m1 4096":              0.5,
		"mooncake.cache.potential.hit_ratio other infinite":       0,
		"mooncake.cache.potential.working_set m1":                 1536,
		"mooncake.cache.potential.working_set.size m1":            1536 * 256,
		"mooncake.cache.potential.prompt_tokens m1":               3072,
		"mooncake.cache.potential.reported_tokens m1":             1536,
		"mooncake.cache.potential.reported_of_tokens m1":          3072,
		"mooncake.cache.potential.requests m1 analysed":           3,
		"mooncake.cache.potential.requests m1 duplicate":          1,
		"mooncake.cache.potential.requests m1 failed":             1,
		"mooncake.cache.potential.requests m1 no_prompt":          1,
		"mooncake.cache.potential.requests m1 no_tokens":          1,
		"mooncake.cache.potential.requests m1 replay":             1,
		"mooncake.cache.potential.requests m1 too_many":           0,
		"mooncake.cache.potential.sampling_ratio m1":              1,
		"mooncake.cache.potential.blocks m1":                      3,
		"mooncake.cache.potential.prefix.requests m1 " + keyed(1): 3,
		"mooncake.cache.potential.prefix.tokens m1 " + keyed(2):   1024,
	} {
		value, ok := got[name]
		if !ok || math.Abs(value-want) > 1e-6*want {
			t.Errorf("%s is %v (%t), want %v", name, value, ok, want)
		}
	}
	assert.Contains(t, got, "mooncake.cache.potential.knee.size m1")
	assert.NotContains(t, got, "mooncake.cache.potential.knee.size other")
}

// keyed returns an id as the metrics spell it.
func keyed(id uint64) string { return fmt.Sprintf("%016x", id) }

func TestTenantsAndStreamsAreBounded(t *testing.T) {
	c, sink := start(t, func(c *Config) { c.TenantAttribute, c.MaxStreams = "team", 2 })
	long := strings.Repeat("x", 5000)
	require.NoError(t, c.ConsumeTraces(t.Context(), spans(
		request{ids: []uint64{1}, tokens: 512, model: "m", response: "a", tenant: "red", cached: -1},
		request{ids: []uint64{1}, tokens: 512, model: "m", response: "b", tenant: long, cached: -1},
		request{ids: []uint64{1}, tokens: 512, model: "m", response: "c", tenant: "blue", cached: -1},
	)))
	got := points(t, c, sink)
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests m red analysed"], 0)
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests too_many"], 0)
	for name := range got {
		assert.Less(t, len(name), 300)
	}
}

// Requests that are not analysed do not use up the limit: names of models that do not exist would shut out those that do.
func TestOnlyAnalysedRequestsTakeAStream(t *testing.T) {
	c, sink := start(t, func(c *Config) { c.MaxStreams = 1 })
	require.NoError(t, c.ConsumeTraces(t.Context(), spans(
		request{ids: []uint64{1}, tokens: 512, model: "typo", response: "a", failed: true, cached: -1},
		request{ids: []uint64{1}, tokens: 512, model: "replayed", response: "b", run: "run-1", cached: -1},
		request{ids: []uint64{1}, model: "uncounted", response: "c", cached: -1},
		request{tokens: 512, model: "bare", response: "d", cached: -1},
	)))
	noPromptComes(c)
	want := map[string]float64{"mooncake.cache.potential.expired": 0}
	for _, reason := range allIgnored {
		want["mooncake.cache.potential.ignored_spans "+reason] = 0
	}
	for _, result := range []string{"failed", "replay", "no_tokens", "no_prompt"} {
		want["mooncake.cache.potential.requests "+result] = 1
	}
	assert.Equal(t, want, points(t, c, sink))
	require.NoError(t, c.ConsumeTraces(t.Context(), spans(
		request{ids: []uint64{1}, tokens: 512, model: "prod", response: "e", cached: -1},
		request{ids: []uint64{1}, tokens: 512, model: "prod", response: "f", failed: true, cached: -1},
		request{ids: []uint64{1}, tokens: 512, model: "second", response: "g", cached: -1},
	)))
	got := points(t, c, sink)
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests prod analysed"], 0)
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests prod failed"], 0)
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests failed"], 0)
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests too_many"], 0)
}

// A second span of a request is recognised, and a second request with the same prompt or the same response id is not taken for one.
func TestDuplicates(t *testing.T) {
	type span struct {
		trace, start, end, prompt byte
		service, response         string
	}
	for _, tc := range []struct {
		why      string
		spans    []span
		analysed float64
	}{
		{"one prompt, again and again", []span{{1, 0, 5, 1, "app", ""}, {1, 5, 9, 1, "app", ""}, {1, 9, 12, 1, "app", ""}}, 3},
		{"the same, through a gateway whose spans come later", []span{{1, 0, 5, 1, "app", ""}, {1, 5, 9, 1, "app", ""}, {1, 1, 4, 1, "gateway", ""}, {1, 6, 8, 1, "gateway", ""}}, 2},
		{"only the gateway has the response id", []span{{1, 0, 5, 1, "app", ""}, {1, 1, 4, 1, "gateway", "a"}, {2, 2, 3, 1, "engine", "a"}}, 1},
		{"several samples at one time", []span{{1, 0, 5, 1, "app", "a"}, {1, 0, 6, 1, "app", "b"}}, 2},
		{"two spans of one library, one in the other", []span{{1, 0, 5, 1, "app", "a"}, {1, 1, 4, 1, "app", "a"}}, 1},
		{"one response id for all", []span{{1, 0, 5, 1, "app", "a"}, {2, 4, 9, 2, "app", "a"}, {3, 20, 25, 3, "other", "a"}}, 3},
		{"a library's two spans have different texts", []span{{1, 0, 5, 1, "app", "a"}, {1, 1, 4, 2, "app", "a"}}, 1},
		{"a span that is delivered twice", []span{{1, 0, 5, 1, "app", ""}, {1, 0, 5, 1, "app", ""}}, 1},
	} {
		c, sink := start(t, nil)
		for _, s := range tc.spans {
			td := spans(request{ids: []uint64{uint64(s.prompt)}, tokens: 500 + int64(s.prompt), model: "m", response: s.response, cached: -1})
			rs := td.ResourceSpans().At(0)
			rs.Resource().Attributes().PutStr("service.name", s.service)
			one := rs.ScopeSpans().At(0).Spans().At(0)
			one.SetTraceID(pcommon.TraceID{s.trace})
			one.SetStartTimestamp(pcommon.Timestamp(100 + int(s.start)))
			one.SetEndTimestamp(pcommon.Timestamp(100 + int(s.end)))
			require.NoError(t, c.ConsumeTraces(t.Context(), td))
		}
		got := points(t, c, sink)
		assert.InDelta(t, tc.analysed, got["mooncake.cache.potential.requests m analysed"], 0, tc.why)
		assert.InDelta(t, float64(len(tc.spans))-tc.analysed, got["mooncake.cache.potential.requests m duplicate"], 0, tc.why)
	}
}

// The window slides: earlier hits do not count.
func TestWindow(t *testing.T) {
	c, sink := start(t, func(c *Config) { c.SamplingRatio, c.Window, c.Interval = 1, time.Minute, 30*time.Second })
	now := time.Unix(1_800_000_000, 0)
	c.clock = func() time.Time { return now }
	ratio := func(first, second uint64, response string) float64 {
		require.NoError(t, c.ConsumeTraces(t.Context(), spans(request{ids: []uint64{first, second}, tokens: 1024, model: "m", response: response, cached: -1})))
		return points(t, c, sink)["mooncake.cache.potential.hit_ratio m infinite"]
	}
	assert.InDelta(t, 0, ratio(1, 2, "a"), 0)
	now = now.Add(30 * time.Second)
	assert.InDelta(t, 0.5, ratio(1, 2, "b"), 0)
	now = now.Add(30 * time.Second)
	assert.InDelta(t, 1, ratio(1, 2, "c"), 0, "the first prompt is a minute old")
	now = now.Add(25 * time.Hour)
	points(t, c, sink) // each interval forgets
	assert.InDelta(t, 0, ratio(1, 2, "d"), 0, "and after a day all is forgotten")
	now = now.Add(time.Minute)
	assert.InDelta(t, 1, ratio(1, 2, "e"), 0)
}

// A window of many intervals does not keep a state for each of them.
func TestWindowIsBounded(t *testing.T) {
	s := &stream{reuse: stats.NewReuse(stats.ReuseOptions{})}
	now := time.Unix(1_800_000_000, 0)
	for range 2 * 24 * 3600 {
		now = now.Add(time.Second)
		s.recent(now, day)
	}
	assert.Less(t, len(s.window), windowStates+3)
	assert.InDelta(t, day.Seconds(), now.Sub(s.window[0].at).Seconds(), 1+day.Seconds()/windowStates)
}

// A model without requests makes room for another one after the retention time. If it comes back, it begins again.
func TestStreamsExpire(t *testing.T) {
	c, sink := start(t, func(c *Config) { c.MaxStreams, c.Retention, c.Window = 2, 2*time.Hour, time.Hour })
	now := time.Unix(1_800_000_000, 0)
	c.clock = func() time.Time { return now }
	next := 0
	send := func(models ...string) map[string]float64 {
		for _, m := range models {
			next++
			require.NoError(t, c.ConsumeTraces(t.Context(), spans(request{ids: []uint64{1}, tokens: 512, model: m, response: fmt.Sprint(next), cached: -1})))
		}
		return points(t, c, sink)
	}
	got := send("old", "new", "third")
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests too_many"], 0)
	assert.InDelta(t, 0, got["mooncake.cache.potential.expired"], 0)
	now = now.Add(time.Hour)
	send("new")
	now = now.Add(time.Hour)
	assert.Contains(t, send(), "mooncake.cache.potential.requests old analysed", "not before the time has passed")
	now = now.Add(time.Second)
	got = send()
	assert.NotContains(t, got, "mooncake.cache.potential.requests old analysed")
	assert.InDelta(t, 2, got["mooncake.cache.potential.requests new analysed"], 0)
	assert.InDelta(t, 1, got["mooncake.cache.potential.expired"], 0)
	got = send("third", "old")
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests third analysed"], 0)
	assert.InDelta(t, 2, got["mooncake.cache.potential.requests too_many"], 0)
	now = now.Add(3 * time.Hour)
	got = send()
	assert.InDelta(t, 3, got["mooncake.cache.potential.expired"], 0, "all of them")
	got = send("old")
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests old analysed"], 0)
	for _, m := range sink.AllMetrics()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if m.Name() == semconv.CachePotentialPromptTokens.Name {
			assert.Equal(t, now.UTC(), m.Sum().DataPoints().At(0).StartTimestamp().AsTime(), "its counters begin again")
		}
	}
}

// While no block of the prompts is in the sample, hit ratios, knee and working set are unknown, not 0.
func TestNothingSampled(t *testing.T) {
	c, sink := start(t, func(c *Config) {
		c.SamplingRatio, c.Capacities = 0.001, []int64{1024}
		c.Models = []ModelConfig{{Model: "*", KVBytesPerToken: 2}}
	})
	send := func(response string, ids ...uint64) map[string]float64 {
		require.NoError(t, c.ConsumeTraces(t.Context(), spans(request{ids: ids, tokens: 512 * int64(len(ids)), model: "m", response: response, cached: -1})))
		return points(t, c, sink)
	}
	got := send("a", 1, 2, 3)
	require.InDelta(t, 0, got["mooncake.cache.potential.blocks m"], 0, "the test needs blocks outside the sample")
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests m analysed"], 0)
	figures := []string{"hit_ratio m infinite", "hit_ratio m 1024", "knee m", "knee.size m", "working_set m", "working_set.size m"}
	for _, figure := range figures {
		assert.NotContains(t, got, "mooncake.cache.potential."+figure)
	}
	many := make([]uint64, 10_000)
	for i := range many {
		many[i] = uint64(10 + i)
	}
	got = send("b", many...)
	require.NotZero(t, got["mooncake.cache.potential.blocks m"])
	for _, figure := range figures {
		if figure != "hit_ratio m 1024" { // the sample is too small for that size
			assert.Contains(t, got, "mooncake.cache.potential."+figure)
		}
	}
	assert.InDelta(t, 0, got["mooncake.cache.potential.hit_ratio m infinite"], 0, "and now 0 is known")
}

func BenchmarkConsume(b *testing.B) {
	cfg := createDefaultConfig().(*Config)
	made, err := NewFactory().CreateTracesToMetrics(b.Context(), connectortest.NewNopSettings(metadata.Type), cfg, new(consumertest.MetricsSink))
	require.NoError(b, err)
	const n = 500
	var batch []request
	for i := range uint64(n) {
		ids := make([]uint64, 24)
		for j := range ids {
			ids[j] = (i/4*24 + uint64(j) + 1) * 0x9e3779b97f4a7c15
		}
		batch = append(batch, request{ids: ids, tokens: 12_000, model: "m", response: fmt.Sprint(i), cached: -1})
	}
	td := spans(batch...)
	for b.Loop() {
		if err := made.ConsumeTraces(b.Context(), td); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/span")
}

// A prompt shorter than a cell is analysed: none of it can be hit, and its tokens count.
func TestShortPrompt(t *testing.T) {
	c, sink := start(t, nil)
	short := &journal.Inference{InputTokens: mooncake.Some[int64](12)}
	short.Chain.Bytes, short.Chain.Tail = 60, 7
	short.Span.TraceID[0] = 1
	c.mu.Lock()
	c.add(short, "", time.Now())
	c.add(short, "", time.Now()) // the gateway's span of the same request
	c.mu.Unlock()
	got := points(t, c, sink)
	assert.InDelta(t, 12, got["mooncake.cache.potential.prompt_tokens "], 0)
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests  analysed"], 0)
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests  duplicate"], 0)
}
