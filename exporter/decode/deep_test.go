// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/semconv"
)

// TestDeep puts nested arrays, a million levels deep, which is a request of 10 MB, everywhere that decoding reads. A walk to their end
// would need more stack than there is, and end the process.
func TestDeep(t *testing.T) {
	td, s := one()
	holder := pcommon.NewValueEmpty()
	for v, n := holder, 0; n < 1_000_000; n++ {
		v = v.SetEmptySlice().AppendEmpty()
	}
	d := New(Config{})
	look := func(v pcommon.Value) {
		t.Helper()
		holder.MoveTo(v)
		if all, _ := decodeAll(t, d, td); len(all) != 1 {
			t.Errorf("%d records, want 1", len(all))
		}
		v.MoveTo(holder)
		if holder.Type() != pcommon.ValueTypeSlice {
			t.Fatal("the value is gone")
		}
	}
	resource := td.ResourceSpans().At(0).Resource().Attributes()
	look(resource.PutEmpty(semconv.RunID))
	resource.Clear()
	for name, begin := range map[string]func(pcommon.Map){
		"annotated": func(m pcommon.Map) { m.PutStr(semconv.Identity, semconv.IdentityText) },
		"replayed":  func(m pcommon.Map) { m.PutInt(semconv.Row, 1) },
		"raw":       func(m pcommon.Map) { m.PutStr(semconv.GenAIOperationName, "chat") },
		"other":     func(pcommon.Map) {},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{
				semconv.Identity, semconv.Row, semconv.Session, semconv.Timestamp, semconv.InputLength, semconv.OutputLength, semconv.ScheduleOffset,
				semconv.ScheduleSpread, semconv.Synthetic, semconv.Outcome, semconv.ErrorType, semconv.HashIDs, semconv.BlockSize, semconv.HashDomain,
				semconv.HashKey, semconv.Cells, semconv.CellsPrefix, semconv.CellsEnds, semconv.CellsReply, semconv.HashRanges, semconv.FineBlockSize,
				semconv.Replies, "gen_ai.output.messages", "output.value", semconv.TokenGaps, semconv.GenAIRequestModel, semconv.GenAIResponseModel,
				semconv.GenAIResponseID, semconv.GenAIUsageInputTokens, semconv.GenAIUsageOutputTokens, semconv.GenAIUsageCacheReadTokens,
				semconv.GenAIResponseTimeToFirstChunk, semconv.GenAIOperationName, semconv.GenAIInputMessages, semconv.GenAIConversationID,
				"gen_ai.response.finish_reasons", "gen_ai.system_instructions", "gen_ai.tool.definitions", "gen_ai.prompt", "gen_ai.system",
				"gen_ai.prompt.0.content", "llm.input_messages.0.message.content", "input.value", "metadata", "ai.prompt", "any",
			} {
				s.Attributes().Clear()
				begin(s.Attributes())
				look(s.Attributes().PutEmpty(key))
			}
			s.Attributes().Clear()
			begin(s.Attributes())
			for _, event := range []string{semconv.EventToken, "exception", "gen_ai.user.message", "gen_ai.choice", "gen_ai.client.inference.operation.details"} {
				for _, key := range []string{semconv.TokenIndex, "exception.type", "gen_ai.input.messages", "content", "gen_ai.event.content"} {
					s.Events().RemoveIf(func(ptrace.SpanEvent) bool { return true })
					e := s.Events().AppendEmpty()
					e.SetName(event)
					look(e.Attributes().PutEmpty(key))
				}
			}
			s.Events().RemoveIf(func(ptrace.SpanEvent) bool { return true })
		})
	}
}
