// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// attributes collects the attributes of a span.
type attributes []attribute.KeyValue

func (a *attributes) add(kvs ...attribute.KeyValue) { *a = append(*a, kvs...) }

// when adds an attribute if a condition holds; otherwise it is absent.
func (a *attributes) when(ok bool, kv attribute.KeyValue) {
	if ok {
		*a = append(*a, kv)
	}
}

// text adds a string that is absent when empty.
func (a *attributes) text(key, v string) { a.when(v != "", attribute.String(key, v)) }

// count adds a number that is absent when unknown.
func (a *attributes) count(key string, n int64) { a.when(n > send.Unknown, attribute.Int64(key, n)) }

// present adds a number that is absent when 0.
func (a *attributes) present(key string, n int) { a.when(n > 0, attribute.Int(key, n)) }

// baseAttributes are those that all requests of a run share, on spans and metrics, in addition to the model.
func baseAttributes(c *Config) (a attributes) {
	a.text(semconv.GenAIOperationName, c.Operation)
	a.text(semconv.GenAIProviderName, c.Provider)
	a.text(semconv.ServerAddress, c.ServerAddress)
	a.present(semconv.ServerPort, c.ServerPort)
	return a
}

// requestAttributes are the attributes of a request's span, without token events.
func (p *Pipeline) requestAttributes(r *measure.Record) attributes {
	a := make(attributes, 0, 48)
	a.add(p.base...)
	a.add(attribute.String(semconv.GenAIRequestModel, cmp.Or(r.Model, p.cfg.Model)))
	if s := r.Server; s != nil {
		a.add(attribute.String(semconv.ServerAddress, s.Address), attribute.Int(semconv.ServerPort, s.Port))
	}
	a.count(semconv.Row, r.Index)
	if r.Row != nil {
		p.rowAttributes(&a, r)
	}
	scheduleAttributes(&a, r, p.cfg.Speedup)
	a.add(attribute.String(semconv.Outcome, r.Outcome.String()))
	a.when(r.Outcome == measure.Skipped && r.Reason != "", attribute.String(semconv.OutcomeReason, r.Reason))
	a.when(r.Outcome == measure.Failed || r.Outcome == measure.Cancelled,
		attribute.String(semconv.ErrorType, cmp.Or(r.Reason, semconv.ErrorOther)))
	a.when(r.Stream, attribute.Bool(semconv.GenAIRequestStream, true))
	a.when(r.OutputTokensAsked > 0, attribute.Int64(semconv.GenAIRequestMaxTokens, r.OutputTokensAsked))
	if r.Sent {
		a.when(r.Priority.Set, attribute.Int64(semconv.Priority, r.Priority.V))
		replyAttributes(&a, r)
	}
	return a
}

// rowAttributes identify the row of the request.
func (p *Pipeline) rowAttributes(a *attributes, r *measure.Record) {
	row := r.Row
	a.when(row.Timestamp.Set, attribute.Float64(semconv.Timestamp, row.Timestamp.V))
	a.when(row.InputLength.Set, attribute.Int64(semconv.InputLength, row.InputLength.V))
	a.when(row.OutputLength.Set, attribute.Int64(semconv.OutputLength, row.OutputLength.V))
	if row.HashIDs != nil {
		ids := make([]int64, len(row.HashIDs)) // OTLP has no unsigned integers
		for i, id := range row.HashIDs {
			ids[i] = int64(id) //nolint:gosec // two's complement is the contract
		}
		a.add(
			attribute.Int64Slice(semconv.HashIDs, ids),
			attribute.Int(semconv.BlockSize, p.cfg.BlockSize),
			attribute.String(semconv.Identity, semconv.IdentityTrace),
		)
		a.text(semconv.HashDomain, p.cfg.HashDomain)
	}
	if row.HashRanges != nil {
		pairs := make([]int64, 0, 2*len(row.HashRanges))
		for _, h := range row.HashRanges {
			pairs = append(pairs, int64(h.First), h.Count) //nolint:gosec // two's complement is the contract
		}
		a.add(attribute.Int64Slice(semconv.HashRanges, pairs), attribute.Int(semconv.FineBlockSize, p.cfg.FineBlockSize))
	}
	if len(row.Replies) > 0 {
		triples := make([]int64, 0, 3*len(row.Replies))
		for _, reply := range row.Replies {
			triples = append(triples, reply.Back, reply.At, reply.Tokens)
		}
		a.add(attribute.Int64Slice(semconv.Replies, triples))
	}
	a.when(len(r.Replies) > 0, attribute.Int64(semconv.RepliesCarried, r.Carried))
	a.when(len(r.Replies) > 0, attribute.Int64(semconv.RepliesInvented, r.Invented))
	a.text(semconv.GenAIConversationID, row.SessionID)
	a.text(semconv.Session, row.SessionID)
	a.when(row.SessionID != "", attribute.Int(semconv.Turn, r.Turn))
	a.text(semconv.Class, row.Class)
	graphAttributes(a, r)
	if !row.OTel.IsZero() {
		a.add(attribute.String(semconv.LinkTraceID, hex.EncodeToString(row.OTel.TraceID[:])))
	}
}

