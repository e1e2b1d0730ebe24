// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// content makes the span of a prompt from log records, as the receiver writes it: of two cells, and of 256 tokens in the tests.
func content(t *testing.T, trace pcommon.TraceID, parent pcommon.SpanID, start int, cells ...uint64) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetName(semconv.SpanContent)
	s.SetTraceID(trace)
	s.SetParentSpanID(parent)
	s.SetSpanID(pcommon.SpanID{9, byte(start)})
	s.SetStartTimestamp(pcommon.Timestamp(start))
	s.SetEndTimestamp(pcommon.Timestamp(start))
	chain := blockhash.Chain{Cells: cells, Tail: cells[len(cells)-1], Bytes: int64(len(cells)) * blockhash.CellSize}
	b, err := chain.AppendBinary(nil)
	require.NoError(t, err)
	s.Attributes().PutStr(semconv.Identity, semconv.IdentityText)
	s.Attributes().PutStr(semconv.HashDomain, "0123abcd")
	s.Attributes().PutEmptyBytes(semconv.Cells).FromRaw(b)
	return td
}

// bare makes the span of a request without its prompt.
func bare(trace byte, tokens int64) ptrace.Traces {
	td := spans(request{tokens: tokens, model: "m", cached: -1})
	first(td).SetTraceID(pcommon.TraceID{trace})
	return td
}

func first(td ptrace.Traces) ptrace.Span {
	return td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
}

// carried returns spans as the receiver kafka gets them from the encoding extension.
func carried(t *testing.T, td ptrace.Traces) ptrace.Traces {
	t.Helper()
	out := ptrace.NewTraces()
	list := out.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	_, err := decode.New(decode.Config{}).Traces(td, func(r journal.Record) error {
		var d journal.Decoder
		record := journal.AppendRecord(nil, r)
		require.NoError(t, d.Decode(record))
		decode.Carry(list.AppendEmpty(), record, &d)
		return nil
	})
	require.NoError(t, err)
	return out
}

// A prompt from log records is joined with its request, whichever comes first.
func TestPromptInLogRecords(t *testing.T) {
	span := first(bare(1, 256)).SpanID()
	at := func(trace byte) pcommon.TraceID { return pcommon.TraceID{trace} }
	for _, tc := range []struct {
		why  string
		send []ptrace.Traces
		want map[string]float64 // requests by result
		hits float64
	}{
		{"request first", []ptrace.Traces{bare(1, 256), content(t, at(1), span, 1, 5, 6), bare(2, 256), content(t, at(2), span, 1, 5, 7)}, map[string]float64{resultAnalysed: 2}, 0.25},
		{"prompt first", []ptrace.Traces{content(t, at(1), span, 1, 5, 6), content(t, at(2), span, 1, 5, 7), bare(1, 256), bare(2, 256)}, map[string]float64{resultAnalysed: 2}, 0.25},
		{"carried by a queue", []ptrace.Traces{carried(t, bare(1, 256)), carried(t, content(t, at(1), span, 1, 5, 6))}, map[string]float64{resultAnalysed: 1}, 0},
		{
			"two parts, of which the second comes first",
			[]ptrace.Traces{
				content(t, at(1), span, 2, 8, 9), content(t, at(1), span, 1, 5, 6), bare(1, 256), bare(2, 256), content(t, at(2), span, 1, 5, 6),
			},
			map[string]float64{resultAnalysed: 2},
			0.5,
		},
		{"delivered twice", []ptrace.Traces{bare(1, 256), bare(1, 256), content(t, at(1), span, 1, 5, 6)}, map[string]float64{resultAnalysed: 1, resultDuplicate: 1}, 0},
		{"another span", []ptrace.Traces{bare(1, 256), content(t, at(1), pcommon.SpanID{7}, 1, 5, 6)}, map[string]float64{resultNoPrompt: 1}, 0},
		{"another trace", []ptrace.Traces{bare(1, 256), content(t, at(2), span, 1, 5, 6)}, map[string]float64{resultNoPrompt: 1}, 0},
		{"no span", []ptrace.Traces{bare(1, 256), content(t, at(1), pcommon.SpanID{}, 1, 5, 6)}, map[string]float64{resultNoPrompt: 1}, 0},
	} {
		c, sink := start(t, func(c *Config) { c.SamplingRatio = 1 })
		for _, td := range tc.send {
			require.NoError(t, c.ConsumeTraces(t.Context(), td))
		}
		noPromptComes(c)
		got := points(t, c, sink)
		for _, result := range allResults {
			prefix := "mooncake.cache.potential.requests "
			assert.InDelta(t, tc.want[result], got[prefix+result]+got[prefix+"m "+result], 0, "%s: %s", tc.why, result)
		}
		assert.InDelta(t, tc.hits, got["mooncake.cache.potential.hit_ratio m infinite"], 1e-9, tc.why)
		assert.Empty(t, c.waiting.halves, tc.why)
	}
}

// The text of a prompt that is partly at the server identifies nothing.
func TestRemotePromptIsNotJoined(t *testing.T) {
	c, sink := start(t, nil)
	td := bare(1, 256)
	first(td).Attributes().PutBool(semconv.PromptRemote, true)
	require.NoError(t, c.ConsumeTraces(t.Context(), content(t, pcommon.TraceID{1}, first(td).SpanID(), 1, 5, 6)))
	require.NoError(t, c.ConsumeTraces(t.Context(), td))
	assert.InDelta(t, 1, points(t, c, sink)["mooncake.cache.potential.requests no_prompt"], 0)
}

