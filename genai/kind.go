// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"slices"
	"strings"

	"github.com/moonloop/moonloop/semconv"
)

// operations maps the values of gen_ai.operation.name and similar attributes to kinds.
var operations = func() map[string]Kind {
	kinds := map[string]Kind{semconv.OperationGenerateContent: KindInference, "execute_tool": KindTool}
	for section, kind := range map[string]Kind{"of requests": KindInference, "of wrappers": KindWrapper, "of others": KindOther} {
		for _, operation := range vocabulary["operations "+section] {
			kinds[operation] = kind
		}
	}
	return kinds
}()

// liteLLMChats are the functions of LiteLLM that are chats in the conventions. Its "completion" is not a text completion.
var liteLLMChats = map[string]bool{"completion": true, "responses": true, "anthropic_messages": true}

// asynchronous returns the operation of an asynchronous function of LiteLLM, whose name begins with the letter a (acompletion, aembedding).
func asynchronous(operation string) (string, bool) {
	if twin, ok := strings.CutPrefix(operation, "a"); ok {
		if _, known := operations[twin]; known {
			return twin, true
		}
	}
	return operation, false
}

// operation returns the operation of a span, in lower case.
func (s *scan) operation() string {
	operation, _ := asynchronous(strings.ToLower(s.text(fieldOperation)))
	return operation
}

// operationName returns the operation as the producer spells it, except for LiteLLM, whose operations are names of functions.
func (s *scan) operationName(dialect Dialect) string {
	name := s.text(fieldOperation)
	operation, twin := asynchronous(strings.ToLower(name))
	switch {
	case (twin || dialect == DialectLiteLLM) && liteLLMChats[operation]:
		return semconv.OperationChat
	case twin:
		return operation
	}
	return name
}

// guessOperation returns the operation of a request whose dialect does not have one.
func guessOperation(dialect Dialect, name string) string {
	switch dialect {
	case DialectOpenInference, DialectEnvoy:
		if strings.HasSuffix(name, "Completions") && !strings.Contains(name, "Chat") || name == "Completion" || name == "CreateCompletion" {
			return semconv.OperationTextCompletion
		}
		return semconv.OperationChat
	case DialectVercel, DialectGenkit, DialectLangfuse, DialectLiteLLM:
		return semconv.OperationChat
	default:
		return "" // an engine's span may be either
	}
}

// kindOf classifies a span. An attribute that does not exist decides nothing. Every rejection comes before the first acceptance, because
// wrappers have the attributes of the requests below them.
func (s *scan) kindOf(dialect Dialect, name string) Kind {
	operation := s.operation()
	if kind, rejected := s.rejected(operation, dialect, name); rejected {
		return kind
	}
	usage := s.has(fieldInput) || s.has(fieldOutput)
	switch {
	case operations[operation] == KindInference,
		s.has(fieldSpanKind), s.has(fieldObservation), s.has(fieldVercelOperation), s.has(fieldGenkitSubtype):
		return KindInference // the rest, after the rejections
	case name == "llm_request" && usage, s.has(fieldRID) && usage, s.tgi(name):
		return KindInference
	case s.has(fieldToolName):
		return KindTool
	case dialect == DialectLLMD:
		return KindWrapper // routers write a model, but no usage
	case usage:
		return KindInference // of an unknown dialect
	case s.has(fieldAgentName):
		return KindWrapper
	case s.has(fieldRequestModel) && (s.has(fieldFinish) || s.has(fieldContent)):
		return KindInference
	}
	return KindOther
}

// spanTypes lists the attributes that have the kind of a span in the dialects, with their values. Upper and lower case do not matter.
var spanTypes = []struct {
	field field
	kinds []kindName
	other Kind
}{
	{fieldSpanKind, []kindName{{"LLM", KindInference}, {"TOOL", KindTool}, {"CHAIN", KindWrapper}, {"AGENT", KindWrapper}}, KindOther},
	{fieldObservation, []kindName{
		{"generation", KindInference}, {"tool", KindTool}, {"span", KindWrapper}, {"agent", KindWrapper}, {"chain", KindWrapper},
	}, KindOther},
	{fieldEntity, []kindName{{"tool", KindTool}}, KindWrapper},
	{fieldGenkitSubtype, []kindName{{"model", KindInference}, {"background-model", KindInference}, {"tool", KindTool}}, KindWrapper},
}

type kindName struct {
	name string
	kind Kind
}

// rejected returns the kind of a span that is known not to be a request.
func (s *scan) rejected(operation string, dialect Dialect, name string) (Kind, bool) {
	if kind, ok := operations[operation]; ok && kind != KindInference {
		return kind, true
	}
	if strings.HasSuffix(operation, "_memory") || strings.HasSuffix(operation, "_memories") ||
		strings.Contains(operation, "memory_store") {
		return KindOther, true
	}
	for i := range spanTypes {
		t := &spanTypes[i]
		value := s.text(t.field)
		if value == "" {
			continue
		}
		kind := t.other
		if n := slices.IndexFunc(t.kinds, func(k kindName) bool { return strings.EqualFold(k.name, value) }); n >= 0 {
			kind = t.kinds[n].kind
		}
		if kind != KindInference {
			return kind, true
		}
	}
	switch vercel := s.vercelOperation(); {
	case name == "OpenAI.embeddings" && s.has(fieldObservation),
		strings.HasPrefix(vercel, "ai.embed"), strings.HasPrefix(vercel, "ai.rerank"):
		return KindOther, true
	case vercel == "ai.toolCall":
		return KindTool, true
	case vercel != "" && !strings.HasSuffix(vercel, ".doGenerate") && !strings.HasSuffix(vercel, ".doStream"),
		dialect == DialectGenkit && !s.has(fieldGenkitSubtype),
		operation == "" && s.name(fieldAgentName) == pydanticAgent,
		name == "raw_gen_ai_request": // LiteLLM's second copy, below the first
		return KindWrapper, true
	}
	return KindOther, false
}

// vercelOperation returns the AI SDK's operation, without the function's name that older versions append.
func (s *scan) vercelOperation() string {
	operation, _, _ := strings.Cut(s.text(fieldVercelOperation), " ")
	return operation
}

// tgi reports whether a span is a request of Text Generation Inference, which writes only durations.
func (s *scan) tgi(name string) bool {
	return (name == "generate" || name == "generate_stream") && s.has(fieldTotalTime) && s.has(fieldInferenceTime)
}
