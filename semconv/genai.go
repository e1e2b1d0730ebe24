// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

// Attributes of the GenAI semantic conventions, v1.41, as we write them.
//
//nolint:gosec // names, not credentials
const (
	GenAIOperationName  = "gen_ai.operation.name"  // string: [OperationChat], ...
	GenAIProviderName   = "gen_ai.provider.name"   // string: "openai", ..., [ProviderOther]
	GenAIConversationID = "gen_ai.conversation.id" // string; never invented

	GenAIRequestModel       = "gen_ai.request.model"        // string
	GenAIRequestStream      = "gen_ai.request.stream"       // bool; unset means no stream
	GenAIRequestMaxTokens   = "gen_ai.request.max_tokens"   // int
	GenAIRequestChoiceCount = "gen_ai.request.choice.count" // int; set when not 1

	GenAIResponseID               = "gen_ai.response.id"                  // string
	GenAIResponseModel            = "gen_ai.response.model"               // string
	GenAIResponseFinishReasons    = "gen_ai.response.finish_reasons"      // string[], one per choice
	GenAIResponseTimeToFirstChunk = "gen_ai.response.time_to_first_chunk" // double, s; ours counts from the wire

	GenAIUsageInputTokens         = "gen_ai.usage.input_tokens"                // int; cached ones included
	GenAIUsageOutputTokens        = "gen_ai.usage.output_tokens"               // int; reasoning included
	GenAIUsageCacheReadTokens     = "gen_ai.usage.cache_read.input_tokens"     // int; part of the input
	GenAIUsageCacheCreationTokens = "gen_ai.usage.cache_creation.input_tokens" // int; part of the input
	GenAIUsageReasoningTokens     = "gen_ai.usage.reasoning.output_tokens"     // int; part of the output

	GenAITokenType = "gen_ai.token.type" // string, on metrics: [TokenTypeInput], [TokenTypeOutput]

	// Content. Read, and removed by default; never written.
	GenAIInputMessages      = "gen_ai.input.messages"      // structured, or JSON as string
	GenAIOutputMessages     = "gen_ai.output.messages"     // structured, or JSON as string
	GenAISystemInstructions = "gen_ai.system_instructions" // structured, or JSON as string
	GenAIToolDefinitions    = "gen_ai.tool.definitions"    // structured, or JSON as string
)

// Names that later revisions of the conventions use. Read, not written.
//
//nolint:gosec // names, not credentials
const (
	GenAIUsageCacheWriteTokens = "gen_ai.usage.cache_write.input_tokens" // int; was cache_creation
	GenAIPreviousResponseID    = "gen_ai.request.previous_response.id"   // string; the history lives on the server
)

// Names that earlier revisions used. Read, not written.
//
//nolint:gosec // names, not credentials
const (
	GenAISystem                = "gen_ai.system"                  // string; now the provider's name
	GenAIUsagePromptTokens     = "gen_ai.usage.prompt_tokens"     // int; now input_tokens
	GenAIUsageCompletionTokens = "gen_ai.usage.completion_tokens" // int; now output_tokens
	GenAIPrompt                = "gen_ai.prompt"                  // string, content
	GenAICompletion            = "gen_ai.completion"              // string, content
)

// Values of [GenAIOperationName] that are inference.
const (
	OperationChat            = "chat"
	OperationTextCompletion  = "text_completion"
	OperationGenerateContent = "generate_content"
)

// OperationEmbeddings is a value of [GenAIOperationName] that is not inference: nothing is generated.
const OperationEmbeddings = "embeddings"

// Values of [GenAITokenType].
const (
	TokenTypeInput  = "input"
	TokenTypeOutput = "output"
)

// ProviderOther is the value of [GenAIProviderName] for an engine without a well-known name.
const ProviderOther = "_OTHER"

// EventInferenceDetails is the log event that carries a span's attributes together with its messages. Read, not written.
const EventInferenceDetails = "gen_ai.client.inference.operation.details"
