// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"iter"

	"github.com/moonloop/moonloop/semconv"
)

// NameKind says what the attributes of a name hold.
type NameKind uint8

// The kinds of names.
const (
	// NameFact is a short fact that may have spaces: a model, an agent, a session.
	NameFact NameKind = iota + 1
	// NameWord is a fact that is one word, by [IsWord]: an id, a type, a hint at what the span is.
	NameWord
	// NameReason is a word that says how something ended: the type of an error, a finish reason.
	NameReason
	// NameNumber is a number or a flag, as a text in some dialects.
	NameNumber
	// NameContent is text of prompts, replies, tools or errors, or a document that may hold such text.
	NameContent
)

// Names visits the attribute names that the known dialects use, each once, and facts of all kinds first. A name that
// ends in * stands for all that begin so and are not there themselves; one that begins with *. stands for all that end
// so and are in no other way there.
func Names() iter.Seq2[string, NameKind] {
	return func(yield func(string, NameKind) bool) {
		seen := map[string]bool{}
		visit := func(kind NameKind, names ...string) bool {
			for _, name := range names {
				if !seen[name] {
					seen[name] = true
					if !yield(name, kind) {
						return false
					}
				}
			}
			return true
		}
		for f, names := range fieldNames {
			if kind := fieldKind(field(f)); kind != NameContent && !visit(kind, names...) {
				return
			}
		}
		if !visit(NameFact, sessionNames...) || !visit(NameFact, factNames...) || !visit(NameWord, wordNames...) {
			return
		}
		for _, flat := range flatContent {
			if !visit(NameContent, flat.prefix+"*", flat.tools+"*") {
				return
			}
			seen[flat.prefix] = true // stands among the names of fieldContent
		}
		for _, prefix := range flatReplies {
			if !visit(NameContent, prefix+"*") {
				return
			}
			seen[prefix] = true // stands among the names of fieldReply
		}
		for f, names := range fieldNames {
			if fieldKind(field(f)) == NameContent && !visit(NameContent, names...) {
				return
			}
		}
		if !visit(NameContent, contentNames...) {
			return
		}
		for _, word := range contentWords {
			if !visit(NameContent, word, "*."+word) {
				return
			}
		}
	}
}

// fieldKind says what the attributes of a field hold. Content are also documents with text in them.
func fieldKind(f field) NameKind {
	switch f {
	case fieldContent, fieldSystem, fieldTools, fieldInvocation, fieldUsageDetails, fieldGenkitInput,
		fieldGenkitOutput, fieldOutputValue, fieldReply, fieldReplyText, fieldReplyCalls, fieldReplyReasoning:
		return NameContent
	case fieldFinish, fieldError:
		return NameReason
	case fieldStream, fieldMaxTokens, fieldChoices, fieldPriority, fieldInput, fieldOutput, fieldCached, fieldCacheWrite,
		fieldReasoning, fieldTTFT, fieldHTTPStatus, fieldServerTTFT:
		return NameNumber
	case fieldOperation, fieldResponseID, fieldPrevious, fieldSpanKind, fieldObservation, fieldEntity, fieldGenkitSubtype,
		fieldRID, fieldLevel, fieldTotalTime, fieldInferenceTime, fieldTimePerToken:
		return NameWord
	default:
		return NameFact
	}
}

// factNames are facts beyond those of a record: they say what a span is and to whom it belongs.
var factNames = []string{
	"event.name", "event_name", // of log records
	"gen_ai.agent.id", "gen_ai.agent.version", "gen_ai.data_source.id", "gen_ai.prompt.name", "gen_ai.prompt.version",
	"gen_ai.request.encoding_formats", "gen_ai.request.user", "gen_ai.user", "llm.user", "user.id", "langfuse.user.id",
	"traceloop.association.properties.user_id", "ai.telemetry.metadata.userId", "ai.settings.context.userId",
	"embedding.model_name", "reranker.model_name", "output.mime_type",
	"traceloop.workflow.name", "traceloop.entity.name", "traceloop.entity.path", "traceloop.entity.version",
	"ai.telemetry.functionId", "resource.name",
	"langfuse.environment", "langfuse.release", "langfuse.version",
	"genkit:path", "genkit:metadata:flow:name", "module", "llm_d.epp.pod",
}

// wordNames are those of them that are a word.
var wordNames = []string{
	"schema", "event_type", "endpoint", "payload_drop_reason", // of log records
	"gen_ai.output.type", semconv.GenAITokenType, "gen_ai.request.reasoning.level", "gen_ai.request.reasoning_effort",
	"gen_ai.tool.call.id", "gen_ai.tool.type", "gen_ai.operation.id", "tool_call.id", "tool.id", "ai.toolCall.id",
	"openai.api.type", "openai.request.service_tier", "openai.response.service_tier",
	"openai.response.system_fingerprint", "gen_ai.openai.request.service_tier",
	"gen_ai.openai.response.service_tier", "gen_ai.openai.response.system_fingerprint",
	"aws.bedrock.guardrail.id", "aws.bedrock.knowledge_base.id", "aws.request_id", "azure.resource_provider.namespace",
	"ai.response.timestamp", "genkit:type", "genkit:state", "x_request_id",
}

