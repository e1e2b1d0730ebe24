// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// annotated fills in the values that a replay or a receiver wrote to a span.
func (w *worker) annotated(span ptrace.Span) {
	r := &w.inference
	var prompt promptReading
	var requested, answered journal.Name
	var ttfc mooncake.Opt[float64]
	var gap mooncake.Opt[int64]
	var evidence []mooncake.Evidence
	for key, v := range span.Attributes().All() {
		switch key {
		case semconv.Row:
			r.Row = w.count(key, v)
		case semconv.Timestamp:
			r.Timestamp = w.number(key, v, 0, maxNumber)
		case semconv.InputLength:
			r.InputLength = w.count(key, v)
		case semconv.OutputLength:
			r.OutputLength = w.count(key, v)
		case semconv.ScheduleOffset:
			r.Offset = w.number(key, v, -maxNumber, maxNumber)
		case semconv.ScheduleSpread:
			r.Spread = w.number(key, v, -maxNumber, maxNumber)
		case semconv.WaitFor:
			r.Waits.For, r.Waits.InGraph = w.waitedFor(key, v)
		case semconv.WaitEvidence:
			evidence = w.evidence(key, v)
		case semconv.Delay:
			r.Waits.Delay = w.number(key, v, 0, maxNumber)
		case semconv.ToolWait:
			r.Waits.ToolWait = w.number(key, v, 0, maxNumber)
		case semconv.Synthetic:
			r.Synthetic = w.flag(key, v)
		case semconv.Outcome:
			outcome, ok := w.text(key, v)
			r.Failed = r.Failed || ok && outcome != semconv.OutcomeServed
			r.Ending = journal.EndingOf(outcome)
		case semconv.ErrorType:
			r.Failed = w.failed(key, v) || r.Failed
		case semconv.GenAIUsageInputTokens:
			r.InputTokens = w.count(key, v)
		case semconv.GenAIUsageOutputTokens:
			r.OutputTokens = w.count(key, v)
		case semconv.GenAIUsageCacheReadTokens:
			r.CachedTokens = w.count(key, v)
		case semconv.GenAIUsageCacheWriteTokens:
			r.CacheWriteTokens = w.count(key, v)
		case semconv.GenAIUsageCacheCreationTokens:
			if n := w.count(key, v); !r.CacheWriteTokens.Set {
				r.CacheWriteTokens = n
			}
		case semconv.InputExclusive:
			r.Exclusive = w.flag(key, v)
		case semconv.PromptRemote:
			r.Remote = w.flag(key, v)
		case semconv.PromptOrder:
			r.Order = parsed(w, key, v, journal.ParsePromptOrder)
		case semconv.OutputEstimate:
			r.OutputEstimate = w.count(key, v)
		case semconv.GenAIRequestModel:
			requested = w.model(key, v)
		case semconv.GenAIResponseModel:
			answered = w.model(key, v)
		case semconv.GenAIResponseID:
			id, _ := w.text(key, v)
			r.Response = journal.ResponseOf(id)
		case semconv.GenAIResponseFinishReasons:
			r.Finish = w.finish(key, v)
		case semconv.GenAIResponseTimeToFirstChunk:
			ttfc = w.number(key, v, 0, maxSeconds)
		case semconv.TokenGaps:
			gap = w.firstGap(v)
		default:
			prompt.attribute(w, key, v, &r.Prompt)
		}
	}
	if r.Model = requested; r.Model.IsZero() {
		r.Model = answered
	}
	r.Answered = answered
	if !prompt.end(w, &r.Prompt) && !r.Row.Set {
		r.Identity = journal.None // the span was annotated, whether the annotation was valid or not
	}
	w.firstToken(span, gap, ttfc)
	w.inGraph(evidence)
	switch {
	case !r.Row.Set:
		r.Ending = journal.NoEnding // only a replay ends requests itself
		w.joined(span)
	case span.Links().Len() > 0:
		link := span.Links().At(0)
		r.Link = valid(w, "link", refOf(link), !link.TraceID().IsEmpty() && !link.SpanID().IsEmpty())
	}
}

func refOf(link ptrace.SpanLink) mooncake.SpanRef {
	return mooncake.SpanRef{TraceID: link.TraceID(), SpanID: link.SpanID()}
}

// joined records the client's span to which a server's span without a parent is connected only by a link. A span with several links is a
// batch. A client's own link points to what caused its request.
func (w *worker) joined(span ptrace.Span) {
	if span.Kind() != ptrace.SpanKindServer || !span.ParentSpanID().IsEmpty() || span.Links().Len() != 1 {
		return
	}
	if to := refOf(span.Links().At(0)); !to.IsZero() && to != w.inference.Span {
		w.inference.Joined = to
	}
}

