// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import "github.com/moonloop/moonloop/semconv"

// field is a fact of a record that an attribute may hold.
type field uint8

const (
	fieldNone field = iota
	fieldOperation
	fieldProvider
	fieldRequestModel
	fieldResponseModel
	fieldAnyModel // the response's where known, else the request's
	fieldResponseID
	fieldStream
	fieldMaxTokens
	fieldChoices
	fieldPriority
	fieldInput
	fieldOutput
	fieldCached
	fieldCacheWrite
	fieldReasoning
	fieldFinish
	fieldError
	fieldTTFT
	fieldPrevious
	fieldSession

	// What a span is.
	fieldSpanKind        // openinference.span.kind
	fieldObservation     // langfuse.observation.type
	fieldEntity          // traceloop.span.kind
	fieldVercelOperation // ai.operationId
	fieldGenkitSubtype
	fieldToolName
	fieldAgentName
	fieldRID

	// Facts that need others, or a document.
	fieldLevel
	fieldHTTPStatus
	fieldCompletionStart
	fieldServerTTFT
	fieldTotalTime
	fieldInferenceTime
	fieldTimePerToken
	fieldInvocation
	fieldUsageDetails
	fieldGenkitInput
	fieldGenkitOutput
	fieldOutputValue
	fieldMimeType

	// Content.
	fieldSystem
	fieldTools
	fieldContent

	// The reply.
	fieldReply
	fieldReplyText
	fieldReplyCalls
	fieldReplyReasoning

	fieldCount
)

// fieldNames lists, for each field, the attributes that hold it. The first that is there and readable counts.
//
// Sources: the GenAI conventions v1.26 to v1.41 and the revision after it, and the producers of package doc.
var fieldNames = [fieldCount][]string{
	fieldOperation: {semconv.GenAIOperationName, "llm.request.type"},
	fieldProvider:  {semconv.GenAIProviderName, semconv.GenAISystem, "llm.provider", "llm.system", "ai.model.provider"},
	fieldRequestModel: {
		semconv.GenAIRequestModel, "llm.request.model_name", "ai.model.id", "langfuse.observation.model.name",
		"genkit:name", "target_model", "llm.request.model",
	},
	fieldResponseModel: {semconv.GenAIResponseModel, "ai.response.model", "llm.response.model_name", "llm.response.model"},
	fieldAnyModel:      {"llm.model_name"},
	fieldResponseID: {
		semconv.GenAIResponseID, "ai.response.id", "gen_ai.request.id", "llm_d.pd_proxy.request_id", "rid",
	},
	fieldStream:    {semconv.GenAIRequestStream, "gen_ai.request.is_stream", "gen_ai.is_streaming", "llm.is_streaming"},
	fieldMaxTokens: {semconv.GenAIRequestMaxTokens, "gen_ai.request.max_completion_tokens", "llm.request.max_tokens"},
	fieldChoices:   {semconv.GenAIRequestChoiceCount, "gen_ai.request.n"},
	fieldPriority:  {"request_prio"},

	fieldInput: {
		semconv.GenAIUsageInputTokens, semconv.GenAIUsagePromptTokens, "llm.token_count.prompt", "ai.usage.inputTokens",
		"ai.usage.promptTokens", "llm.usage.prompt_tokens",
	},
	fieldOutput: {
		semconv.GenAIUsageOutputTokens, semconv.GenAIUsageCompletionTokens, "llm.token_count.completion",
		"ai.usage.outputTokens", "ai.usage.completionTokens", "llm.usage.completion_tokens",
	},
	fieldCached: {
		semconv.GenAIUsageCacheReadTokens, "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cached_tokens",
		"llm.token_count.prompt_details.cache_read", "ai.usage.cachedInputTokens",
		"ai.usage.inputTokenDetails.cacheReadTokens", "gen_ai.usage.details.cache_read_tokens",
	},
	fieldCacheWrite: {
		semconv.GenAIUsageCacheWriteTokens, semconv.GenAIUsageCacheCreationTokens,
		"gen_ai.usage.cache_creation_input_tokens", "llm.token_count.prompt_details.cache_write",
		"llm.token_count.prompt_details.cache_creation",
	},
	fieldReasoning: {
		semconv.GenAIUsageReasoningTokens, "gen_ai.usage.reasoning_tokens",
		"llm.token_count.completion_details.reasoning", "ai.usage.reasoningTokens",
		"ai.usage.outputTokenDetails.reasoningTokens",
	},
	fieldFinish: {semconv.GenAIResponseFinishReasons, "ai.response.finishReason", "llm.finish_reason"},
	fieldError:  {semconv.ErrorType},
	fieldTTFT: {
		semconv.GenAIResponseTimeToFirstChunk, semconv.ClientTimeToFirstChunk.Name,
		semconv.ClientTimeToFirstChunk.Latest, "gen_ai.latency.time_to_first_token",
		"agw.ai.time_to_first_token", "llm_d.pd_proxy.true_ttft_ms", "ai.response.msToFirstChunk",
		"ai.stream.msToFirstChunk",
	},
	fieldPrevious: {semconv.GenAIPreviousResponseID},

	fieldSpanKind:        {"openinference.span.kind"},
	fieldObservation:     {"langfuse.observation.type"},
	fieldEntity:          {"traceloop.span.kind"},
	fieldVercelOperation: {"ai.operationId", "operation.name"},
	fieldGenkitSubtype:   {"genkit:metadata:subtype"},
	fieldToolName:        {"gen_ai.tool.name", "ai.toolCall.name", "tool.name"},
	fieldAgentName:       {"gen_ai.agent.name", pydanticAgent},
	fieldRID:             {"rid"},

	fieldLevel:           {"langfuse.observation.level"},
	fieldHTTPStatus:      {semconv.HTTPResponseStatusCode},
	fieldCompletionStart: {"langfuse.observation.completion_start_time"},
	fieldServerTTFT:      {"gen_ai.server.time_to_first_token"},
	fieldTotalTime:       {"total_time"},
	fieldInferenceTime:   {"inference_time"},
	fieldTimePerToken:    {"time_per_token"},
	fieldInvocation:      {"llm.invocation_parameters", "langfuse.observation.model.parameters"},
	fieldUsageDetails:    {"langfuse.observation.usage_details"},
	fieldGenkitInput:     {"genkit:input"},
	fieldGenkitOutput:    {"genkit:output"},
	fieldOutputValue:     {"output.value"},
	fieldMimeType:        {"input.mime_type"},

	fieldSystem: {semconv.GenAISystemInstructions},
	fieldTools:  {semconv.GenAIToolDefinitions, "ai.prompt.tools"},
	fieldContent: {
		semconv.GenAIInputMessages, "input.value", flatContent[0].prefix, "ai.prompt.messages",
		"langfuse.observation.input", "genkit:input", flatContent[1].prefix, flatContent[2].prefix,
		"gcp.vertex.agent.llm_request", "request_data", "pydantic_ai.all_messages", contentEvents, "ai.prompt",
		semconv.GenAIPrompt,
	},

	fieldReply: {
		semconv.GenAIOutputMessages, "output.value", flatReplies[0], "langfuse.observation.output", "genkit:output", flatReplies[1], flatReplies[2],
		"gcp.vertex.agent.llm_response", "response_data", semconv.GenAICompletion,
	},
	fieldReplyText:      {"ai.response.text", "ai.result.text"},
	fieldReplyCalls:     {"ai.response.toolCalls", "ai.result.toolCalls"},
	fieldReplyReasoning: {"ai.response.reasoning"},
}

