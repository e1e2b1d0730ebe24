// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/moonloop/moonloop/semconv"
)

// Dialect is the name of a way to write GenAI telemetry. It is "" for a span without GenAI telemetry.
type Dialect string

// The known dialects. The content of a record does not depend on the dialect: every known attribute is read wherever it occurs.
const (
	DialectOTel136       Dialect = "otel-1.36" // gen_ai.system, messages as log events
	DialectOTel          Dialect = "otel"      // gen_ai.provider.name, messages as attributes
	DialectOpenInference Dialect = "openinference"
	DialectTraceloop     Dialect = "traceloop"
	DialectVercel        Dialect = "vercel"
	DialectLangfuse      Dialect = "langfuse"
	DialectGenkit        Dialect = "genkit"
	DialectLiteLLM       Dialect = "litellm"
	DialectOpenLIT       Dialect = "openlit"
	DialectVLLM          Dialect = "vllm"
	DialectSGLang        Dialect = "sglang"
	DialectTensorRTLLM   Dialect = "tensorrt-llm"
	DialectTGI           Dialect = "tgi"
	DialectEnvoy         Dialect = "envoy-ai-gateway"
	DialectAgentgateway  Dialect = "agentgateway"
	DialectLLMD          Dialect = "llm-d"
	DialectDynamo        Dialect = "dynamo"
	DialectUnknown       Dialect = "unknown" // some gen_ai.* or llm.* attribute, but nothing that identifies its writer
)

// dialects lists how a dialect is recognised: by the beginning of a scope's name, the name of a span, or the beginning of an attribute's
// name. The first match counts.
var dialects = []struct {
	dialect              Dialect
	scopes, spans, hints []string
}{
	{DialectDynamo, []string{dynamoScope}, nil, nil},
	{DialectEnvoy, []string{"envoyproxy/ai-gateway"}, nil, nil},
	{DialectOpenLIT, []string{"@openlit/", "openlit"}, nil, nil},
	{DialectLiteLLM, []string{"litellm"}, []string{"litellm_request", "raw_gen_ai_request"}, nil},
	{DialectLangfuse, nil, nil, []string{"langfuse.observation."}},
	{DialectOpenInference, nil, nil, []string{"openinference."}},
	{DialectGenkit, nil, nil, []string{"genkit:"}},
	{DialectVercel, nil, nil, []string{"ai.operationId", "ai.model.", "ai.prompt", "ai.usage.", "ai.telemetry."}},
	{DialectTraceloop, []string{"@traceloop/"}, nil, []string{"gen_ai.prompt.", "llm.request.type", "llm.prompts.", "traceloop."}},
	{DialectTensorRTLLM, nil, nil, []string{"gen_ai.latency.kv_cache_transfer_time"}},
	{DialectVLLM, nil, []string{"llm_request"}, nil},
	{DialectLLMD, nil, []string{"gateway.request", "gateway.request_orchestration"}, []string{"llm_d."}},
	{DialectAgentgateway, nil, nil, []string{"agw.ai."}},
	{DialectVercel, []string{"gen_ai"}, nil, nil}, // Vercel's spans that follow the conventions
	{DialectOTel, nil, nil, []string{semconv.GenAIProviderName}},
	{DialectOTel136, nil, nil, []string{semconv.GenAISystem}},
	{DialectUnknown, nil, nil, []string{"gen_ai.", "llm."}},
}

// requestLogs lists the producers whose log records are requests, in a format of their own. They are recognised by the name of the scope, or
// by the attribute "schema"; an entry has both.
var requestLogs = []struct {
	dialect       Dialect
	scope, schema string
	read          func(*Reader, plog.LogRecord)
}{
	{DialectDynamo, dynamoScope, dynamoSchema, (*Reader).dynamo},
}

// mark is a set of hints from the attributes of a span: dialects, by index, and flattened messages that can replace a document.
type mark uint32

const (
	markFlatInput mark = 1 << (31 - iota)
	markFlatOutput
)

// The prefixes of flattened messages.
const (
	flatInput  = "llm.input_messages."
	flatOutput = "llm.output_messages."
)

// flatTools lists the prefixes of the tools of flattened prompts, by the prefix of the prompts.
var flatTools = map[string]string{
	flatInput: "llm.tools.", "gen_ai.prompt.": "llm.request.functions.", "llm.prompts.": "llm.request.functions.",
}

// beginning is the meaning of the beginning of an attribute's name. The prefix of flattened messages counts only if an index follows,
// because other names, such as gen_ai.prompt.version, begin in the same way.
type beginning struct {
	prefix string
	mark   mark
	flat   field // the field that is flattened there
}

// beginnings has the known beginnings by their first byte, because most attributes of a trace have none of them. All matches count.
var beginnings = func() (index [256][]beginning) {
	list := []beginning{
		{flatInput, markFlatInput, fieldContent},
		{"gen_ai.prompt.", 0, fieldContent},
		{"llm.prompts.", 0, fieldContent},
		{flatOutput, markFlatOutput, fieldReply},
		{"gen_ai.completion.", 0, fieldReply},
		{"llm.completions.", 0, fieldReply},
	}
	for i := range dialects {
		for _, hint := range dialects[i].hints {
			list = append(list, beginning{hint, 1 << i, fieldNone})
		}
	}
	for _, b := range list {
		index[b.prefix[0]] = append(index[b.prefix[0]], b)
	}
	return index
}()

// dialectOf returns the dialect of a span or log record. Two engines have no names of their own, and are recognised by attributes that only
// they write together: SGLang and TGI.
func (s *scan) dialectOf(scope, name string) Dialect {
	for i := range dialects {
		d := &dialects[i]
		fits := s.marks&(1<<i) != 0
		for _, span := range d.spans {
			fits = fits || span == name
		}
		for _, prefix := range d.scopes {
			fits = fits || strings.HasPrefix(scope, prefix)
		}
		switch {
		case !fits:
		case d.dialect == DialectUnknown && s.has(fieldRID):
			return DialectSGLang
		default:
			return d.dialect
		}
	}
	if s.tgi(name) {
		return DialectTGI
	}
	return ""
}
