// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// raw fills in a request that was not annotated: the exporter has no key, so it cannot use the prompt or the session.
func (w *worker) raw(g *genai.Record, span ptrace.Span) {
	r := &w.inference
	r.Failed = r.Failed || g.ErrorType != ""
	if !g.UsageDoubtful {
		r.InputTokens = mooncake.Opt[int64](g.InputTokens)
		r.OutputTokens = mooncake.Opt[int64](g.OutputTokens)
		r.CachedTokens = mooncake.Opt[int64](g.CachedTokens)
		r.CacheWriteTokens = mooncake.Opt[int64](g.CacheWriteTokens)
		r.OutputEstimate = mooncake.Opt[int64](g.OutputEstimate)
		r.Exclusive = g.InputExclusive
	}
	r.Remote = g.PreviousResponseID != ""
	w.joined(span)
	r.Answered = w.modelOf(semconv.GenAIResponseModel, g.ResponseModel)
	r.Model = w.modelOf(semconv.GenAIRequestModel, g.Model())
	r.Response = journal.ResponseOf(g.ResponseID)
	if r.Class.IsZero() {
		r.Class = w.modelOf(semconv.Class, g.Class)
	}
	if !r.Priority.Set {
		r.Priority = mooncake.Opt[int64](g.Priority)
	}
	if len(g.FinishReasons) > 0 {
		r.Finish = w.finishOf(g.FinishReasons[0])
	}
	switch t := g.TimeToFirstToken; {
	case !t.Set:
	case t.V >= 0 && t.V <= maxSeconds:
		w.first(r.Start+int64(t.V*1e9), semconv.GenAIResponseTimeToFirstChunk)
	default:
		w.counts.invalid(semconv.GenAIResponseTimeToFirstChunk)
	}
}
