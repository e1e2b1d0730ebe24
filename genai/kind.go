// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strings"

	"github.com/moonloop/moonloop/semconv"
)

// inferenceOperations are the values of gen_ai.operation.name and its likes that are one request to a model.
var inferenceOperations = map[string]bool{
	semconv.OperationChat: true, "completion": true, semconv.OperationTextCompletion: true, semconv.OperationGenerateContent: true, "generate": true,
	"generate_content_stream": true, "responses": true, "anthropic_messages": true,
}

// otherOperations are no requests that generate. Their kind is what they are instead.
var otherOperations = map[string]Kind{
	"invoke_agent": KindWrapper, "create_agent": KindWrapper, "agent_step": KindWrapper, "plan": KindWrapper,
	"invoke_workflow": KindWrapper, "handle_conversation_turn": KindWrapper, "framework": KindWrapper,
	"execute_tool": KindTool,
	"embeddings":   KindOther, "embedding": KindOther, "retrieval": KindOther, "rerank": KindOther, "reranking": KindOther,
	"fetch_response": KindOther, "search": KindOther, "vectordb": KindOther, "vector_store_search": KindOther,
	"moderation": KindOther, "moderations": KindOther, "guardrail": KindOther, "apply_guardrail": KindOther,
	"classify": KindOther, "score": KindOther, "pooling": KindOther, "count_tokens": KindOther, "tokenize": KindOther,
	"image": KindOther, "image_generation": KindOther, "image_edit": KindOther, "image_variation": KindOther, "ocr": KindOther,
	"video_generation": KindOther, "create_video": KindOther,
	"audio": KindOther, "speech": KindOther, "text_to_speech": KindOther, "audio_speech": KindOther,
	"transcription": KindOther, "audio_transcription": KindOther, "speech_to_text": KindOther, "translation": KindOther,
	"realtime": KindOther, "_arealtime": KindOther, "fine_tuning": KindOther,
	"create_batch": KindOther, "retrieve_batch": KindOther, "cancel_batch": KindOther, "list_batches": KindOther,
	"create_file": KindOther, "retrieve_file": KindOther, "delete_file": KindOther, "list_files": KindOther, "file_content": KindOther,
}

// liteLLMChats are the functions of LiteLLM that are chats by the conventions. Its "completion" is none of text.
var liteLLMChats = map[string]bool{"completion": true, "responses": true, "anthropic_messages": true}

// asynchronous returns the operation that a function of LiteLLM stands for whose name begins with an a because it is
// asynchronous (acompletion, aembedding).
func asynchronous(operation string) (string, bool) {
	if twin, ok := strings.CutPrefix(operation, "a"); ok {
		if _, other := otherOperations[twin]; other || inferenceOperations[twin] {
			return twin, true
		}
	}
	return operation, false
}

// operation returns the operation of a span, in lower case.
func (s *scan) operation() string {
	operation, _ := asynchronous(strings.ToLower(s.str(fieldOperation)))
	return operation
}

// operationName returns the operation as the producer spells it, but for LiteLLM, which names functions.
func (s *scan) operationName(dialect Dialect) string {
	name := s.str(fieldOperation)
	operation, twin := asynchronous(strings.ToLower(name))
	switch {
	case (twin || dialect == DialectLiteLLM) && liteLLMChats[operation]:
		return semconv.OperationChat
	case twin:
		return operation
	}
	return name
}

// kindOf classifies a span. A test counts only where its attribute is there; every rejection comes before the first
// acceptance, because wrappers carry the attributes of the requests below them.
func (s *scan) kindOf(dialect Dialect, name string) Kind {
	if kind, rejected := s.rejected(dialect, name); rejected {
		return kind
	}
	operation := s.operation()
	usage := s.has(fieldInput) || s.has(fieldOutput)
	switch {
	case dialect == "":
		return KindOther
	case inferenceOperations[operation],
		s.has(fieldSpanKind), s.has(fieldObservation), s.has(fieldVercelOperation), s.has(fieldGenkitSubtype):
		return KindInference // what is left of them after rejection
	case name == "llm_request" && usage, s.has(fieldRID) && usage, s.tgi(name):
		return KindInference
	case s.has(fieldToolName):
		return KindTool
	case dialect == DialectLLMD:
		return KindWrapper // routers write a model, and no usage
	case usage:
		return KindInference // of a dialect that nobody has seen
	case s.has(fieldAgentName):
		return KindWrapper
	case s.has(fieldRequestModel) && (s.has(fieldFinish) || s.has(fieldContent)):
		return KindInference
	}
	return KindOther
}

// rejected returns what a span is that is known not to be a request.
func (s *scan) rejected(dialect Dialect, name string) (Kind, bool) {
	operation := s.operation()
	if kind, ok := otherOperations[operation]; ok {
		return kind, true
	}
	if strings.HasSuffix(operation, "_memory") || strings.HasSuffix(operation, "_memories") ||
		strings.Contains(operation, "memory_store") {
		return KindOther, true
	}
	if kind := strings.ToUpper(s.str(fieldSpanKind)); kind != "" && kind != "LLM" {
		switch kind {
		case "TOOL":
			return KindTool, true
		case "CHAIN", "AGENT":
			return KindWrapper, true
		}
		return KindOther, true
	}
	if kind := strings.ToLower(s.str(fieldObservation)); kind != "" && kind != "generation" || name == "OpenAI.embeddings" && s.has(fieldObservation) {
		switch kind {
		case "tool":
			return KindTool, true
		case "span", "agent", "chain":
			return KindWrapper, true
		}
		return KindOther, true
	}
	if kind := s.str(fieldEntity); kind != "" {
		if kind == "tool" {
			return KindTool, true
		}
		return KindWrapper, true
	}
	if operation := s.vercelOperation(); operation != "" &&
		!strings.HasSuffix(operation, ".doGenerate") && !strings.HasSuffix(operation, ".doStream") {
		switch {
		case operation == "ai.toolCall":
			return KindTool, true
		case strings.HasPrefix(operation, "ai.embed"), strings.HasPrefix(operation, "ai.rerank"):
			return KindOther, true
		}
		return KindWrapper, true
	}
	if kind := s.str(fieldGenkitSubtype); kind != "" && kind != "model" && kind != "background-model" {
		if kind == "tool" {
			return KindTool, true
		}
		return KindWrapper, true
	}
	if dialect == DialectGenkit && !s.has(fieldGenkitSubtype) {
		return KindWrapper, true
	}
	if operation == "" && s.names[fieldAgentName] == pydanticAgent {
		return KindWrapper, true
	}
	return KindWrapper, name == "raw_gen_ai_request" // LiteLLM's second copy, below the first
}

// vercelOperation returns the AI SDK's operation, without the function's name that older versions append.
func (s *scan) vercelOperation() string {
	operation, _, _ := strings.Cut(s.str(fieldVercelOperation), " ")
	return operation
}

// tgi reports whether a span is a request of Text Generation Inference, which writes only durations.
func (s *scan) tgi(name string) bool {
	return (name == "generate" || name == "generate_stream") && s.has(fieldTotalTime) && s.has(fieldInferenceTime)
}