// prompt fills in a prompt from the attributes about it, and ignores the others. It returns false if the prompt is unknown.
func (w *worker) prompt(attributes pcommon.Map, p *journal.Prompt) bool {
	var reading promptReading
	for key, v := range attributes.All() {
		reading.attribute(w, key, v, p)
	}
	return reading.end(w, p)
}

// promptReading has the attributes of a prompt that must wait until all have been read, in any order.
type promptReading struct {
	named       bool
	media       mooncake.Opt[int64]
	ends, reply pcommon.Value
}

// attribute reads an attribute of a prompt, and ignores all others.
func (it *promptReading) attribute(w *worker, key string, v pcommon.Value, p *journal.Prompt) {
	switch key {
	case semconv.Identity:
		it.named = true
		p.Identity = parsed(w, key, v, func(s string) (journal.Identity, bool) {
			i, ok := journal.ParseIdentity(s)
			return i, ok && i != journal.NoIdentity
		})
	case semconv.HashIDs:
		p.HashIDs = w.hashIDs(v)
	case semconv.BlockSize:
		p.BlockSize = w.blockSize(key, v)
	case semconv.HashDomain:
		p.Domain = w.domain(key, v)
	case semconv.HashKey:
		p.Key = w.domain(key, v)
	case semconv.Cells:
		w.chain(v, p)
	case semconv.CellsPrefix:
		p.Prefix = w.flag(key, v)
	case semconv.CellsMedia:
		it.media = w.count(key, v)
	case semconv.CellsEnds:
		it.ends = v
	case semconv.CellsReply:
		it.reply = v
	case semconv.HashRanges:
		p.HashRanges = w.hashRanges(v)
	case semconv.FineBlockSize:
		p.FineBlockSize = w.blockSize(key, v)
	case semconv.Replies:
		p.Replies = w.replies(v)
	}
}

// end combines the attributes. It returns false without a valid identity. If the identity is there but unknown, end also empties p, because
// the meaning of the other values is unknown, too.
func (it *promptReading) end(w *worker, p *journal.Prompt) bool {
	w.messages(it.ends, it.reply, p)
	if p.HashRanges != nil && p.FineBlockSize == 0 {
		w.counts.invalid(semconv.HashRanges) // the number of tokens per id is unknown
		p.HashRanges = nil
	}
	switch end := it.media.V; {
	case end == 0:
	case end%blockhash.CellSize != 0 || end > p.Chain.Bytes:
		w.counts.invalid(semconv.CellsMedia)
		*p = journal.Prompt{Identity: journal.None} // the length of the text is unknown
	default:
		p.MediaEnd = end
	}
	if it.named && p.Identity == journal.NoIdentity {
		*p = journal.Prompt{}
	}
	return p.Identity != journal.NoIdentity
}

// firstToken determines the time of the first token: from the token events, from the series that replaces them, or from the producer's
// measurement. A replay's measurement is not used: it starts when the request is on the wire, and that time is not known here.
func (w *worker) firstToken(span ptrace.Span, gap mooncake.Opt[int64], ttfc mooncake.Opt[float64]) {
	r := &w.inference
	at, from := int64(0), ""
	for _, event := range span.Events().All() {
		if event.Name() != semconv.EventToken {
			continue
		}
		if i, ok := event.Attributes().Get(semconv.TokenIndex); ok && i.Type() == pcommon.ValueTypeInt && i.Int() == 0 {
			at, from = w.time(event.Timestamp(), semconv.EventToken), semconv.EventToken
			break
		}
	}
	switch {
	case from != "":
	case gap.Set:
		at, from = r.Start+gap.V, semconv.TokenGaps
	case ttfc.Set && !r.Row.Set:
		at, from = r.Start+int64(ttfc.V*1e9), semconv.GenAIResponseTimeToFirstChunk
	default:
		return
	}
	w.first(at, from)
}

// first records the time of the first token, if it lies within the request. A time that overflowed 64 bits is before the request's start.
func (w *worker) first(at int64, from string) {
	r := &w.inference
	if !within(r, at) {
		w.counts.invalid(from)
		return
	}
	r.FirstToken = mooncake.Some(at)
}

// within reports whether a time lies within a request. The end of a span without one is its start: it limits nothing.
func within(r *journal.Inference, at int64) bool {
	return at >= r.Start && (at <= r.End || r.End <= r.Start)
}
