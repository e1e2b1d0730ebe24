// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// annotate writes the values of a record to its inference span, so that later readers need no dialects: the identity of the prompt, and the
// standard attributes that are missing or have the wrong type.
func (w *worker) annotate(rec *genai.Record, id identity, attributes pcommon.Map) {
	count(&w.counts.Identities, id.kind, 1)
	w.putIdentity(id, attributes)
	if id.kind == semconv.IdentityText || id.kind == semconv.IdentityNone { // for none, log records may have the prompt's text
		putString(attributes, semconv.PromptOrder, w.config.order(rec))
	}
	putString(attributes, semconv.GenAIOperationName, rec.Operation)
	putString(attributes, semconv.GenAIProviderName, rec.Provider)
	putString(attributes, semconv.GenAIRequestModel, rec.RequestModel)
	putString(attributes, semconv.GenAIResponseModel, rec.ResponseModel)
	putString(attributes, semconv.GenAIResponseID, rec.ResponseID)
	putString(attributes, semconv.ErrorType, rec.ErrorType)
	if rec.TimeToFirstToken.Set {
		attributes.PutDouble(semconv.GenAIResponseTimeToFirstChunk, rec.TimeToFirstToken.V)
	}
	putReasons(attributes, rec.FinishReasons)
	if rec.PreviousResponseID != "" {
		attributes.PutBool(semconv.PromptRemote, true) // even if a log record has text
	}
	w.putUsage(rec, attributes)
}

// putUsage writes the server's counts. Counts that the producer invented are removed.
func (w *worker) putUsage(rec *genai.Record, attributes pcommon.Map) {
	if rec.UsageDoubtful {
		w.counts.Drop(ReasonUsageDoubtful, 1)
		w.counts.WithoutTokens++
		attributes.RemoveIf(func(name string, _ pcommon.Value) bool {
			return strings.HasPrefix(name, "gen_ai.usage.") || strings.HasPrefix(name, "llm.usage.") ||
				strings.HasPrefix(name, "llm.token_count.") || strings.HasPrefix(name, "ai.usage.")
		})
		return
	}
	if !rec.InputTokens.Set || !rec.OutputTokens.Set {
		w.counts.WithoutTokens++
	}
	if rec.OutputEstimate.Set {
		w.counts.Drop(ReasonUsageEstimate, 1)
		attributes.PutInt(semconv.OutputEstimate, rec.OutputEstimate.V)
	}
	if rec.UsageExclusive {
		w.counts.Completed++
	}
	if rec.InputExclusive {
		attributes.PutBool(semconv.InputExclusive, true)
	}
	putTokens(attributes, semconv.GenAIUsageInputTokens, rec.InputTokens)
	putTokens(attributes, semconv.GenAIUsageOutputTokens, rec.OutputTokens)
	putTokens(attributes, semconv.GenAIUsageCacheReadTokens, rec.CachedTokens)
	putTokens(attributes, semconv.GenAIUsageCacheWriteTokens, rec.CacheWriteTokens)
	putTokens(attributes, semconv.GenAIUsageReasoningTokens, rec.ReasoningTokens)
}

func putString(attributes pcommon.Map, name, value string) {
	if value != "" {
		attributes.PutStr(name, value)
	}
}

func putTokens(attributes pcommon.Map, name string, n genai.Opt[int64]) {
	if n.Set {
		attributes.PutInt(name, n.V)
	}
}

func putReasons(attributes pcommon.Map, reasons []string) {
	if len(reasons) == 0 {
		return
	}
	if v, ok := attributes.Get(semconv.GenAIResponseFinishReasons); ok && v.Type() == pcommon.ValueTypeSlice {
		return
	}
	list := attributes.PutEmptySlice(semconv.GenAIResponseFinishReasons)
	for _, reason := range reasons {
		list.AppendEmpty().SetStr(reason)
	}
}
