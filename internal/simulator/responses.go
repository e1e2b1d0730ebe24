// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

// This file writes replies as /v1/responses has them: typed events that build a response up and end with the whole of it, without a
// [DONE]. The response is created when the engine takes the request up, before it has a token.

import (
	"fmt"
	"strconv"
	"strings"
)

const pathResponses = "/v1/responses"

// responsesFormat writes replies in the shapes of OpenAI's Responses API. Shapes that exist only for chunks do not change them.
type responsesFormat struct{ *format }

// event appends an event, whose data contains its type and its number, too.
func (f responsesFormat) event(b []byte, kind, rest string) []byte {
	b = fmt.Appendf(b, "event: %s\ndata: {\"type\":%q,\"sequence_number\":%d%s}\n\n", kind, kind, f.events, rest)
	f.events++
	return b
}

// id returns what is different in each reply, after the prefix of its kind.
func (f responsesFormat) id(prefix string) string {
	return prefix + "_" + strings.TrimPrefix(f.callID, "call_")
}

// thinks reports whether the first half of the tokens is reasoning.
func (f responsesFormat) thinks() bool {
	return f.shape.reasoning != "" && f.plan.tool == "" && f.plan.tokens > 1
}

// thought returns the number of tokens of reasoning.
func (f responsesFormat) thought() int {
	if f.thinks() {
		return f.plan.tokens / 2
	}
	return 0
}

// words returns the text of some tokens, escaped for a JSON string.
func (f responsesFormat) words(from, to int) string {
	var b []byte
	for i := from; i < to; i++ {
		b = f.plan.appendToken(b, i)
	}
	return string(b)
}

// object returns the response as JSON, with its output and usage once it has ended.
func (f responsesFormat) object(status, output, usage string) string {
	reason := "null"
	if status == statusIncomplete {
		reason = fmt.Sprintf(`{"reason":%q}`, f.incomplete())
	}
	most := "null"
	if n := f.request.facts.MaxTokens; n != Absent {
		most = strconv.Itoa(n)
	}
	b := fmt.Appendf(nil, `{"id":%q,"object":"response","created_at":%d,"status":%q,"background":false,"error":null,"incomplete_details":%s,`+
		`"instructions":null,"max_output_tokens":%s,"model":`, f.id("resp"), f.created, status, reason, most)
	b = appendQuoted(b, f.request.facts.Model)
	return string(fmt.Appendf(b, `,"output":[%s],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},`+
		`"store":false,"temperature":1,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1,"truncation":"disabled",`+
		`"usage":%s,"user":null,"metadata":{}}`, output, usage))
}

// The states of a response and of what is in it.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
)

// incomplete says why a reply is incomplete; empty if it is complete.
func (f responsesFormat) incomplete() string {
	switch f.plan.finish {
	case finishLength:
		return "max_output_tokens"
	case "content_filter":
		return f.plan.finish
	}
	return ""
}

// status returns the status of a reply that has ended.
func (f responsesFormat) status() string {
	if f.incomplete() != "" {
		return statusIncomplete
	}
	return statusCompleted
}

// role appends what opens a stream: the response without anything in it.
func (f responsesFormat) role(b []byte) []byte {
	f.begun = true
	object := `,"response":` + f.object(statusInProgress, "", "null")
	return f.event(f.event(b, "response.created", object), "response.in_progress", object)
}

// item returns an element of the output, with its text or arguments as far as they are given.
func (f responsesFormat) item(index int, status, said string) string {
	switch {
	case f.plan.tool != "":
		name := appendQuoted(nil, f.plan.tool)
		return fmt.Sprintf(`{"id":%q,"type":"function_call","status":%q,"arguments":"%s","call_id":%q,"name":%s}`, f.id("fc"), status, said, f.callID, name)
	case f.thinks() && index == 0:
		content := ""
		if said != "" {
			content = f.part(0, said)
		}
		return fmt.Sprintf(`{"id":%q,"type":"reasoning","status":%q,"summary":[],"content":[%s]}`, f.id("rs"), status, content)
	default:
		content := ""
		if said != "" {
			content = f.part(index, said)
		}
		return fmt.Sprintf(`{"id":%q,"type":"message","status":%q,"content":[%s],"role":"assistant"}`, f.id("msg"), status, content)
	}
}

