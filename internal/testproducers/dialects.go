// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// This file writes a request in the format of each producer.

package testproducers

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

type object = map[string]any

// each returns a producer's record of each message.
func (r *request) each(write func(m message) object) (all []object) {
	for _, m := range r.messages {
		all = append(all, write(m))
	}
	return all
}

// plain returns a message in the API's format.
func plain(m message) object { return object{"role": m.Role, "content": m.Text} }

// flat adds two attributes for each message; the names of both contain the message's number.
func (r *request) flat(to object, role, content string) {
	for i, m := range r.messages {
		to[fmt.Sprintf(role, i)], to[fmt.Sprintf(content, i)] = m.Role, m.Text
	}
}

// session adds the session, if the request has one, under the producer's name for it.
func (r *request) session(to object, name string) object {
	if r.Session != "" {
		to[name] = r.Session
	}
	return to
}

func (w *writer) events(r *request)            { w.eventLogs(r, true) }
func (w *writer) eventsWithoutText(r *request) { w.eventLogs(r, false) }

// eventLogs writes what OpenTelemetry up to 1.36 does: a log record for each message; the record's name is in an attribute.
func (w *writer) eventLogs(r *request, content bool) {
	w.scope.Scope().SetName("@opentelemetry/instrumentation-openai")
	w.app()
	s := w.span("chat "+model, ptrace.SpanKindClient, w.served(object{
		"gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": model,
	}, "gen_ai.response.id", object{"gen_ai.usage.input_tokens": r.Input, "gen_ai.usage.output_tokens": r.Output}))
	w.refuse(s)
	if r.failed() {
		return
	}
	record := func(name string, body object) {
		log := w.logs.AppendEmpty()
		log.SetTraceID(s.TraceID())
		log.SetSpanID(s.SpanID())
		log.SetTimestamp(s.StartTimestamp())
		log.SetObservedTimestamp(s.StartTimestamp())
		log.Attributes().PutStr("event.name", name)
		log.Attributes().PutStr("gen_ai.system", "openai")
		_ = log.Body().SetEmptyMap().FromRaw(body)
	}
	with := func(body object, name string, value any) object {
		if content {
			body[name] = value
		}
		return body
	}
	for _, m := range r.messages {
		record("gen_ai."+m.Role+".message", with(object{}, "content", m.Text))
	}
	record("gen_ai.choice", object{"finish_reason": "stop", "index": 0, "message": with(object{}, "content", r.reply)})
}

// messages writes what OpenTelemetry since 1.37 does in the application, and vLLM as the engine.
func (w *writer) messages(r *request) {
	w.scope.Scope().SetName("opentelemetry.instrumentation.genai.openai")
	if r.Case == "embeddings" {
		w.span("embeddings "+model, ptrace.SpanKindClient, object{
			"gen_ai.operation.name": "embeddings", "gen_ai.request.model": model, "gen_ai.usage.input_tokens": r.Input,
		})
		return
	}
	attributes := w.served(object{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": model,
		"gen_ai.input.messages": document(r.each(func(m message) object {
			return object{"role": m.Role, "parts": []object{{"type": "text", "content": m.Text}}}
		})),
	}, "gen_ai.response.id", object{
		"gen_ai.usage.input_tokens": r.Input, "gen_ai.usage.output_tokens": r.Output, "gen_ai.usage.cache_read.input_tokens": r.Cached,
	})
	w.refuse(w.span("chat "+model, ptrace.SpanKindClient, r.session(attributes, "gen_ai.conversation.id")))
	if !r.failed() {
		w.span("POST", ptrace.SpanKindClient, object{"http.request.method": "POST"})
		w.llmRequest(r)
	}
}

// llmRequest adds vLLM's span.
func (w *writer) llmRequest(r *request) {
	w.span("llm_request", ptrace.SpanKindServer, object{
		"gen_ai.request.id": r.ID, "gen_ai.usage.prompt_tokens": r.Input, "gen_ai.usage.completion_tokens": r.Output,
		"gen_ai.latency.time_to_first_token": 0.05, "gen_ai.latency.e2e": 0.9, "gen_ai.response.model": model,
	})
}

// engine writes the telemetry of vLLM without that of an application.
func (w *writer) engine(r *request) {
	w.scope.Scope().SetName("vllm.llm_engine")
	if !r.failed() { // a refused request has no span
		w.llmRequest(r)
	}
}

// openInference writes the request as a document, and as flat messages, too.
func (w *writer) openInference(r *request) {
	w.scope.Scope().SetName("@arizeai/openinference-instrumentation-openai")
	if r.failed() {
		return
	}
	attributes := object{
		"openinference.span.kind": "LLM", "llm.model_name": model, "llm.system": "openai",
		"llm.invocation_parameters": document(object{"model": model, "max_tokens": 64}),
		"input.mime_type":           "application/json", "output.mime_type": "application/json",
		"input.value":            document(object{"model": model, "messages": r.each(plain)}),
		"output.value":           document(object{"id": r.ID, "model": model, "choices": []object{{"message": object{"role": "assistant", "content": r.reply}}}}),
		"llm.token_count.prompt": r.Input, "llm.token_count.completion": r.Output, "llm.token_count.total": r.Input + r.Output,
		"llm.token_count.prompt_details.cache_read": r.Cached,
	}
	r.flat(attributes, "llm.input_messages.%d.message.role", "llm.input_messages.%d.message.content")
	w.span("OpenAI Chat Completions", ptrace.SpanKindInternal, r.session(attributes, "session.id"))
}