const contentEvents = "events" // pydantic-ai's: messages and replies

// sessionNames are the attributes that hold a session id, best first, after those of [Options].
var sessionNames = []string{
	semconv.GenAIConversationID, "session.id", "langfuse.session.id", "traceloop.association.properties.session_id",
	"ai.telemetry.metadata.sessionId", "ai.settings.context.sessionId", "metadata.session_id",
	"langfuse.observation.metadata.langfuse_session_id", "langfuse.trace.metadata.langfuse_session_id",
	"gen_ai.thread.id", "spring.ai.chat.client.conversation.id",
}

// pydanticAgent is on the span of an agent's run in pydantic-ai's first revisions, which have the usage of all its requests
// and no operation.
const pydanticAgent = "agent_name"

// flatContent lists the prefixes of flattened prompts, and of the tools that go with them.
var flatContent = []struct{ prefix, tools string }{
	{"llm.input_messages.", "llm.tools."},
	{"gen_ai.prompt.", "llm.request.functions."},
	{"llm.prompts.", "llm.request.functions."},
}

// flatReplies lists the prefixes of flattened replies.
var flatReplies = [...]string{"llm.output_messages.", "gen_ai.completion.", "llm.completions."}

// flatPrefix is the prefix of flattened messages, and the bit by which a scan notes that there are some.
type flatPrefix struct {
	prefix string
	field  field
	bit    uint8
}

// The bits of those that stand in for a document.
const (
	flatInput  = 1 << 0 // flatContent[0]
	flatOutput = 1 << 3 // flatReplies[0]
)

// flatByByte holds all of them by their first byte: most attributes of a trace begin with none of these.
var flatByByte = func() (index [256][]flatPrefix) {
	put := func(prefix string, f field, bit int) {
		index[prefix[0]] = append(index[prefix[0]], flatPrefix{prefix, f, 1 << bit})
	}
	for i := range flatContent {
		put(flatContent[i].prefix, fieldContent, i)
	}
	for i, prefix := range flatReplies {
		put(prefix, fieldReply, 3+i)
	}
	return index
}()

// milliseconds are the attributes of fieldTTFT that are not in seconds.
var milliseconds = map[string]bool{
	"llm_d.pd_proxy.true_ttft_ms": true, "ai.response.msToFirstChunk": true, "ai.stream.msToFirstChunk": true,
}

// slot is a field that an attribute holds, with its place among the field's names.
type slot struct {
	field field
	rank  uint8
}

// slots returns the index of names that a reader looks attributes up in. One attribute may hold two fields.
func slots(sessions []string) map[string][]slot {
	index := map[string][]slot{}
	put := func(f field, names []string) {
		for rank, name := range names {
			index[name] = append(index[name], slot{f, uint8(rank)})
		}
	}
	for f, names := range fieldNames {
		put(field(f), names)
	}
	put(fieldSession, sessions)
	return index
}