// part returns what an element of the output contains.
func (f responsesFormat) part(index int, said string) string {
	if f.thinks() && index == 0 {
		return fmt.Sprintf(`{"type":"reasoning_text","text":"%s"}`, said)
	}
	return fmt.Sprintf(`{"type":"output_text","annotations":[],"logprobs":[],"text":"%s"}`, said)
}

// at says which element of the output an event is about, and which part of it.
func (f responsesFormat) at(index int) string {
	prefix, part := "msg", `,"content_index":0`
	switch {
	case f.plan.tool != "":
		prefix, part = "fc", ""
	case f.thinks() && index == 0:
		prefix = "rs"
	}
	return fmt.Sprintf(`,"item_id":%q,"output_index":%d%s`, f.id(prefix), index, part)
}

// opening appends what opens an element of the output.
func (f responsesFormat) opening(b []byte, index int) []byte {
	b = f.event(b, "response.output_item.added", fmt.Sprintf(`,"output_index":%d,"item":%s`, index, f.item(index, statusInProgress, "")))
	if f.plan.tool != "" {
		return b
	}
	return f.event(b, "response.content_part.added", f.at(index)+`,"part":`+f.part(index, ""))
}

// closing appends what closes an element of the output, with its whole content.
func (f responsesFormat) closing(b []byte, index int, said string) []byte {
	status := statusCompleted
	switch last := !f.thinks() || index == 1; {
	case f.plan.tool != "":
		b = f.event(b, "response.function_call_arguments.done", f.at(index)+`,"name":`+string(appendQuoted(nil, f.plan.tool))+`,"arguments":"`+said+`"`)
	case last:
		status = f.status()
		b = f.event(b, "response.output_text.done", f.at(index)+`,"text":"`+said+`","logprobs":[]`)
	default:
		b = f.event(b, "response.reasoning_text.done", f.at(index)+`,"text":"`+said+`"`)
	}
	if f.plan.tool == "" {
		b = f.event(b, "response.content_part.done", f.at(index)+`,"part":`+f.part(index, said))
	}
	return f.event(b, "response.output_item.done", fmt.Sprintf(`,"output_index":%d,"item":%s`, index, f.item(index, status, said)))
}

// call appends nothing: the first tokens open their element, as those of a text do.
func (f responsesFormat) call(b []byte) []byte { return b }

func (f responsesFormat) tokens(b []byte, from, to int) []byte {
	half := f.thought()
	if from < half && to > half {
		return f.tokens(f.tokens(b, from, half), half, to)
	}
	index, kind, more := 0, "response.output_text.delta", `,"logprobs":[]`
	switch {
	case f.plan.tool != "":
		kind, more = "response.function_call_arguments.delta", ""
	case from < half:
		kind, more = "response.reasoning_text.delta", ""
	case half > 0:
		index = 1
	}
	if from == 0 || from == half {
		if index == 1 {
			b = f.closing(b, 0, f.words(0, half))
		}
		b = f.opening(b, index)
	}
	return f.event(b, kind, f.at(index)+`,"delta":"`+f.words(from, to)+`"`+more)
}

// output returns the whole output of a reply that has ended.
func (f responsesFormat) output() string {
	half := f.thought()
	if half == 0 {
		return f.item(0, f.status(), f.words(0, f.plan.tokens))
	}
	return f.item(0, statusCompleted, f.words(0, half)) + "," + f.item(1, f.status(), f.words(half, f.plan.tokens))
}

// counts returns usage.
func (f responsesFormat) counts() string {
	if f.shape.usage == usageNone {
		return "null"
	}
	return fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}`,
		f.promptTokens, f.cachedTokens, f.plan.tokens, f.thought(), f.promptTokens+f.plan.tokens)
}

func (f responsesFormat) finish(b []byte) []byte {
	half := f.thought()
	b = f.closing(b, min(half, 1), f.words(half, f.plan.tokens))
	return f.event(b, "response."+f.status(), `,"response":`+f.object(f.status(), f.output(), f.counts()))
}

// failure appends an error event, which has its members next to its type.
func (f responsesFormat) failure(b []byte, e *apiError) []byte {
	code := "server_error"
	if e.code != "" {
		code = e.code
	}
	return f.event(b, "error", fmt.Sprintf(`,"code":%q,"message":%s,"param":null`, code, appendQuoted(nil, e.message)))
}

func (f responsesFormat) done(b []byte) []byte { return b }

func (f responsesFormat) whole() []byte { return []byte(f.object(f.status(), f.output(), f.counts())) }
