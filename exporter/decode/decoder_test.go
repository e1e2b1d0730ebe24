// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

const (
	start = int64(1_750_000_000) * 1e9
	end   = start + 2e9
)

var (
	traceID = [16]byte{1, 2, 3}
	spanID  = [8]byte{4, 5}
	ref     = mooncake.SpanRef{TraceID: traceID, SpanID: spanID}
	parent  = journal.SpanID{6}
)

// one returns a span with ids, times and a parent, and its container.
func one() (ptrace.Traces, ptrace.Span) {
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(traceID)
	s.SetSpanID(spanID)
	s.SetParentSpanID(pcommon.SpanID(parent))
	s.SetName("chat m")
	s.SetStartTimestamp(pcommon.Timestamp(start))
	s.SetEndTimestamp(pcommon.Timestamp(end))
	return td, s
}

// put sets an attribute.
func put(t *testing.T, m pcommon.Map, key string, value any) {
	t.Helper()
	if err := m.PutEmpty(key).FromRaw(value); err != nil {
		t.Fatal(err)
	}
}

// keepRecord copies a record, because that of the decoder is valid only during the visit.
func keepRecord(r journal.Record) journal.Record {
	own := func(p *journal.Prompt) {
		p.HashIDs, p.Chain.Cells, p.Chain.Ends = slices.Clone(p.HashIDs), slices.Clone(p.Chain.Cells), slices.Clone(p.Chain.Ends)
		p.HashRanges, p.Replies = slices.Clone(p.HashRanges), slices.Clone(p.Replies)
	}
	switch r := r.(type) {
	case *journal.Inference:
		c := *r
		own(&c.Prompt)
		return &c
	case *journal.Content:
		c := *r
		own(&c.Prompt)
		return &c
	case *journal.Link:
		c := *r
		return &c
	}
	return nil
}

// recordsOf returns the number of records that were counted.
func recordsOf(c *Counts) int64 { return c.Inferences + c.Unannotated + c.Contents + c.Links }

