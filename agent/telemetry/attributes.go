// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/semconv"
)

// baseAttributes are those that all requests of a run share, on spans and metrics; each has its model beside them.
func baseAttributes(c *Config) []attribute.KeyValue {
	kvs := []attribute.KeyValue{
		attribute.String(semconv.GenAIOperationName, c.Operation),
		attribute.String(semconv.GenAIProviderName, c.Provider),
	}
	if c.ServerAddress != "" {
		kvs = append(kvs, attribute.String(semconv.ServerAddress, c.ServerAddress))
	}
	if c.ServerPort != 0 {
		kvs = append(kvs, attribute.Int(semconv.ServerPort, c.ServerPort))
	}
	return kvs
}

// attributes collects those of one request span.
type attributes []attribute.KeyValue

func (a *attributes) add(kvs ...attribute.KeyValue) { *a = append(*a, kvs...) }

// flag adds a bool that is absent when false.
func (a *attributes) flag(key string, v bool) {
	if v {
		a.add(attribute.Bool(key, true))
	}
}

// text adds a string that is absent when empty.
func (a *attributes) text(key, v string) {
	if v != "" {
		a.add(attribute.String(key, v))
	}
}

// count adds a number that is absent when unknown.
func (a *attributes) count(key string, n int64) {
	if n > send.Unknown {
		a.add(attribute.Int64(key, n))
	}
}

func (a *attributes) seconds(key string, d time.Duration) { a.add(attribute.Float64(key, d.Seconds())) }

// requestAttributes are the attributes of a request's span, token events aside.
func (p *Pipeline) requestAttributes(r *measure.Record) attributes {
	a := make(attributes, 0, 48)
	a.add(p.base...)
	a.add(attribute.String(semconv.GenAIRequestModel, or(r.Model, p.cfg.Model)))
	p.rowAttributes(&a, r)
	scheduleAttributes(&a, r, p.cfg.Speedup)
	a.add(attribute.String(semconv.Outcome, r.Outcome.String()))
	switch r.Outcome {
	case measure.Served:
	case measure.Failed, measure.Cancelled:
		a.add(attribute.String(semconv.ErrorType, or(r.Reason, semconv.ErrorOther)))
	case measure.Skipped:
		a.text(semconv.OutcomeReason, r.Reason)
	}
	a.flag(semconv.GenAIRequestStream, r.Stream)
	if r.OutputTokensAsked > 0 {
		a.count(semconv.GenAIRequestMaxTokens, r.OutputTokensAsked)
	}
	if r.Sent {
		replyAttributes(&a, r)
	}
	return a
}

// rowAttributes say which row the request is.
func (p *Pipeline) rowAttributes(a *attributes, r *measure.Record) {
	a.count(semconv.Row, r.Index)
	row := r.Row
	if row == nil {
		return
	}
	if row.Timestamp.Set {
		a.add(attribute.Float64(semconv.Timestamp, row.Timestamp.V*p.cfg.TimestampScale))
	}
	if row.InputLength.Set {
		a.add(attribute.Int64(semconv.InputLength, row.InputLength.V))
	}
	if row.OutputLength.Set {
		a.add(attribute.Int64(semconv.OutputLength, row.OutputLength.V))
	}
	if row.HashIDs != nil {
		a.add(
			attribute.Int64Slice(semconv.HashIDs, signed(row.HashIDs)),
			attribute.Int(semconv.BlockSize, p.cfg.BlockSize),
			attribute.String(semconv.Identity, p.cfg.Identity),
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
	if len(r.Replies) > 0 {
		a.add(attribute.Int64(semconv.RepliesCarried, r.Carried), attribute.Int64(semconv.RepliesInvented, r.Invented))
	}
	if row.SessionID != "" {
		a.add(
			attribute.String(semconv.GenAIConversationID, row.SessionID),
			attribute.String(semconv.Session, row.SessionID),
			attribute.Int(semconv.Turn, r.Turn),
		)
	}
}

// signed reinterprets ids for OTLP, which has no unsigned integers.
func signed(ids []uint64) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id) //nolint:gosec // two's complement is the contract
	}
	return out
}

// scheduleAttributes say how the row was sent.
func scheduleAttributes(a *attributes, r *measure.Record, speedup float64) {
	if r.Scheduled {
		a.seconds(semconv.ScheduleOffset, r.Offset)
		a.seconds(semconv.ScheduleSpread, r.Spread)
		a.add(attribute.Float64(semconv.ScheduleSpeedup, speedup))
		if r.Outcome != measure.Skipped {
			a.seconds(semconv.ScheduleLateness, r.Lateness())
		}
	}
	if wait, ok := r.CapWait(); ok && wait > 0 && r.Outcome != measure.Skipped {
		a.seconds(semconv.ScheduleCapWait, wait)
	}
	a.count(semconv.CachePredictedTokens, r.Predicted)
	a.flag(semconv.PromptTooShort, r.TooShort)
	a.flag(semconv.PromptTailCut, r.TailCut)
}

// replyAttributes say what came back.
func replyAttributes(a *attributes, r *measure.Record) {
	x := &r.Exchange
	a.text(semconv.GenAIResponseID, x.ResponseID)
	a.text(semconv.GenAIResponseModel, x.Model)
	if x.FinishReason != "" {
		a.add(attribute.StringSlice(semconv.GenAIResponseFinishReasons, []string{x.FinishReason}))
	}
	if ttfc, ok := r.TTFT(r.Wire()); ok {
		a.seconds(semconv.GenAIResponseTimeToFirstChunk, ttfc)
	}
	a.count(semconv.GenAIUsageInputTokens, x.Usage.Prompt)
	a.count(semconv.GenAIUsageOutputTokens, x.Usage.Completion)
	a.count(semconv.GenAIUsageCacheReadTokens, x.Usage.Cached)
	a.count(semconv.GenAIUsageReasoningTokens, x.Usage.Reasoning)
	if x.Status != 0 {
		a.add(attribute.Int(semconv.HTTPResponseStatusCode, x.Status))
	}
	if n := max(x.Attempts, 1) - 1 + x.Replays; n > 0 {
		a.add(attribute.Int(semconv.HTTPRequestResendCount, n))
	}
	if x.Resent > 0 {
		a.add(attribute.Int(semconv.RequestResendCount, x.Resent))
	}
	a.flag(semconv.WireUnknown, x.WireLate)
	if x.Coalesced > 0 {
		a.add(attribute.Int(semconv.ChunksCoalesced, x.Coalesced))
	}
}
