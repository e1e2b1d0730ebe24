// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/semconv"
)

// field is a value of a record that can be read from an attribute.
type field uint8

// attribute describes the attributes from which a field is read.
type attribute struct {
	kind     NameKind
	readable func(pcommon.Value) bool // whether the field can be read from a value of this type
	names    []string                 // the first one that exists and is readable counts
}

// fields has the attributes of each field; fieldNone has none.
var fields = make([]attribute, 1)

const maxFields = 64

const fieldNone = field(0)

// define adds a field.
func define(kind NameKind, readable func(pcommon.Value) bool, names ...string) field {
	fields = append(fields, attribute{kind, readable, names})
	return field(len(fields) - 1) //nolint:gosec // below maxFields
}

// The fields. A name that ends in a * is the prefix of flattened messages.
//
// Sources: the GenAI conventions v1.26 to v1.41 and the revision after it, and the producers that dialect.go names.
var (
	fieldOperation = define(NameWord, isText, semconv.GenAIOperationName, "llm.request.type")
	fieldProvider  = define(NameFact, isText,
		semconv.GenAIProviderName, semconv.GenAISystem, "llm.provider", "llm.system", "ai.model.provider")
	fieldRequestModel = define(NameFact, isText,
		semconv.GenAIRequestModel, "llm.request.model_name", "ai.model.id", "langfuse.observation.model.name",
		"genkit:name", "target_model", "llm.request.model")
	fieldResponseModel = define(NameFact, isText,
		semconv.GenAIResponseModel, "ai.response.model", "llm.response.model_name", "llm.response.model")
	fieldAnyModel   = define(NameFact, isText, "llm.model_name")
	fieldResponseID = define(NameWord, isText,
		semconv.GenAIResponseID, "ai.response.id", "gen_ai.request.id", "llm_d.pd_proxy.request_id", "rid")
	fieldStream = define(NameNumber, isFlag,
		semconv.GenAIRequestStream, "gen_ai.request.is_stream", "gen_ai.is_streaming", "llm.is_streaming")
	fieldMaxTokens = define(NameNumber, isCount,
		semconv.GenAIRequestMaxTokens, "gen_ai.request.max_completion_tokens", "llm.request.max_tokens")
	fieldChoices  = define(NameNumber, isCount, semconv.GenAIRequestChoiceCount, "gen_ai.request.n")
	fieldPriority = define(NameNumber, isCount, "request_prio")
	fieldClass    = define(NameWord, isClass, // after those of [Options]
		"openai.request.service_tier", "gen_ai.openai.request.service_tier")

	fieldInput = define(NameNumber, isCount,
		semconv.GenAIUsageInputTokens, semconv.GenAIUsagePromptTokens, "llm.token_count.prompt", "ai.usage.inputTokens",
		"ai.usage.promptTokens", "llm.usage.prompt_tokens")
	fieldOutput = define(NameNumber, isCount,
		semconv.GenAIUsageOutputTokens, semconv.GenAIUsageCompletionTokens, "llm.token_count.completion",
		"ai.usage.outputTokens", "ai.usage.completionTokens", "llm.usage.completion_tokens")
	fieldCached = define(NameNumber, isCount,
		semconv.GenAIUsageCacheReadTokens, "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cached_tokens",
		"llm.token_count.prompt_details.cache_read", "ai.usage.cachedInputTokens",
		"ai.usage.inputTokenDetails.cacheReadTokens", "gen_ai.usage.details.cache_read_tokens")
	fieldCacheWrite = define(NameNumber, isCount,
		semconv.GenAIUsageCacheWriteTokens, semconv.GenAIUsageCacheCreationTokens,
		"gen_ai.usage.cache_creation_input_tokens", "llm.token_count.prompt_details.cache_write",
		"llm.token_count.prompt_details.cache_creation")
	fieldReasoning = define(NameNumber, isCount,
		semconv.GenAIUsageReasoningTokens, "gen_ai.usage.reasoning_tokens",
		"llm.token_count.completion_details.reasoning", "ai.usage.reasoningTokens",
		"ai.usage.outputTokenDetails.reasoningTokens")
	fieldFinish = define(NameReason, isFilled,
		semconv.GenAIResponseFinishReasons, "ai.response.finishReason", "llm.finish_reason")
	fieldError = define(NameReason, isText, semconv.ErrorType)
	fieldTTFT  = define(NameNumber, isNumber,
		semconv.GenAIResponseTimeToFirstChunk, semconv.ClientTimeToFirstChunk.Name,
		semconv.ClientTimeToFirstChunk.Latest, "gen_ai.latency.time_to_first_token",
		"agw.ai.time_to_first_token", "llm_d.pd_proxy.true_ttft_ms", "ai.response.msToFirstChunk",
		"ai.stream.msToFirstChunk")
	fieldPrevious = define(NameWord, isText, semconv.GenAIPreviousResponseID)
	fieldSession  = define(NameFact, isSession, // after those of [Options]
		semconv.GenAIConversationID, "session.id", "langfuse.session.id", "traceloop.association.properties.session_id",
		"ai.telemetry.metadata.sessionId", "ai.settings.context.sessionId", "metadata.session_id",
		"langfuse.observation.metadata.langfuse_session_id", "langfuse.trace.metadata.langfuse_session_id",
		"gen_ai.thread.id", "spring.ai.chat.client.conversation.id")

	// The kind of a span.
	fieldSpanKind        = define(NameWord, isText, "openinference.span.kind")
	fieldObservation     = define(NameWord, isText, "langfuse.observation.type")
	fieldEntity          = define(NameWord, isText, "traceloop.span.kind")
	fieldVercelOperation = define(NameFact, isVercelOperation, "ai.operationId", "operation.name")
	fieldGenkitSubtype   = define(NameWord, isText, "genkit:metadata:subtype")
	fieldToolName        = define(NameFact, isText, "gen_ai.tool.name", "ai.toolCall.name", "tool.name")
	fieldAgentName       = define(NameFact, isText, "gen_ai.agent.name", pydanticAgent)
	fieldToolCall        = define(NameWord, isText, "gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id", "tool.id")
	fieldRID             = define(NameWord, isText, "rid")

	// Facts that depend on others, or on a document.
	fieldLevel           = define(NameWord, isText, "langfuse.observation.level")
	fieldHTTPStatus      = define(NameNumber, isCount, semconv.HTTPResponseStatusCode)
	fieldCompletionStart = define(NameFact, isText, "langfuse.observation.completion_start_time")
	fieldServerTTFT      = define(NameNumber, isNumber, "gen_ai.server.time_to_first_token")
	fieldTotalTime       = define(NameWord, isText, "total_time")
	fieldInferenceTime   = define(NameWord, isText, "inference_time")
	fieldTimePerToken    = define(NameWord, isText, "time_per_token")
	fieldInvocation      = define(NameContent, isFilled, "llm.invocation_parameters", "langfuse.observation.model.parameters")
	fieldUsageDetails    = define(NameContent, isFilled, "langfuse.observation.usage_details")
	fieldGenkitInput     = define(NameContent, isFilled, "genkit:input")
	fieldGenkitOutput    = define(NameContent, isFilled, "genkit:output")
	fieldOutputValue     = define(NameContent, isFilled, "output.value")
	fieldMimeType        = define(NameFact, isText, "input.mime_type")

	// Content.
	fieldSystem  = define(NameContent, isFilled, semconv.GenAISystemInstructions)
	fieldTools   = define(NameContent, isFilled, semconv.GenAIToolDefinitions, "ai.prompt.tools")
	fieldContent = define(NameContent, isFilled,
		semconv.GenAIInputMessages, "input.value", "llm.input_messages.*", "ai.prompt.messages",
		"langfuse.observation.input", "genkit:input", "gen_ai.prompt.*", "llm.prompts.*",
		"gcp.vertex.agent.llm_request", "request_data", "pydantic_ai.all_messages", contentEvents, "ai.prompt",
		semconv.GenAIPrompt)

	// The reply.
	fieldReply = define(NameContent, isFilled,
		semconv.GenAIOutputMessages, "output.value", "llm.output_messages.*", "langfuse.observation.output",
		"genkit:output", "gen_ai.completion.*", "llm.completions.*", "gcp.vertex.agent.llm_response",
		"response_data", semconv.GenAICompletion)
	fieldReplyText      = define(NameContent, isFilled, "ai.response.text", "ai.result.text")
	fieldReplyCalls     = define(NameContent, isFilled, "ai.response.toolCalls", "ai.result.toolCalls")
	fieldReplyReasoning = define(NameContent, isFilled, "ai.response.reasoning")
)

const contentEvents = "events" // pydantic-ai's: messages and replies

// pydanticAgent is an attribute of the span of an agent's run in pydantic-ai's first revisions. That span has the usage of all its requests
// and no operation.
const pydanticAgent = "agent_name"

// inMilliseconds are the attributes of fieldTTFT that are not in seconds.
var inMilliseconds = map[string]bool{
	"llm_d.pd_proxy.true_ttft_ms": true, "ai.response.msToFirstChunk": true, "ai.stream.msToFirstChunk": true,
}

// slot is a field of an attribute, with the attribute's position among the field's names.
type slot struct {
	field field
	rank  uint8
}

// slots returns the index in which a reader looks up attributes, including those of Options. One attribute may have two fields.
func slots(named map[field][]string) map[string][]slot {
	index := map[string][]slot{}
	for f := range fields {
		names := fields[f].names
		if own := named[field(f)]; own != nil {
			names = own
		}
		for rank, name := range names {
			index[name] = append(index[name], slot{field(f), uint8(rank)})
		}
	}
	return index
}
