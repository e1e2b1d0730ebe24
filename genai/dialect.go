// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strings"

	"github.com/moonloop/moonloop/semconv"
)

// Dialect names a way to write GenAI telemetry. It is "" for a span that has nothing to do with GenAI.
type Dialect string

// The dialects that are told apart. What a record holds does not depend on the name: every known attribute is read
// wherever it occurs.
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
	DialectUnknown       Dialect = "unknown" // some gen_ai.* or llm.* attribute, and nothing that names its writer
)

// mark is a set of hints about the dialect that the attributes of a span give.
type mark uint16

const (
	markProvider mark = 1 << iota
	markSystem
	markGenAI
	markLLM
	markOpenInference
	markLangfuse
	markGenkit
	markTraceloop
	markVercel
	markLLMD
	markAgentgateway
	markKVTransfer
)

// marksByPrefix lists the hints of attribute names; all that fit count.
var marksByPrefix = []struct {
	prefix string
	mark   mark
}{
	{"gen_ai.", markGenAI},
	{semconv.GenAIProviderName, markProvider},
	{semconv.GenAISystem, markSystem},
	{"gen_ai.prompt.", markTraceloop},
	{"gen_ai.latency.kv_cache_transfer_time", markKVTransfer},
	{"genkit:", markGenkit},
	{"llm.", markLLM},
	{"llm.request.type", markTraceloop},
	{"llm.prompts.", markTraceloop},
	{"llm_d.", markLLMD},
	{"langfuse.observation.", markLangfuse},
	{"openinference.", markOpenInference},
	{"traceloop.", markTraceloop},
	{"ai.operationId", markVercel},
	{"ai.model.", markVercel},
	{"ai.prompt", markVercel},
	{"ai.usage.", markVercel},
	{"ai.telemetry.", markVercel},
	{"agw.ai.", markAgentgateway},
}

// marksByByte holds the indices of marksByPrefix by the first byte: most attributes of a trace begin with none of them.
var marksByByte = func() (index [256][]int) {
	for i := range marksByPrefix {
		first := marksByPrefix[i].prefix[0]
		index[first] = append(index[first], i)
	}
	return index
}()

// marksOf returns the hints of one attribute.
func marksOf(key string) mark {
	if key == "" {
		return 0
	}
	var marks mark
	for _, i := range marksByByte[key[0]] {
		if strings.HasPrefix(key, marksByPrefix[i].prefix) {
			marks |= marksByPrefix[i].mark
		}
	}
	if key == semconv.GenAISystemInstructions {
		marks &^= markSystem
	}
	return marks
}

// dialects lists what names a dialect: the scope's beginning, the span's name, or a hint. The first that fits counts.
var dialects = []struct {
	dialect Dialect
	scope   string
	name    string
	marks   mark
}{
	{DialectDynamo, "dynamo.request_trace", "", 0},
	{DialectEnvoy, "envoyproxy/ai-gateway", "", 0},
	{DialectOpenLIT, "@openlit/", "", 0},
	{DialectOpenLIT, "openlit", "", 0},
	{DialectLiteLLM, "litellm", "", 0},
	{DialectLiteLLM, "", "litellm_request", 0},
	{DialectLiteLLM, "", "raw_gen_ai_request", 0},
	{DialectLangfuse, "", "", markLangfuse},
	{DialectOpenInference, "", "", markOpenInference},
	{DialectGenkit, "", "", markGenkit},
	{DialectVercel, "", "", markVercel},
	{DialectTraceloop, "@traceloop/", "", 0},
	{DialectTraceloop, "", "", markTraceloop},
	{DialectTensorRTLLM, "", "", markKVTransfer},
	{DialectVLLM, "", "llm_request", 0},
	{DialectLLMD, "", "gateway.request", 0},
	{DialectLLMD, "", "gateway.request_orchestration", 0},
	{DialectLLMD, "", "", markLLMD},
	{DialectAgentgateway, "", "", markAgentgateway},
	{DialectOTel, "", "", markProvider},
	{DialectOTel136, "", "", markSystem},
}

// dialectOf names the dialect of a span or log record. Engines that write nothing but facts are told by those.
func (s *scan) dialectOf(scope, name string) Dialect {
	for i := range dialects {
		d := &dialects[i]
		if d.scope != "" && strings.HasPrefix(scope, d.scope) || d.name != "" && d.name == name || d.marks&s.marks != 0 {
			if d.dialect == DialectOTel && scope == vercelScope {
				return DialectVercel
			}
			return d.dialect
		}
	}
	switch {
	case s.has(fieldRID) && s.marks&markGenAI != 0:
		return DialectSGLang
	case s.tgi(name):
		return DialectTGI
	case scope == vercelScope:
		return DialectVercel
	case s.marks&(markGenAI|markLLM) != 0:
		return DialectUnknown
	}
	return ""
}

// vercelScope is the scope of the AI SDK's convention-conformant spans.
const vercelScope = "gen_ai"