// traceloop writes flat attributes, below a workflow's span.
func (w *writer) traceloop(r *request) {
	w.scope.Scope().SetName("opentelemetry.instrumentation.openai.v1")
	above := object{"traceloop.span.kind": "workflow", "traceloop.workflow.name": "assistant", "traceloop.entity.input": document(r.messages)}
	attributes := w.served(object{"gen_ai.system": "OpenAI", "llm.request.type": "chat", "gen_ai.request.model": model, "llm.is_streaming": r.Case == "stream"},
		"gen_ai.response.id", object{
			"gen_ai.usage.prompt_tokens": r.Input, "gen_ai.usage.completion_tokens": r.Output, "llm.usage.total_tokens": r.Input + r.Output,
		})
	r.flat(attributes, "gen_ai.prompt.%d.role", "gen_ai.prompt.%d.content")
	const session = "traceloop.association.properties.session_id"
	w.span("assistant.workflow", ptrace.SpanKindInternal, r.session(above, session))
	w.refuse(w.span("openai.chat", ptrace.SpanKindClient, r.session(attributes, session)))
}

// vercel writes a span for the call and one for the request, both with the prompt and the counts.
func (w *writer) vercel(r *request) {
	w.scope.Scope().SetName("ai")
	messages := r.each(func(m message) object {
		if m.Role == "system" {
			return plain(m)
		}
		return object{"role": m.Role, "content": []object{{"type": "text", "text": m.Text}}}
	})
	common := func(operation string) object {
		return r.session(w.served(object{"ai.operationId": operation, "operation.name": operation, "ai.model.id": model}, "", object{
			"ai.usage.promptTokens": r.Input, "ai.usage.completionTokens": r.Output,
		}), "ai.telemetry.metadata.sessionId")
	}
	above := common("ai.generateText")
	above["ai.prompt"] = document(object{"messages": messages})
	w.refuse(w.span("ai.generateText", ptrace.SpanKindInternal, above))
	below := w.served(common("ai.generateText.doGenerate"), "ai.response.id", object{
		"gen_ai.usage.input_tokens": r.Input, "gen_ai.usage.output_tokens": r.Output,
	})
	below["ai.prompt.messages"], below["gen_ai.system"], below["gen_ai.request.model"] = document(messages), "openai.chat", model
	w.refuse(w.span("ai.generateText.doGenerate", ptrace.SpanKindInternal, below))
}

// langfuse counts cached tokens separately, and leaves the status of a failed request unset.
func (w *writer) langfuse(r *request) {
	w.scope.Scope().SetName("langfuse-sdk")
	attributes := r.session(object{
		"langfuse.observation.type": "generation", "langfuse.observation.model.name": model,
		"langfuse.observation.input": document(object{"messages": r.each(plain)}),
	}, "session.id")
	if r.failed() {
		attributes["langfuse.observation.level"] = "ERROR"
	} else {
		attributes["langfuse.observation.output"] = document(object{"role": "assistant", "content": r.reply})
		attributes["langfuse.observation.usage_details"] = document(object{
			"input": r.Input - r.Cached, "input_cached_tokens": r.Cached, "output": r.Output, "total": r.Input + r.Output,
		})
	}
	w.span("OpenAI.chat", ptrace.SpanKindInternal, attributes)
}

// genkit writes documents on a model's span, and the same ones on its parent.
func (w *writer) genkit(r *request) {
	w.scope.Scope().SetName("genkit-tracer")
	messages := r.each(func(m message) object {
		return object{"role": strings.Replace(m.Role, "assistant", "model", 1), "content": []object{{"text": m.Text}}}
	})
	usage := object{"inputCharacters": len(r.Prompt), "outputCharacters": len(r.reply)}
	if r.Case != "stream" {
		usage["inputTokens"], usage["outputTokens"], usage["totalTokens"] = r.Input, r.Output, r.Input+r.Output
	}
	for _, c := range []struct{ name, kind string }{{"generate", "util"}, {"lab/" + model, "model"}} {
		attributes := object{
			"genkit:name": c.name, "genkit:type": "action", "genkit:metadata:subtype": c.kind, "genkit:state": "success",
			"genkit:input": document(object{"config": object{"max_tokens": 64}, "messages": messages}),
		}
		if r.failed() {
			attributes["genkit:state"] = "error"
			s := w.span(c.name, ptrace.SpanKindInternal, attributes)
			s.Status().SetCode(ptrace.StatusCodeError)
			event := s.Events().AppendEmpty()
			event.SetName("exception")
			event.SetTimestamp(pcommon.NewTimestampFromTime(r.start))
			continue
		}
		attributes["genkit:output"] = document(object{
			"custom": object{"id": r.ID, "model": model}, "finishReason": "stop", "usage": usage,
			"message": object{"role": "model", "content": []object{{"text": r.reply}}},
		})
		w.span(c.name, ptrace.SpanKindInternal, attributes)
	}
}