func decodeAll(t testing.TB, d *Decoder, td ptrace.Traces) ([]journal.Record, Counts) {
	t.Helper()
	var all []journal.Record
	counts, err := d.Traces(td, func(r journal.Record) error {
		all = append(all, keepRecord(r))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(all)) != recordsOf(&counts) {
		t.Errorf("%d records, counted %d", len(all), recordsOf(&counts))
	}
	return all, counts
}

var compareNames = cmp.Comparer(func(a, b journal.Name) bool { return a == b })

func name(t testing.TB, s string) journal.Name {
	t.Helper()
	n, err := journal.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// chain returns the cells of a text, and the attribute that holds them.
func chain(t testing.TB, text string) (blockhash.Chain, []byte) {
	t.Helper()
	c, _ := hashed(t, text)
	b, err := c.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Ends = nil
	return c, b
}

// hashed returns the chain of a message of the user, and the end of the reply to it.
func hashed(t testing.TB, text string) (blockhash.Chain, blockhash.End) {
	t.Helper()
	key, err := blockhash.NewKey([]byte(strings.Repeat("k", blockhash.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	h, err := blockhash.NewHasher(key, "00000009")
	if err != nil {
		t.Fatal(err)
	}
	h.Role("user")
	h.Text(text)
	c := h.Chain()
	h.Role("assistant")
	h.Text("Fine.")
	reply, _ := h.End()
	return c, reply
}

func opt[T any](v T) mooncake.Opt[T] { return mooncake.Some(v) }

// TestAnnotated: each row adds attributes, events or links to an annotated span, and says how the record changes.
func TestAnnotated(t *testing.T) {
	cells, raw := chain(t, strings.Repeat("all work and no play ", 30))
	token := func(at int64, index any) func(*testing.T, ptrace.Span) {
		return func(t *testing.T, s ptrace.Span) {
			t.Helper()
			e := s.Events().AppendEmpty()
			e.SetName(semconv.EventToken)
			e.SetTimestamp(pcommon.Timestamp(at))
			put(t, e.Attributes(), semconv.TokenIndex, index)
		}
	}
	attr := func(kv ...any) func(*testing.T, ptrace.Span) {
		return func(t *testing.T, s ptrace.Span) {
			t.Helper()
			for i := 0; i < len(kv); i += 2 {
				put(t, s.Attributes(), kv[i].(string), kv[i+1])
			}
		}
	}
	whole, reply := hashed(t, strings.Repeat("all work and no play ", 30))
	rawEnds := whole.AppendEnds(nil)
	rawReply, err := reply.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	many := make([]any, 2*journal.MaxRanges+2)
	for i := range many {
		many[i] = int64(1)
	}
	text := func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Text, Chain: cells} }
	ranges := func(kv ...any) func(*testing.T, ptrace.Span) {
		return attr(append([]any{semconv.Row, 3, semconv.Identity, "trace"}, kv...)...)
	}
	row := func(change func(*journal.Prompt)) func(r *journal.Inference) {
		return func(r *journal.Inference) {
			r.Row, r.Prompt = opt[int64](3), journal.Prompt{Identity: journal.Trace}
			change(&r.Prompt)
		}
	}
	fine := func(p *journal.Prompt) { p.FineBlockSize = 16 }
	nothing := func(*journal.Prompt) {}
	huge := make([]any, maxHashIDs+1)
	for i := range huge {
		huge[i] = int64(i)
	}
	none := func(*journal.Inference) {}
	for _, c := range []struct {
		why     string
		span    func(*testing.T, ptrace.Span)
		want    func(*journal.Inference) // what differs from the bare record
		invalid string                   // attribute that is left out
	}{
		{"identity none: seen, nothing known", attr(), none, ""},
		{"tokens of the usage", attr(semconv.GenAIUsageInputTokens, 1300, semconv.GenAIUsageOutputTokens, 20, semconv.GenAIUsageCacheReadTokens, 512), func(r *journal.Inference) {
			r.InputTokens, r.OutputTokens, r.CachedTokens = opt[int64](1300), opt[int64](20), opt[int64](512)
		}, ""},
		{"some producers write counts as doubles and strings", attr(semconv.GenAIUsageInputTokens, 1300.0, semconv.GenAIUsageOutputTokens, "20"), func(r *journal.Inference) {
			r.InputTokens, r.OutputTokens = opt[int64](1300), opt[int64](20)
		}, ""},
		{"tokens written to the cache, under their current and their former name", attr(semconv.GenAIUsageCacheWriteTokens, 3, semconv.GenAIUsageCacheCreationTokens, 4), func(r *journal.Inference) {
			r.CacheWriteTokens = opt[int64](3)
		}, ""},
		{"tokens written to the cache, under their former name", attr(semconv.GenAIUsageCacheCreationTokens, 4), func(r *journal.Inference) {
			r.CacheWriteTokens = opt[int64](4)
		}, ""},
		{"counts that leave out a part", attr(semconv.InputExclusive, true), func(r *journal.Inference) { r.Exclusive = true }, ""},
		{"a prompt of which the server has a part", attr(semconv.PromptRemote, true), func(r *journal.Inference) { r.Remote = true }, ""},
		{"an estimate of the output", attr(semconv.OutputEstimate, 40), func(r *journal.Inference) { r.OutputEstimate = opt[int64](40) }, ""},
		{"0 is a count", attr(semconv.GenAIUsageOutputTokens, 0), func(r *journal.Inference) { r.OutputTokens = opt[int64](0) }, ""},
		{"a negative count", attr(semconv.GenAIUsageInputTokens, -1), none, semconv.GenAIUsageInputTokens},
		{"an absurd count", attr(semconv.GenAIUsageInputTokens, int64(1)<<62), none, semconv.GenAIUsageInputTokens},
		{"a count that is a fraction", attr(semconv.GenAIUsageInputTokens, 12.5), none, semconv.GenAIUsageInputTokens},
		{"a count that is a text", attr(semconv.GenAIUsageInputTokens, "many"), none, semconv.GenAIUsageInputTokens},
		{"a count that is a list", attr(semconv.GenAIUsageInputTokens, []any{1}), none, semconv.GenAIUsageInputTokens},

		{"status Error", func(_ *testing.T, s ptrace.Span) { s.Status().SetCode(ptrace.StatusCodeError) }, func(r *journal.Inference) { r.Failed = true }, ""},
		{"status Ok", func(_ *testing.T, s ptrace.Span) { s.Status().SetCode(ptrace.StatusCodeOk) }, none, ""},
		{"an error type", attr(semconv.ErrorType, "503"), func(r *journal.Inference) { r.Failed = true }, ""},
		{"an error type that is not a string still counts as one", attr(semconv.ErrorType, 503), func(r *journal.Inference) { r.Failed = true }, semconv.ErrorType},
		{"an error type without a value does not count", attr(semconv.ErrorType, nil), none, ""},
		{"an empty error type does not count", attr(semconv.ErrorType, ""), none, ""},
		{"cancelled is not served", attr(semconv.Outcome, semconv.OutcomeCancelled), func(r *journal.Inference) { r.Failed = true }, ""},
		{"skipped is not served", attr(semconv.Outcome, semconv.OutcomeSkipped), func(r *journal.Inference) { r.Failed = true }, ""},
		{"a row that a replay did not send", attr(semconv.Outcome, semconv.OutcomeSkipped, semconv.Row, 3), func(r *journal.Inference) {
			r.Row, r.Failed, r.Ending = opt[int64](3), true, journal.Skipped
		}, ""},
		{"a row that a replay cancelled", attr(semconv.Row, 3, semconv.Outcome, semconv.OutcomeCancelled, semconv.ErrorType, "cancelled"), func(r *journal.Inference) {
			r.Row, r.Failed, r.Ending = opt[int64](3), true, journal.Cancelled
		}, ""},
		{"a row that failed", attr(semconv.Row, 3, semconv.Outcome, semconv.OutcomeFailed), func(r *journal.Inference) { r.Row, r.Failed = opt[int64](3), true }, ""},
		{"served", attr(semconv.Outcome, semconv.OutcomeServed), none, ""},
		{"an outcome that is not a word says nothing", attr(semconv.Outcome, 5), none, semconv.Outcome},

		{"the event of the first token", token(start+7, 0), func(r *journal.Inference) { r.FirstToken = opt(start + 7) }, ""},
		{"a later token is not the first", token(start+7, 1), none, ""},
		{"a token before the request", token(start-1, 0), none, semconv.EventToken},
		{"a token after its end", token(end+1, 0), none, semconv.EventToken},
		{"the series of arrivals begins at the span's start", attr(semconv.TokenGaps, []any{7, 9}), func(r *journal.Inference) { r.FirstToken = opt(start + 7) }, ""},
		{"an empty series", attr(semconv.TokenGaps, []any{}), none, ""},
		{"a series of another type", attr(semconv.TokenGaps, []any{"7"}), none, semconv.TokenGaps},
		{"a series from before the start", attr(semconv.TokenGaps, []any{-7}), none, semconv.TokenGaps},
		{"production's own time to the first chunk, from the start", attr(semconv.GenAIResponseTimeToFirstChunk, 0.5), func(r *journal.Inference) { r.FirstToken = opt(start + 5e8) }, ""},
		{"a replay's time to the first chunk is ignored: it is from the wire, whose instant is not known here", attr(semconv.GenAIResponseTimeToFirstChunk, 0.5, semconv.Row, 3), func(r *journal.Inference) { r.Row = opt[int64](3) }, ""},
		{"a time to the first chunk that is longer than the request", attr(semconv.GenAIResponseTimeToFirstChunk, 2.5), none, semconv.GenAIResponseTimeToFirstChunk},
		{"a negative time to the first chunk", attr(semconv.GenAIResponseTimeToFirstChunk, -0.1), none, semconv.GenAIResponseTimeToFirstChunk},
		{"a time to the first chunk beyond what 64 bits of ns can hold", attr(semconv.GenAIResponseTimeToFirstChunk, 1e300), none, semconv.GenAIResponseTimeToFirstChunk},
		{"an event takes precedence over the series and the time to the first chunk", func(t *testing.T, s ptrace.Span) {
			t.Helper()
			token(start+1, 0)(t, s)
			attr(semconv.TokenGaps, []any{2}, semconv.GenAIResponseTimeToFirstChunk, 3e-9)(t, s)
		}, func(r *journal.Inference) { r.FirstToken = opt(start + 1) }, ""},
		{"the series takes precedence over the time to the first chunk", attr(semconv.TokenGaps, []any{2}, semconv.GenAIResponseTimeToFirstChunk, 3e-9), func(r *journal.Inference) { r.FirstToken = opt(start + 2) }, ""},

		{"the model asked for", attr(semconv.GenAIRequestModel, "llama-3", semconv.GenAIResponseModel, "llama-3-8b"), func(r *journal.Inference) {
			r.Model, r.Answered = name(t, "llama-3"), name(t, "llama-3-8b")
		}, ""},
		{"the model that answered, if none was asked for", attr(semconv.GenAIResponseModel, "llama-3-8b"), func(r *journal.Inference) {
			r.Model, r.Answered = name(t, "llama-3-8b"), name(t, "llama-3-8b")
		}, ""},
		{"a sentence is not a model, and stays unlike any other", attr(semconv.GenAIRequestModel, "tell me a story"), func(r *journal.Inference) {
			r.Model = name(t, "sha256:"+journal.SessionOf("tell me a story").String())
		}, semconv.GenAIRequestModel},
		{"a name in another script", attr(semconv.GenAIRequestModel, "通义千问", semconv.GenAIResponseModel, "qwen"), func(r *journal.Inference) {
			r.Model, r.Answered = name(t, "sha256:"+journal.SessionOf("通义千问").String()), name(t, "qwen")
		}, semconv.GenAIRequestModel},
		{"a text that is too long is not a model", attr(semconv.GenAIResponseModel, strings.Repeat("x", journal.MaxName+1)), func(r *journal.Inference) {
			r.Model = name(t, "sha256:"+journal.SessionOf(strings.Repeat("x", journal.MaxName+1)).String())
			r.Answered = r.Model
		}, semconv.GenAIResponseModel},
		{"a list is not a model", attr(semconv.GenAIRequestModel, []any{"m"}), none, semconv.GenAIRequestModel},
		{"response id", attr(semconv.GenAIResponseID, "chatcmpl-1"), func(r *journal.Inference) { r.Response = journal.ResponseOf("chatcmpl-1") }, ""},
		{"an invalid response id", attr(semconv.GenAIResponseID, strings.Repeat("x", maxText+1)), none, semconv.GenAIResponseID},

		{"a session that is a hash already is not hashed again", attr(semconv.Session, "00000000000000ff"), func(r *journal.Inference) { r.Session = 255 }, ""},
		{"the session of a trace is hashed", attr(semconv.Session, "s 1"), func(r *journal.Inference) { r.Session = journal.SessionOf("s 1") }, ""},
		{"an empty session does not count", attr(semconv.Session, ""), none, ""},
		{"a session of another type", attr(semconv.Session, 5), none, semconv.Session},

		{"the class, and the priority", attr(semconv.Class, "batch", semconv.Priority, -3), func(r *journal.Inference) {
			r.Class, r.Priority = name(t, "batch"), opt[int64](-3)
		}, ""},
		{"a sentence is not a class, and stays unlike any other", attr(semconv.Class, "tell me a story"), func(r *journal.Inference) {
			r.Class = name(t, "sha256:"+journal.SessionOf("tell me a story").String())
		}, semconv.Class},

		{"row, and what it asks for", attr(semconv.Row, 0, semconv.Timestamp, 27.5, semconv.InputLength, 6758, semconv.OutputLength, 500), func(r *journal.Inference) {
			r.Row, r.Timestamp, r.InputLength, r.OutputLength = opt[int64](0), opt(27.5), opt[int64](6758), opt[int64](500)
		}, ""},
		{"JSON makes ints of whole doubles", attr(semconv.Timestamp, 27), func(r *journal.Inference) { r.Timestamp = opt(27.0) }, ""},
		{"a negative row", attr(semconv.Row, -1), none, semconv.Row},
		{"a negative timestamp", attr(semconv.Timestamp, -0.5), none, semconv.Timestamp},
		{"an infinite timestamp", attr(semconv.Timestamp, inf()), none, semconv.Timestamp},
		{"a timestamp that is NaN", attr(semconv.Timestamp, inf()-inf()), none, semconv.Timestamp},
		{"how it was scheduled", attr(semconv.ScheduleOffset, 1.25, semconv.ScheduleSpread, 0.25), func(r *journal.Inference) { r.Offset, r.Spread = opt(1.25), opt(0.25) }, ""},
		{"a schedule of another type", attr(semconv.ScheduleOffset, "1.25"), none, semconv.ScheduleOffset},
		{"a span that was made from a log record", attr(semconv.Synthetic, true), func(r *journal.Inference) { r.Synthetic = true }, ""},
		{"a flag of another type", attr(semconv.Synthetic, "true"), none, semconv.Synthetic},

		{"a replay's link is the production span", func(t *testing.T, s ptrace.Span) {
			t.Helper()
			attr(semconv.Row, 1)(t, s)
			l := s.Links().AppendEmpty()
			l.SetTraceID([16]byte{9})
			l.SetSpanID([8]byte{8})
		}, func(r *journal.Inference) {
			r.Row, r.Link = opt[int64](1), mooncake.SpanRef{TraceID: [16]byte{9}, SpanID: [8]byte{8}}
		}, ""},
		{"a link without ids", func(t *testing.T, s ptrace.Span) { t.Helper(); attr(semconv.Row, 1)(t, s); s.Links().AppendEmpty() }, func(r *journal.Inference) { r.Row = opt[int64](1) }, "link"},
		{"the link of a production span is not recorded", func(_ *testing.T, s ptrace.Span) {
			l := s.Links().AppendEmpty()
			l.SetTraceID([16]byte{9})
			l.SetSpanID([8]byte{8})
		}, none, ""},

		{"a client's link points to what caused its request", func(_ *testing.T, s ptrace.Span) {
			s.SetKind(ptrace.SpanKindClient)
			s.SetParentSpanID(pcommon.NewSpanIDEmpty())
			l := s.Links().AppendEmpty()
			l.SetTraceID([16]byte{9})
			l.SetSpanID([8]byte{8})
		}, func(r *journal.Inference) { r.Parent = journal.SpanID{} }, ""},
		{"the one link of a server's span without a parent is to its client", func(_ *testing.T, s ptrace.Span) {
			s.SetKind(ptrace.SpanKindServer)
			s.SetParentSpanID(pcommon.NewSpanIDEmpty())
			l := s.Links().AppendEmpty()
			l.SetTraceID([16]byte{9})
			l.SetSpanID([8]byte{8})
		}, func(r *journal.Inference) {
			r.Parent, r.Joined = journal.SpanID{}, mooncake.SpanRef{TraceID: [16]byte{9}, SpanID: [8]byte{8}}
		}, ""},
		{"a server's span with several links is a batch", func(_ *testing.T, s ptrace.Span) {
			s.SetKind(ptrace.SpanKindServer)
			s.SetParentSpanID(pcommon.NewSpanIDEmpty())
			for i := range byte(2) {
				l := s.Links().AppendEmpty()
				l.SetTraceID([16]byte{9})
				l.SetSpanID([8]byte{8, i})
			}
		}, func(r *journal.Inference) { r.Parent = journal.SpanID{} }, ""},
		{"signed ids are the bit patterns of unsigned ones", attr(semconv.Identity, "engine", semconv.HashIDs, []any{1, int64(-1), int64(-1) << 63}, semconv.BlockSize, 512, semconv.HashDomain, "0000000a", semconv.HashKey, "0000000b"), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Engine, HashIDs: []uint64{1, 1<<64 - 1, 1 << 63}, BlockSize: 512, Domain: 10, Key: 11}
		}, ""},
		{"some JSON has ids as strings", attr(semconv.Identity, "tokens", semconv.HashIDs, []any{"9223372036854775808", "18446744073709551615"}, semconv.BlockSize, 16), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Tokens, HashIDs: []uint64{1 << 63, 1<<64 - 1}, BlockSize: 16}
		}, ""},
		{"an empty list of ids is not an absent one", attr(semconv.Identity, "trace", semconv.HashIDs, []any{}), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Trace, HashIDs: []uint64{}}
		}, ""},
		{"one invalid id makes the whole list invalid", attr(semconv.Identity, "trace", semconv.HashIDs, []any{1, "x"}), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Trace} }, semconv.HashIDs},
		{"a double may have been rounded", attr(semconv.Identity, "trace", semconv.HashIDs, []any{9.223372036854775808e18}), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Trace} }, semconv.HashIDs},
		{"one id is not a list", attr(semconv.Identity, "trace", semconv.HashIDs, 1), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Trace} }, semconv.HashIDs},
		{"more ids than any prompt has", attr(semconv.Identity, "trace", semconv.HashIDs, huge), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Trace} }, semconv.HashIDs},
		{"an absurd block size", attr(semconv.Identity, "trace", semconv.BlockSize, int64(1)<<31), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Trace} }, semconv.BlockSize},
		{"a negative block size", attr(semconv.Identity, "trace", semconv.BlockSize, -512), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Trace} }, semconv.BlockSize},
		{"a domain that is not hex", attr(semconv.Identity, "trace", semconv.HashDomain, "0000000x"), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Trace} }, semconv.HashDomain},
		{"a domain that is a number", attr(semconv.Identity, "trace", semconv.HashDomain, 12345678), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Trace} }, semconv.HashDomain},
		{"a key that is too short", attr(semconv.Identity, "trace", semconv.HashKey, "0b"), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Trace} }, semconv.HashKey},

		{"cells", attr(semconv.Identity, "text", semconv.Cells, raw), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Text, Chain: cells}
		}, ""},
		{"cells of a text that was cut", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsPrefix, true), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Text, Chain: cells, Prefix: true}
		}, ""},
		{"cells of a text with an image", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsMedia, 256), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Text, Chain: cells, MediaEnd: 256}
		}, ""},
		{"an image that ends within a cell", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsMedia, 255), none, semconv.CellsMedia},
		{"an image that ends after the text", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsMedia, 1<<20), none, semconv.CellsMedia},
		{"cells that were cut", attr(semconv.Identity, "text", semconv.Cells, raw[:len(raw)-8]), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Text} }, semconv.Cells},
		{"cells that are text", attr(semconv.Identity, "text", semconv.Cells, "once upon a time"), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Text} }, semconv.Cells},
		{"more cells than any text has", attr(semconv.Identity, "text", semconv.Cells, make([]byte, maxCells+8)), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Text} }, semconv.Cells},
		{"cells of no bytes", attr(semconv.Identity, "text", semconv.Cells, []byte{}), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Text} }, semconv.Cells},

		{"ends and a reply", attr(semconv.Identity, "text", semconv.CellsReply, rawReply, semconv.CellsEnds, rawEnds, semconv.Cells, raw), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Text, Chain: whole, Reply: reply}
		}, ""},
		{"ends without cells", attr(semconv.Identity, "text", semconv.CellsEnds, rawEnds), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Text} }, semconv.CellsEnds},
		{"ends that were cut", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsEnds, rawEnds[:11]), text, semconv.CellsEnds},
		{"ends of another text", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsEnds, rawReply), text, semconv.CellsEnds},
		{"ends that are a text", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsEnds, "once upon a "), text, semconv.CellsEnds},
		{"more ends than any prompt has", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsEnds, make([]byte, maxEnds+12)), text, semconv.CellsEnds},
		{"a reply without cells", attr(semconv.Identity, "text", semconv.CellsReply, rawReply), func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Text} }, semconv.CellsReply},
		{"a reply that is the user's", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsReply, rawEnds), text, semconv.CellsReply},
		{"a reply that is a number", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsReply, 1), text, semconv.CellsReply},
		{"a reply of no bytes", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsReply, []byte{}), text, semconv.CellsReply},
		{"a reply to half a prompt", attr(semconv.Identity, "text", semconv.Cells, raw, semconv.CellsPrefix, true, semconv.CellsReply, rawReply), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Text, Chain: cells, Prefix: true}
		}, semconv.CellsReply},

		{"ranges and replies", ranges(semconv.HashRanges, []any{0, 44, -1, 1}, semconv.FineBlockSize, 16, semconv.Replies, []any{7, 1034, 212}), row(func(p *journal.Prompt) {
			p.HashRanges, p.FineBlockSize = []mooncake.HashRange{{First: 0, Count: 44}, {First: 1<<64 - 1, Count: 1}}, 16
			p.Replies = []mooncake.Reply{{Back: 7, At: 1034, Tokens: 212}}
		}), ""},
		{"empty lists of ranges and replies are not absent ones", ranges(semconv.HashRanges, []any{}, semconv.FineBlockSize, 16, semconv.Replies, []any{}), row(func(p *journal.Prompt) {
			p.HashRanges, p.FineBlockSize, p.Replies = []mooncake.HashRange{}, 16, []mooncake.Reply{}
		}), ""},
		{"the rows of a graph that a row waited for", ranges(semconv.WaitEvidence, []any{"tool_call", "time"}, semconv.WaitFor, []any{0, 1 << 20}, semconv.Delay, 7.5, semconv.ToolWait, 0), func(r *journal.Inference) {
			row(nothing)(r)
			r.Waits = journal.Waits{
				InGraph: true, For: []journal.RowEdge{{Row: 0, Evidence: mooncake.EvidenceToolCall}, {Row: 1 << 20, Evidence: mooncake.EvidenceTime}},
				Delay: mooncake.Some(7.5), ToolWait: mooncake.Some(0.0),
			}
		}, ""},
		{"the first row of a graph", ranges(semconv.WaitFor, []any{}), func(r *journal.Inference) { row(nothing)(r); r.Waits.InGraph = true }, ""},
		{"a delay of a row that is in no graph", ranges(semconv.Delay, 7.5), row(nothing), ""},
		{"the rows for which a request of production waited, which are ignored", attr(semconv.WaitFor, []any{1}), none, ""},
		{"a row before the first", ranges(semconv.WaitFor, []any{1, -1}), row(nothing), semconv.WaitFor},
		{"evidence of an unknown kind", ranges(semconv.WaitFor, []any{1}, semconv.WaitEvidence, []any{"hearsay"}), func(r *journal.Inference) {
			row(nothing)(r)
			r.Waits = journal.Waits{InGraph: true, For: []journal.RowEdge{{Row: 1}}}
		}, semconv.WaitEvidence},
		{"evidence for fewer edges than there are", ranges(semconv.WaitFor, []any{1, 2}, semconv.WaitEvidence, []any{"link"}), func(r *journal.Inference) {
			row(nothing)(r)
			r.Waits = journal.Waits{InGraph: true, For: []journal.RowEdge{{Row: 1}, {Row: 2}}}
		}, semconv.WaitEvidence},
		{"calls of tools", attr(semconv.ToolCalls, []any{1, -1}, semconv.ToolResults, []any{2}), func(r *journal.Inference) {
			r.Tools = journal.ToolIDs{Made: []uint64{1, 1<<64 - 1}, Given: []uint64{2}}
		}, ""},
		{"the id of a call that is a text", attr(semconv.ToolCalls, []any{1, "call_1"}), none, semconv.ToolCalls},
		{"more calls than a reply makes", attr(semconv.ToolResults, many[:journal.MaxToolIDs+1]), none, semconv.ToolResults},

		{"half a range", ranges(semconv.HashRanges, []any{0, 44, 1}, semconv.FineBlockSize, 16), row(fine), semconv.HashRanges},
		{"a range without ids", ranges(semconv.HashRanges, []any{0, 0}, semconv.FineBlockSize, 16), row(fine), semconv.HashRanges},
		{"a range that is a text", ranges(semconv.HashRanges, []any{"0", 44}, semconv.FineBlockSize, 16), row(fine), semconv.HashRanges},
		{"ranges without a block size", ranges(semconv.HashRanges, []any{0, 44}), row(nothing), semconv.HashRanges},
		{"more ranges than a record has", ranges(semconv.HashRanges, many, semconv.FineBlockSize, 16), row(fine), semconv.HashRanges},
		{"an absurd fine block size", ranges(semconv.FineBlockSize, int64(1)<<31), row(nothing), semconv.FineBlockSize},
		{"a reply to a later row", ranges(semconv.Replies, []any{-1, 1034, 212}), row(nothing), semconv.Replies},
		{"a reply that begins the prompt", ranges(semconv.Replies, []any{1, 0, 212}), row(nothing), semconv.Replies},
		{"two thirds of a reply", ranges(semconv.Replies, []any{1, 1}), row(nothing), semconv.Replies},

		{"a finish reason", attr(semconv.GenAIResponseFinishReasons, []any{"tool_calls"}), func(r *journal.Inference) { r.Finish = name(t, "tool_calls") }, ""},
		{"the finish reason of the first choice", attr(semconv.GenAIResponseFinishReasons, []any{"stop", "length"}), func(r *journal.Inference) { r.Finish = name(t, "stop") }, ""},
		{"a finish reason that is not a list", attr(semconv.GenAIResponseFinishReasons, "stop"), func(r *journal.Inference) { r.Finish = name(t, "stop") }, ""},
		{"no finish reason", attr(semconv.GenAIResponseFinishReasons, []any{}), none, ""},
		{"a finish reason that is a sentence", attr(semconv.GenAIResponseFinishReasons, []any{"it was done"}), none, semconv.GenAIResponseFinishReasons},
		{"a finish reason that is a number", attr(semconv.GenAIResponseFinishReasons, []any{1}), none, semconv.GenAIResponseFinishReasons},

		{"the order of a prompt", attr(semconv.PromptOrder, "both_last"), func(r *journal.Inference) { r.Order = journal.BothLast }, ""},
		{"an unknown order", attr(semconv.PromptOrder, "user_first"), none, semconv.PromptOrder},
		{"an order that is a number", attr(semconv.PromptOrder, 1), none, semconv.PromptOrder},
		{"an empty order", attr(semconv.PromptOrder, ""), none, semconv.PromptOrder},

		{"an identity of a later version: the meaning of the ids is unknown", attr(semconv.Identity, "tree", semconv.HashIDs, []any{1}, semconv.BlockSize, 512), none, semconv.Identity},
		{"an identity that is not a word", attr(semconv.Identity, 1, semconv.HashIDs, []any{1}), none, semconv.Identity},
	} {
		t.Run(c.why, func(t *testing.T) {
			td, s := one()
			put(t, s.Attributes(), semconv.Identity, semconv.IdentityNone)
			c.span(t, s)
			got, counts := decodeAll(t, New(Config{}), td)
			want := &journal.Inference{Span: ref, Parent: parent, Start: start, End: end, Prompt: journal.Prompt{Identity: journal.None}}
			c.want(want)
			if diff := cmp.Diff([]journal.Record{want}, got, compareNames); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			wantCounts := Counts{Inferences: 1}
			if c.invalid != "" {
				wantCounts.Invalid = map[string]int64{c.invalid: 1}
			}
			if diff := cmp.Diff(wantCounts, counts); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

func inf() float64 { zero := 0.0; return 1 / zero }

// TestKinds has each kind of span, and spans that are damaged as a whole.
func TestKinds(t *testing.T) {
	cells, raw := chain(t, strings.Repeat("all work and no play ", 30))
	whole, _ := hashed(t, strings.Repeat("all work and no play ", 30))
	bare := journal.Inference{Span: ref, Parent: parent, Start: start, End: end}
	inference := func(change func(*journal.Inference)) journal.Record {
		r := bare
		change(&r)
		return &r
	}
	for _, c := range []struct {
		why    string
		span   func(ptrace.Traces, ptrace.Span)
		want   journal.Record
		counts Counts
	}{
		{
			"a row without ids is a request of a replay", func(_ ptrace.Traces, s ptrace.Span) { s.Attributes().PutInt(semconv.Row, 4) },
			inference(func(r *journal.Inference) { r.Row = opt[int64](4) }),
			Counts{Inferences: 1},
		},
		{
			"a span with a damaged row was annotated, too", func(_ ptrace.Traces, s ptrace.Span) { s.Attributes().PutStr(semconv.Row, "x") },
			inference(func(r *journal.Inference) { r.Identity = journal.None }),
			Counts{Inferences: 1, Invalid: map[string]int64{semconv.Row: 1}},
		},
		{
			"the run is on the resource", func(td ptrace.Traces, s ptrace.Span) {
				td.ResourceSpans().At(0).Resource().Attributes().PutStr(semconv.RunID, "r1")
				s.Attributes().PutStr(semconv.RunID, "not here")
				s.Attributes().PutInt(semconv.Row, 4)
			},
			inference(func(r *journal.Inference) { r.Row, r.Run = opt[int64](4), name(t, "r1") }),
			Counts{Inferences: 1},
		},
		{
			"a run with an invalid name is not production", func(td ptrace.Traces, s ptrace.Span) {
				td.ResourceSpans().At(0).Resource().Attributes().PutStr(semconv.RunID, "run of today")
				s.Attributes().PutInt(semconv.Row, 4)
			},
			inference(func(r *journal.Inference) {
				r.Row, r.Run = opt[int64](4), name(t, journal.SessionOf("run of today").String())
			}),
			Counts{Inferences: 1, Invalid: map[string]int64{semconv.RunID: 1}},
		},
		{
			"a run whose id is not a string is not production", func(td ptrace.Traces, s ptrace.Span) {
				td.ResourceSpans().At(0).Resource().Attributes().PutEmptySlice(semconv.RunID).AppendEmpty().SetStr("r1")
				s.Attributes().PutInt(semconv.Row, 4)
			},
			inference(func(r *journal.Inference) {
				r.Row, r.Run = opt[int64](4), name(t, journal.SessionOf("a Slice").String())
			}),
			Counts{Inferences: 1, Invalid: map[string]int64{semconv.RunID: 1}},
		},
		{
			"a run without an id is production", func(td ptrace.Traces, s ptrace.Span) {
				td.ResourceSpans().At(0).Resource().Attributes().PutEmpty(semconv.RunID)
				s.Attributes().PutInt(semconv.Row, 4)
			},
			inference(func(r *journal.Inference) { r.Row = opt[int64](4) }),
			Counts{Inferences: 1},
		},
		{
			"content", func(_ ptrace.Traces, s ptrace.Span) {
				s.SetName(semconv.SpanContent)
				s.Attributes().PutStr(semconv.Identity, "text")
				s.Attributes().PutEmptyBytes(semconv.Cells).FromRaw(raw)
				s.Attributes().PutEmptyBytes(semconv.CellsEnds).FromRaw(whole.AppendEnds(nil))
				s.Attributes().PutStr(semconv.HashDomain, "0000000a")
				s.Attributes().PutStr(semconv.HashKey, "0000000b")
			},
			&journal.Content{Span: ref, Parent: parent, Start: start, Prompt: journal.Prompt{Identity: journal.Text, Chain: whole, Domain: 10, Key: 11}},
			Counts{Contents: 1},
		},
		{
			"content is content, whatever other attributes it has", func(_ ptrace.Traces, s ptrace.Span) {
				s.SetName(semconv.SpanContent)
				s.Attributes().PutInt(semconv.Row, 4)
				s.Attributes().PutStr(semconv.GenAIOperationName, "chat")
				s.Attributes().PutStr(semconv.Identity, "text")
				s.Attributes().PutEmptyBytes(semconv.Cells).FromRaw(raw)
			},
			&journal.Content{Span: ref, Parent: parent, Start: start, Prompt: journal.Prompt{Identity: journal.Text, Chain: cells}},
			Counts{Contents: 1},
		},
		{
			"content without cells has no effect", func(_ ptrace.Traces, s ptrace.Span) {
				s.SetName(semconv.SpanContent)
				s.Attributes().PutStr(semconv.Identity, "text")
				s.Attributes().PutStr(semconv.Session, "00000000000000ff")
			},
			&journal.Link{Span: ref, Parent: parent, Session: 255, Start: start, End: start + 2e9},
			Counts{Links: 1},
		},
		{
			"any other span", func(_ ptrace.Traces, s ptrace.Span) { s.SetName("GET /"); s.Attributes().PutStr("url.path", "/") },
			&journal.Link{Span: ref, Parent: parent, Start: start, End: start + 2e9},
			Counts{Links: 1},
		},
		{
			"a phase of a replay", func(td ptrace.Traces, s ptrace.Span) {
				td.ResourceSpans().At(0).Resource().Attributes().PutStr(semconv.RunID, "r1")
				s.SetName(semconv.PhaseDecode)
			},
			&journal.Link{Span: ref, Parent: parent},
			Counts{Links: 1},
		},
		{
			"a request that was not annotated", func(_ ptrace.Traces, s ptrace.Span) {
				a := s.Attributes()
				a.PutStr(semconv.GenAIOperationName, "chat")
				a.PutStr(semconv.GenAIRequestModel, "m1")
				a.PutStr(semconv.GenAIResponseID, "x")
				a.PutStr(semconv.GenAIConversationID, "a session that has no twin")
				a.PutStr(semconv.GenAIInputMessages, `[{"role":"user","parts":[{"type":"text","content":"hello"}]}]`)
				a.PutInt(semconv.GenAIUsageInputTokens, 9)
				a.PutInt(semconv.GenAIUsageOutputTokens, 2)
				a.PutInt(semconv.GenAIUsageCacheReadTokens, 1)
				a.PutDouble(semconv.GenAIResponseTimeToFirstChunk, 0.5)
				a.PutEmptySlice(semconv.GenAIResponseFinishReasons).AppendEmpty().SetStr("length")
			},
			inference(func(r *journal.Inference) {
				r.Finish = name(t, "length")
				r.InputTokens, r.OutputTokens, r.CachedTokens = opt[int64](9), opt[int64](2), opt[int64](1)
				r.Model, r.Response, r.FirstToken = name(t, "m1"), journal.ResponseOf("x"), opt(start+5e8)
			}),
			Counts{Unannotated: 1},
		},
		{
			"an unannotated request whose first token would be beyond what 64 bits hold, of a model with an invalid name", func(_ ptrace.Traces, s ptrace.Span) {
				s.SetStartTimestamp(1<<63 - 2)
				s.SetEndTimestamp(1<<63 - 1)
				s.Attributes().PutStr(semconv.GenAIOperationName, "chat")
				s.Attributes().PutStr(semconv.GenAIRequestModel, "my model")
				s.Attributes().PutDouble(semconv.GenAIResponseTimeToFirstChunk, 9e6)
			},
			inference(func(r *journal.Inference) {
				r.Start, r.End, r.Model = 1<<63-2, 1<<63-1, name(t, "sha256:"+journal.SessionOf("my model").String())
			}),
			Counts{Unannotated: 1, Invalid: map[string]int64{semconv.GenAIResponseTimeToFirstChunk: 1, semconv.GenAIRequestModel: 1}},
		},
		{
			"an unannotated request whose first token came after its end", func(_ ptrace.Traces, s ptrace.Span) {
				s.Attributes().PutStr(semconv.GenAIOperationName, "chat")
				s.Attributes().PutDouble(semconv.GenAIResponseTimeToFirstChunk, 2.5)
			},
			inference(func(*journal.Inference) {}),
			Counts{Unannotated: 1, Invalid: map[string]int64{semconv.GenAIResponseTimeToFirstChunk: 1}},
		},
		{
			"an unannotated request of an older dialect, which failed", func(_ ptrace.Traces, s ptrace.Span) {
				s.Attributes().PutStr("gen_ai.system", "openai")
				s.Attributes().PutStr(semconv.GenAIOperationName, "chat")
				s.Attributes().PutInt(semconv.GenAIUsagePromptTokens, 9)
				s.Attributes().PutStr("error.type", "timeout")
			},
			inference(func(r *journal.Inference) { r.InputTokens, r.Failed = opt[int64](9), true }),
			Counts{Unannotated: 1},
		},
		{
			"an agent's span is not a request", func(_ ptrace.Traces, s ptrace.Span) {
				s.Attributes().PutStr(semconv.GenAIOperationName, "invoke_agent")
			},
			&journal.Link{Span: ref, Parent: parent, Border: true, Start: start, End: start + 2e9, Acts: journal.Agent},
			Counts{Links: 1},
		},
		{
			"a tool's span is not a request", func(_ ptrace.Traces, s ptrace.Span) { s.Attributes().PutStr("openinference.span.kind", "TOOL") },
			&journal.Link{Span: ref, Parent: parent, Border: true, Start: start, End: start + 2e9, Acts: journal.Tool},
			Counts{Links: 1},
		},
		{
			"a request of a service and a scope", func(td ptrace.Traces, s ptrace.Span) {
				resource := td.ResourceSpans().At(0)
				resource.Resource().Attributes().PutStr("service.name", "gw")
				resource.Resource().Attributes().PutStr("host.name", "h")
				resource.ScopeSpans().At(0).Scope().SetName("lab")
				s.Attributes().PutStr(semconv.GenAIOperationName, "chat")
			},
			inference(func(r *journal.Inference) {
				r.Producer = uint64(journal.SessionOf("lab\x00service.name\x00gw"))
				r.Clock = uint64(journal.SessionOf("\x00service.name\x00gw\x00host.name\x00h"))
			}),
			Counts{Unannotated: 1},
		},
		{"no trace id", func(_ ptrace.Traces, s ptrace.Span) { s.SetTraceID([16]byte{}) }, nil, Counts{NoTraceID: 1}},
		{"no span id", func(_ ptrace.Traces, s ptrace.Span) { s.SetSpanID([8]byte{}) }, nil, Counts{NoSpanID: 1}},
		{
			"times that do not fit into 63 bits", func(_ ptrace.Traces, s ptrace.Span) {
				s.Attributes().PutInt(semconv.Row, 4)
				s.SetStartTimestamp(1 << 63)
				s.SetEndTimestamp(1<<64 - 1)
			},
			inference(func(r *journal.Inference) { r.Row, r.Start, r.End = opt[int64](4), 0, 0 }),
			Counts{Inferences: 1, Invalid: map[string]int64{"start_time": 1, "end_time": 1}},
		},
		{
			"no end", func(_ ptrace.Traces, s ptrace.Span) { s.Attributes().PutInt(semconv.Row, 4); s.SetEndTimestamp(0) },
			inference(func(r *journal.Inference) { r.Row, r.End = opt[int64](4), start }),
			Counts{Inferences: 1},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			td, s := one()
			c.span(td, s)
			got, counts := decodeAll(t, New(Config{}), td)
			var want []journal.Record
			if c.want != nil {
				want = append(want, c.want)
			}
			if diff := cmp.Diff(want, got, compareNames); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.counts, counts); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}