// A joined request is that of its own tenant: log records may be of another resource.
func TestTenantOfAJoinedRequest(t *testing.T) {
	c, sink := start(t, func(c *Config) { c.TenantAttribute = "team" })
	td := bare(1, 256)
	td.ResourceSpans().At(0).Resource().Attributes().PutStr("team", "red")
	require.NoError(t, c.ConsumeTraces(t.Context(), td))
	require.NoError(t, c.ConsumeTraces(t.Context(), content(t, pcommon.TraceID{1}, first(td).SpanID(), 1, 5, 6)))
	assert.InDelta(t, 1, points(t, c, sink)["mooncake.cache.potential.requests m red analysed"], 0)
}

// Requests and prompts wait for a minute, as long as there are not too many. The oldest give up first.
func TestWaitingIsBounded(t *testing.T) {
	c, sink := start(t, nil)
	now := time.Unix(1_800_000_000, 0)
	c.clock = func() time.Time { return now }
	requests := func(result string) float64 {
		got := points(t, c, sink)
		return got["mooncake.cache.potential.requests "+result] + got["mooncake.cache.potential.requests m "+result]
	}
	require.NoError(t, c.ConsumeTraces(t.Context(), bare(1, 256)))
	now = now.Add(joinWithin)
	assert.InDelta(t, 0, requests(resultNoPrompt), 0, "it may still come")
	now = now.Add(time.Second)
	assert.InDelta(t, 1, requests(resultNoPrompt), 0)
	require.NoError(t, c.ConsumeTraces(t.Context(), content(t, pcommon.TraceID{1}, first(bare(1, 256)).SpanID(), 1, 5, 6)))
	assert.InDelta(t, 0, requests(resultAnalysed), 0, "too late")

	many := make([]request, maxHalves+10)
	for i := range many {
		many[i] = request{tokens: 256, model: "m", cached: -1}
	}
	td := spans(many...)
	require.NoError(t, c.ConsumeTraces(t.Context(), td))
	assert.Equal(t, maxHalves, len(c.waiting.halves)) //nolint:testifylint // Len prints them all
	assert.Equal(t, maxHalves, c.waiting.order.Len())
	assert.Zero(t, c.waiting.ids)
	assert.InDelta(t, 1+10, requests(resultNoPrompt), 0)
	require.NoError(t, c.ConsumeTraces(t.Context(), content(t, pcommon.TraceID{1, 0, 0, 0, 1}, pcommon.SpanID{2}, 1, 5, 6)))
	assert.InDelta(t, 0, requests(resultAnalysed), 0, "the oldest has given up")

	long := make([]uint64, blockhash.MaxCells)
	for i := range long {
		long[i] = uint64(i)
	}
	for i := range maxHalfIDs/len(long) + 2 {
		require.NoError(t, c.ConsumeTraces(t.Context(), content(t, pcommon.TraceID{8, byte(i)}, pcommon.SpanID{1}, 1, long...)))
	}
	assert.Equal(t, maxHalfIDs, c.waiting.ids)
	assert.Equal(t, maxHalfIDs/len(long), c.waiting.order.Len())
	noPromptComes(c)
	points(t, c, sink)
	assert.Zero(t, c.waiting.ids)
}

// At the end no prompt comes any more, and the last metrics count the requests that wait.
func TestShutdownCountsWhatWaits(t *testing.T) {
	c, sink := start(t, nil)
	require.NoError(t, c.ConsumeTraces(t.Context(), bare(1, 256)))
	require.NoError(t, c.Shutdown(t.Context()))
	require.Len(t, sink.AllMetrics(), 1)
	assert.Empty(t, c.waiting.halves)
}

// Every span is counted: as a request, as the prompt of one, or as ignored.
func TestEverySpanIsCounted(t *testing.T) {
	c, sink := start(t, nil)
	mixed := bare(1, 256)
	list := mixed.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	span := first(mixed).SpanID()
	for i := range 3 { // a plain span, one without a trace id and one without a span id
		s := list.AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{byte(40 + i)})
	}
	list.At(2).SetTraceID(pcommon.TraceID{})
	list.At(3).SetSpanID(pcommon.SpanID{})
	tools := list.AppendEmpty()
	first(content(t, pcommon.TraceID{1}, span, 3, 5)).CopyTo(tools)
	tools.Attributes().PutStr(semconv.Identity, semconv.IdentityNone)
	tools.Attributes().Remove(semconv.Cells)
	tools.Attributes().PutEmptySlice(semconv.ToolCalls).AppendEmpty().SetInt(7)

	record := list.AppendEmpty()
	record.SetTraceID(pcommon.TraceID{1})
	record.SetSpanID(pcommon.SpanID{50})
	b := journal.AppendRecord(nil, &journal.Link{Span: mooncake.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{50}}})
	record.Attributes().PutEmptyBytes(semconv.Record).FromRaw(b)

	for _, td := range []ptrace.Traces{
		mixed, content(t, pcommon.TraceID{1}, span, 1, 5, 6),
		content(t, pcommon.TraceID{1}, span, 2, 8, 9),             // a second part
		content(t, pcommon.TraceID{2}, span, 2, 8, 9),             // the later part of another one
		content(t, pcommon.TraceID{2}, span, 1, 8, 9),             // its first
		content(t, pcommon.TraceID{3}, pcommon.SpanID{}, 1, 8, 9), // of no span
	} {
		require.NoError(t, c.ConsumeTraces(t.Context(), td))
	}
	noPromptComes(c)
	got := points(t, c, sink)
	assert.InDelta(t, 1, got["mooncake.cache.potential.requests m analysed"], 0)
	for reason, want := range map[string]float64{ignoredOther: 3, ignoredNoTraceID: 1, ignoredNoSpanID: 1, ignoredPrompt: 4} {
		assert.InDelta(t, want, got["mooncake.cache.potential.ignored_spans "+reason], 0, reason)
	}
}