// contentNames are the names of text beyond the prompts that a record is read from: replies, tools, retrieved
// documents, errors and copies of requests.
var contentNames = []string{
	// The GenAI conventions, all revisions.
	"gen_ai.input.*", "gen_ai.output.messages*", "gen_ai.system_instructions*", semconv.GenAICompletion, "gen_ai.completion.*",
	"gen_ai.event.content", "gen_ai.content.*", "gen_ai.tool.call.arguments*", "gen_ai.tool.call.result*",
	"gen_ai.tool.description", "gen_ai.tool.definitions*", "gen_ai.tool.message", "gen_ai.agent.description",
	"gen_ai.evaluation.explanation", "gen_ai.retrieval.*", "gen_ai.memory.*", "gen_ai.request.stop_sequences",
	"gen_ai.choice", "gen_ai.response.text",
	// OpenInference.
	"input.value*", "output.value*", "llm.output_messages.*", "llm.choices.*", "llm.prompt_template.*", "llm.function_call",
	"llm.tools", "retrieval.documents.*", "reranker.*", "embedding.text", "embedding.embeddings.*", "tool.description",
	"tool.parameters", "tool.json_schema", "tool_call.function.*", "metadata",
	// Traceloop, and what it wrote before the conventions.
	"traceloop.entity.input", "traceloop.entity.output", "traceloop.prompt.*", "traceloop.association.properties.*",
	"llm.prompts", "llm.completions*", "llm.request.functions", "llm.headers",
	// Vercel's AI SDK.
	"ai.prompt.*", "ai.response.text", "ai.response.object", "ai.response.reasoning", "ai.response.toolCalls",
	"ai.response.files", "ai.response.providerMetadata", "ai.result.*", "ai.toolCall.args", "ai.toolCall.result",
	"ai.schema*", "ai.value", "ai.values", "ai.embedding", "ai.embeddings", "ai.documents", "ai.request.headers.*",
	"ai.telemetry.metadata.*", "ai.settings.context.*",
	// Langfuse.
	"langfuse.observation.output", "langfuse.observation.metadata*", "langfuse.observation.status_message",
	"langfuse.trace.input", "langfuse.trace.output", "langfuse.trace.metadata*", "langfuse.trace.name",
	"langfuse.trace.tags",
	// Genkit, LiteLLM, logfire, pydantic, Google's kit, LiveKit, MLflow, Haystack, CrewAI, LangSmith, TGI, Dynamo.
	"genkit:metadata:context", "hidden_params", "response_data", "pydantic_ai.*", "all_messages_events", "final_result",
	"tool_arguments", "tool_response", "model_request_parameters", "logfire.msg", "gcp.vertex.agent.*",
	"lk.user_input", "lk.user_transcript", "lk.instructions", "lk.chat_ctx", "lk.response.*", "lk.function_tool.*",
	"lk.input_text", "mlflow.spanInputs", "mlflow.spanOutputs", "haystack.component.input", "haystack.component.output",
	"haystack.pipeline.input_data", "haystack.pipeline.output_data", "crewai.*", "crew_tasks", "crew_agents",
	"crew_inputs", "langsmith.metadata.*", "payload",
	// Braintrust, Spring AI, Datadog, clients and servers of tools.
	"braintrust.*", "spring.ai.chat.client.*", "db.vector.query.*", "_ml_obs.*", "mcp.request.argument*", "mcp.result*",
	"mcp.response.value", "tool.result", "tool.results",
	// Names that frameworks without a convention use.
	"prompt.*", "user.message", "system.message", "assistant.message", "ai.message", "bot.message", "chat.message",
	"message.contents.*", "tool_calls",
}

// contentWords are what frameworks without a convention call a text, alone or behind the last dot of a name: AgentOps'
// agentops.entity.input, a database's db.redis.args.
var contentWords = []string{
	"prompt", "prompts", "system_prompt", "user_prompt", "prompt_text", "completion", "completions", "completion_text",
	"messages", "chat_history", "conversation_history", "content", "contents",
	"input", "inputs", "input_text", "input_value", "output", "outputs", "output_text", "output_value",
	"question", "questions", "answer", "answers", "query", "query_text", "utterance", "transcript", "instructions",
	"user_input", "user_query", "user_question", "user_message", "system_message", "assistant_message",
	"ai_response", "llm_response", "llm_request", "model_response", "model_output", "final_answer", "final_output",
	"arguments", "args", "kwargs", "function_args", "function_arguments", "function_result",
	"tool_input", "tool_output", "tool_args", "tool_arguments", "tool_result", "tool_response",
	"request_text", "response_text", "request_body", "response_body", "request_payload", "response_payload",
}
