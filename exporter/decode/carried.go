// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"math"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// A record has hashes of values on its span: of the session, the response id, the service. So no span can be made that would become the
// same record. Instead, a record is put unchanged into a span for transport, and taken out unchanged.

// Carry puts a record into a span, which also gets the record's ids, parent and times.
func Carry(span ptrace.Span, record []byte, d *journal.Decoder) {
	span.SetName(semconv.Record)
	span.SetTraceID(d.Span.TraceID)
	span.SetSpanID(d.Span.SpanID)
	span.SetParentSpanID(pcommon.SpanID(d.Parent))
	span.SetStartTimestamp(pcommon.Timestamp(max(0, d.Start)))
	span.SetEndTimestamp(pcommon.Timestamp(max(0, d.Start, d.End)))
	span.Attributes().PutEmptyBytes(semconv.Record).FromRaw(record)
}

// carriedBy returns the record that a span carries. A record that no decoder can have made is ignored and counted.
func (w *worker) carriedBy(ref mooncake.SpanRef, v pcommon.Value) journal.Record {
	b, ok := bytesOf(v, journal.MaxRecord)
	if d := &w.carried; !ok || d.Decode(b) != nil || d.Span != ref || !plausible(d) {
		w.counts.invalid(semconv.Record)
		return nil
	}
	switch d := &w.carried; d.Kind {
	case journal.KindContent:
		w.counts.Contents++
		w.content = journal.Content{Span: d.Span, Parent: d.Parent, Start: d.Start, Prompt: d.Prompt, Tools: d.Tools}
		return &w.content
	case journal.KindLink:
		w.counts.Links++
		w.link = journal.Link{
			Span: d.Span, Parent: d.Parent, Session: d.Session, Border: d.Border, Start: d.Start, End: d.End, Acts: d.Acts, Follows: d.Follows, Tools: d.Tools,
			Class: d.Class, Priority: d.Priority,
		}
		return &w.link
	default:
		if Annotated(&d.Inference) {
			w.counts.Inferences++
		} else {
			w.counts.Unannotated++
		}
		return &d.Inference
	}
}

// wanted returns a carried record, or nil if only requests and prompts are wanted and the record is neither.
func (w *worker) wanted(r journal.Record) journal.Record {
	if _, link := r.(*journal.Link); w.requestsOnly && link {
		return nil
	}
	return r
}

// Annotated reports whether a receiver, a processor or a replay wrote to the span of a request what its prompt shares.
func Annotated(r *journal.Inference) bool { return r.Identity != journal.NoIdentity || r.Row.Set }

// plausible reports whether a record is within the limits that this package applies to spans.
func plausible(d *journal.Decoder) bool {
	p := &d.Prompt
	for _, n := range [...]mooncake.Opt[int64]{
		d.InputTokens, d.OutputTokens, d.CachedTokens, d.CacheWriteTokens, d.OutputEstimate, d.Row, d.InputLength, d.OutputLength,
	} {
		if n.V < 0 || n.V > maxCount {
			return false
		}
	}
	for _, n := range [...]mooncake.Opt[float64]{d.Timestamp, d.Offset, d.Spread} {
		if !(n.V >= -maxNumber && n.V <= maxNumber) { // also false for NaN
			return false
		}
	}
	outside := func(r mooncake.HashRange) bool { return r.Count < 1 || r.Count > maxCount }
	beyond := func(r mooncake.Reply) bool {
		return min(r.Back, r.At, r.Tokens) < 1 || max(r.Back, r.At, r.Tokens) > maxCount
	}
	switch {
	case d.Start < 0 || d.End < 0 || d.Timestamp.V < 0:
	case d.FirstToken.Set && !within(&d.Inference, d.FirstToken.V):
	case d.Step.ID != 0: // only Compile makes it
	case len(p.HashIDs) > maxHashIDs || p.BlockSize > math.MaxInt32 || p.FineBlockSize > math.MaxInt32:
	case p.HashRanges != nil && p.FineBlockSize == 0 || slices.ContainsFunc(p.HashRanges, outside) || slices.ContainsFunc(p.Replies, beyond):
	case p.Chain.Validate() != nil || p.MediaEnd < 0 || p.MediaEnd%blockhash.CellSize != 0 || p.MediaEnd > p.Chain.Bytes:
	case p.Reply != (blockhash.End{}) && (p.Chain.Bytes == 0 || p.Prefix || p.Chain.ValidateReply(p.Reply) != nil):
	default:
		return true
	}
	return false
}