// graphAttributes describe what a row of a graph waited for.
func graphAttributes(a *attributes, r *measure.Record) {
	row := r.Row
	if r.After == nil {
		return
	}
	a.add(attribute.Int64Slice(semconv.WaitFor, r.After))
	if names := mooncake.EvidenceNames(row.Evidence); len(names) > 0 && len(names) == len(r.After) {
		a.add(attribute.StringSlice(semconv.WaitEvidence, names))
	}
	a.when(row.Delay.Set, attribute.Float64(semconv.Delay, row.Delay.V))
	a.when(row.ToolWait.Set, attribute.Float64(semconv.ToolWait, row.ToolWait.V))
}

// scheduleAttributes describe how the row was sent.
func scheduleAttributes(a *attributes, r *measure.Record, speedup float64) {
	seconds := func(key string, d time.Duration) attribute.KeyValue { return attribute.Float64(key, d.Seconds()) }
	skipped := r.Outcome == measure.Skipped
	a.when(r.Scheduled, seconds(semconv.ScheduleOffset, r.Offset))
	a.when(r.Scheduled, seconds(semconv.ScheduleSpread, r.Spread))
	a.when(r.Scheduled, attribute.Float64(semconv.ScheduleSpeedup, speedup))
	a.when(r.Scheduled && !skipped, seconds(semconv.ScheduleLateness, r.Lateness()))
	a.when(r.Scheduled && !skipped, attribute.String(semconv.LatenessClass, latenessClass(r.Lateness())))
	wait, ok := r.CapWait()
	a.when(ok && wait > 0 && !skipped, seconds(semconv.ScheduleCapWait, wait))
	a.count(semconv.CachePredictedTokens, r.Predicted)
	a.when(r.TooShort, attribute.Bool(semconv.PromptTooShort, true))
	a.when(r.TailCut, attribute.Bool(semconv.PromptTailCut, true))
}

// latenessClass returns the class of a lateness, by the bounds with which package judge judges the lateness of a run.
func latenessClass(late time.Duration) string {
	switch {
	case late <= 10*time.Millisecond:
		return semconv.LatenessOnTime
	case late <= 250*time.Millisecond:
		return semconv.LatenessLate
	default:
		return semconv.LatenessVeryLate
	}
}

// replyAttributes describe the reply.
func replyAttributes(a *attributes, r *measure.Record) {
	x := &r.Exchange
	a.text(semconv.GenAIResponseID, x.ResponseID)
	a.text(semconv.GenAIResponseModel, x.Model)
	if x.FinishReason != "" {
		a.add(attribute.StringSlice(semconv.GenAIResponseFinishReasons, []string{x.FinishReason}))
	}
	first, ok := r.TTFT(r.Wire())
	a.when(ok, attribute.Float64(semconv.GenAIResponseTimeToFirstChunk, first.Seconds()))
	a.count(semconv.GenAIUsageInputTokens, x.Usage.Prompt)
	a.count(semconv.GenAIUsageOutputTokens, x.Usage.Completion)
	a.count(semconv.GenAIUsageCacheReadTokens, x.Usage.Cached)
	a.count(semconv.GenAIUsageReasoningTokens, x.Usage.Reasoning)
	a.present(semconv.HTTPResponseStatusCode, x.Status)
	a.present(semconv.HTTPRequestResendCount, max(x.Attempts, 1)-1+x.Replays)
	a.present(semconv.RequestResendCount, x.Resent)
	a.when(x.WireLate, attribute.Bool(semconv.WireUnknown, true))
	a.present(semconv.ChunksCoalesced, x.Coalesced)
}
