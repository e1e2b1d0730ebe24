// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import "iter"

// NameKind says what the attributes of a name hold.
type NameKind uint8

// The kinds of names.
const (
	// NameFact is a short fact that a [Reader] reads: an id, a model, a reason, a count, a hint at what the span is.
	NameFact NameKind = iota + 1
	// NameContent is text of prompts, replies, tools or errors, or a document that may hold such text.
	NameContent
)

// Names visits the attribute names that the known dialects use, each once, and facts first. A name that ends in *
// stands for all that begin so and are not there themselves.
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
			if !contentField(field(f)) && !visit(NameFact, names...) {
				return
			}
		}
		if !visit(NameFact, sessionNames...) || !visit(NameFact, factNames...) {
			return
		}
		for _, flat := range flatContent {
			if !visit(NameContent, flat.prefix+"*", flat.tools+"*") {
				return
			}
			seen[flat.prefix] = true // stands among the names of fieldContent
		}
		for f, names := range fieldNames {
			if contentField(field(f)) && !visit(NameContent, names...) {
				return
			}
		}
		visit(NameContent, contentNames...)
	}
}

// contentField reports whether a field's attributes hold text, or documents with text in them.
func contentField(f field) bool {
	switch f {
	case fieldContent, fieldSystem, fieldTools, fieldInvocation, fieldUsageDetails, fieldGenkitInput,
		fieldGenkitOutput, fieldOutputValue:
		return true
	default:
		return false
	}
}

// factNames are facts beyond those of a record: they say what a span is and to whom it belongs.
var factNames = []string{
	"schema", "event_type", "event.name", "event_name", "endpoint", "payload_drop_reason", // of log records
	"gen_ai.agent.id", "gen_ai.agent.version", "gen_ai.data_source.id", "gen_ai.output.type", "gen_ai.token.type",
	"gen_ai.prompt.name", "gen_ai.prompt.version", "gen_ai.request.encoding_formats",
	"gen_ai.request.reasoning.level", "gen_ai.request.reasoning_effort", "gen_ai.tool.call.id", "gen_ai.tool.type",
	"gen_ai.operation.id", "gen_ai.request.user", "gen_ai.user", "llm.user", "user.id", "langfuse.user.id",
	"traceloop.association.properties.user_id", "ai.telemetry.metadata.userId", "ai.settings.context.userId",
	"openai.api.type", "openai.request.service_tier", "openai.response.service_tier",
	"openai.response.system_fingerprint", "gen_ai.openai.request.service_tier",
	"gen_ai.openai.response.service_tier", "gen_ai.openai.response.system_fingerprint",
	"aws.bedrock.guardrail.id", "aws.bedrock.knowledge_base.id", "aws.request_id", "azure.resource_provider.namespace",
	"embedding.model_name", "reranker.model_name", "output.mime_type", "tool_call.id", "tool.id",
	"traceloop.workflow.name", "traceloop.entity.name", "traceloop.entity.path", "traceloop.entity.version",
	"ai.telemetry.functionId", "resource.name", "ai.response.timestamp", "ai.toolCall.id",
	"langfuse.environment", "langfuse.release", "langfuse.version",
	"genkit:type", "genkit:path", "genkit:state", "genkit:metadata:flow:name",
	"module", "x_request_id", "llm_d.epp.pod",
}

// contentNames are the names of text beyond the prompts that a record is read from: replies, tools, retrieved
// documents, errors and copies of requests.
var contentNames = []string{
	// The GenAI conventions, all revisions.
	"gen_ai.input.*", "gen_ai.output.messages*", "gen_ai.system_instructions*", "gen_ai.completion", "gen_ai.completion.*",
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
	// Words that frameworks without a convention use.
	"prompt", "prompts", "prompt.*", "completion", "completions", "messages", "system_prompt", "user_prompt", "content",
	"input", "output", "inputs", "outputs", "request_body", "response_body",
}
