// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// format writes replies in OpenAI's shapes: events of a stream, and whole replies.
type format struct {
	api             api
	plan            *plan
	head            []byte // of every object, up to its choices
	callID          string
	promptTokens    int
	cachedTokens    int
	includeUsage    bool
	continuousUsage bool
	shape           *shape
	like            Like
	tokenizer       Tokenizer
	returnIDs       bool     // say the ids of prompt and reply
	promptIDs       []uint64 // until they have been said
	begun           bool     // the role, or a chunk, has been made
}

func newFormat(a api, q *request, p *plan, s *shape, id uint64, created int64) *format {
	f := &format{
		api: a, plan: p, shape: s, includeUsage: q.includeUsage, continuousUsage: q.continuousUsage,
		callID: fmt.Sprintf("call_%016x", mix(id)),
	}
	prefix, object := "chatcmpl", "chat.completion"
	if a == completions {
		prefix, object = "cmpl", "text_completion"
	}
	if a == chat && q.facts.Stream {
		object += ".chunk"
	}
	f.head = fmt.Appendf(nil, `{"id":"%s-%016x","object":%q,"created":%d,"model":`, prefix, id, object, created)
	f.head = appendQuoted(f.head, q.facts.Model)
	f.head = append(f.head, `,"choices":[`...)
	return f
}

// event appends one event of a stream with one choice, given from its delta (or text) to its end.
func (f *format) event(b []byte, completed int, choice func([]byte) []byte) []byte {
	b = f.choice(b, '0', choice)
	if f.api == chat {
		b = f.promptTokenIDs(b)
	}
	switch {
	case f.shape.usage == usageNone, f.shape.usage == usageOnFinish:
	case f.shape.usage == usageGrows, f.continuousUsage:
		b = f.usage(b, completed)
	case f.shape.usage == usageZero:
		b = append(b, `,"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`...)
	case f.shape.usage == usageNull, f.includeUsage:
		b = append(b, `,"usage":null`...)
	}
	if n := f.shape.pad; n > 0 && !f.begun {
		b = append(b, `,"prompt_token_ids":[1`...)
		for range n {
			b = append(b, ",1"...)
		}
		b = append(b, ']')
	}
	f.begun = true
	return append(b, "}\n\n"...)
}

// choice appends an event up to the end of its choices, of which there is one.
func (f *format) choice(b []byte, index byte, choice func([]byte) []byte) []byte {
	b = append(b, plainField...)
	b = append(b, f.head...)
	b = append(b, `{"index":`...)
	b = append(b, index, ',')
	b = choice(b)
	return append(b, "}]"...)
}

// role appends the event that opens a chat's reply: the role, no content.
func (f *format) role(b []byte) []byte {
	return f.event(b, 0, func(b []byte) []byte {
		return append(b, `"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null`...)
	})
}

// call appends the event that opens a tool call: its id and name, no arguments.
func (f *format) call(b []byte) []byte {
	return f.event(b, 0, func(b []byte) []byte {
		b = append(b, `"delta":{"tool_calls":[{"index":0,`...)
		b = f.callHead(b)
		return append(b, `""}}]},"logprobs":null,"finish_reason":null`...)
	})
}

// callHead appends the members of a tool call up to the value of its arguments.
func (f *format) callHead(b []byte) []byte {
	b = append(b, `"id":"`...)
	b = append(b, f.callID...)
	b = append(b, `","type":"function","function":{"name":`...)
	b = appendQuoted(b, f.plan.tool)
	return append(b, `,"arguments":`...)
}

// tokens appends the event of the tokens from, inclusive, to to, exclusive, and what the shape puts before it.
func (f *format) tokens(b []byte, from, to int) []byte {
	text := func(b []byte) []byte { return f.text(b, from, to) }
	if f.shape.empty {
		b = f.event(b, from, func(b []byte) []byte {
			if f.api == completions {
				return append(b, `"text":"","logprobs":null,"finish_reason":null`...)
			}
			return append(b, `"delta":{"content":""},"logprobs":null,"finish_reason":null`...)
		})
	}
	if f.shape.second {
		b = append(f.choice(b, '1', text), "}\n\n"...)
	}
	return f.event(b, to, text)
}

// text appends the choice of some tokens, from its delta (or text) to its end.
func (f *format) text(b []byte, from, to int) []byte {
	end := `"}`
	switch {
	case f.api == completions:
		b = append(b, `"text":"`...)
		end = `"`
	case f.plan.tool != "":
		b = append(b, `"delta":{"tool_calls":[{"index":0,"function":{"arguments":"`...)
		end = `"}}]}`
	default:
		b = append(b, `"delta":{"`...)
		if f.shape.everyRole {
			b = append(b, `role":"assistant","`...)
		}
		if member := f.shape.reasoning; member != "" && from < f.plan.tokens/2 {
			b = append(b, member...)
		} else {
			b = append(b, "content"...)
		}
		b = append(b, `":"`...)
	}
	for i := from; i < to; i++ {
		b = f.plan.appendToken(b, i)
	}
	b = append(b, end...)
	b = append(b, `,"logprobs":null,"finish_reason":`...)
	if f.shape.finishOnLast && to == f.plan.tokens {
		b = f.reason(b)
	} else {
		b = append(b, "null"...)
	}
	return f.tokenIDs(b, from, to)
}

// promptTokenIDs appends the member with the prompt's ids, once, where they were asked for.
func (f *format) promptTokenIDs(b []byte) []byte {
	if f.promptIDs == nil {
		return b
	}
	b = appendIDs(append(b, `,"prompt_token_ids":`...), f.promptIDs)
	f.promptIDs = nil
	return b
}

// tokenIDs appends the members with the ids of some tokens of a reply, where they were asked for.
func (f *format) tokenIDs(b []byte, from, to int) []byte {
	if !f.returnIDs {
		return b
	}
	if f.api == completions {
		b = f.promptTokenIDs(b)
	}
	var ids []uint64
	for i := from; i < to; i++ {
		f.plan.tokenIDs(i, &f.tokenizer, func(id uint64) { ids = append(ids, id) })
	}
	return appendIDs(append(b, `,"token_ids":`...), ids)
}

func appendIDs(b []byte, ids []uint64) []byte {
	b = append(b, '[')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, id, 10)
	}
	return append(b, ']')
}

// reason appends the finish reason as JSON.
func (f *format) reason(b []byte) []byte {
	b = append(b, '"')
	b = append(b, f.plan.finish...)
	return append(b, '"')
}

// finish appends what follows the last token: the finish reason, the usage where asked for, and the end mark.
func (f *format) finish(b []byte) []byte {
	last := func(b []byte) []byte {
		if f.api == completions {
			b = append(b, `"text":""`...)
		} else {
			b = append(b, `"delta":{}`...)
		}
		return f.reason(append(b, `,"logprobs":null,"finish_reason":`...))
	}
	if f.shape.second && !f.shape.unfinished {
		b = append(f.choice(b, '1', last), "}\n\n"...)
	}
	switch {
	case f.shape.finishOnLast:
	case f.shape.usage == usageOnFinish:
		b = f.usage(f.choice(b, '0', last), f.plan.tokens)
		b = append(b, "}\n\n"...)
	default:
		b = f.event(b, f.plan.tokens, last)
	}
	if f.usageAtTheEnd() {
		b = append(b, plainField...)
		b = append(b, f.head...)
		b = append(b, ']')
		b = f.usage(b, f.plan.tokens)
		b = append(b, "}\n\n"...)
	}
	if f.shape.noDone {
		return b
	}
	return f.done(b)
}

// usageAtTheEnd reports whether an event with the usage alone comes last.
func (f *format) usageAtTheEnd() bool {
	switch f.shape.usage {
	case usageNone, usageOnFinish:
		return false
	case usageZero, usageGrows:
		return true
	default:
		return f.includeUsage
	}
}

// failure appends an error event.
func (f *format) failure(b []byte, e *apiError) []byte {
	b = append(b, "data: "...)
	b = append(b, e.body()...)
	return append(b, "\n\n"...)
}

func (f *format) done(b []byte) []byte { return append(b, "data: [DONE]\n\n"...) }

// whole returns a reply that is not a stream.
func (f *format) whole() []byte {
	b := append([]byte(nil), f.head...)
	b = append(b, `{"index":0,`...)
	end := `"`
	switch {
	case f.api == completions:
		b = append(b, `"text":"`...)
	case f.plan.tool != "":
		b = append(b, `"message":{"role":"assistant","content":null,"tool_calls":[{`...)
		b = f.callHead(b)
		b = append(b, '"')
		end = `"}}]}`
	default:
		b = append(b, `"message":{"role":"assistant","content":"`...)
		end = `"}`
	}
	for i := range f.plan.tokens {
		b = f.plan.appendToken(b, i)
	}
	b = append(b, end...)
	b = append(b, `,"logprobs":null,"finish_reason":"`...)
	b = append(b, f.plan.finish...)
	b = append(b, '"')
	b = f.tokenIDs(b, 0, f.plan.tokens)
	b = append(b, `}]`...)
	b = f.promptTokenIDs(b)
	if f.shape.usage != usageNone {
		b = f.usage(b, f.plan.tokens)
	}
	return append(b, '}')
}

func (f *format) usage(b []byte, completed int) []byte {
	b = append(b, `,"usage":{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(f.promptTokens), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(completed), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(f.promptTokens+completed), 10)
	b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(f.cachedTokens), 10)
	b = append(b, "}}"...)
	if f.like != LikeLlamaCPP {
		return b
	}
	return fmt.Appendf(b, `,"timings":{"cache_n":%d,"prompt_n":%d,"predicted_n":%d}`, f.cachedTokens, f.promptTokens-f.cachedTokens, completed)
}

// appendQuoted appends a JSON string. The texts come from valid JSON, so quoting cannot fail.
func appendQuoted(b []byte, s string) []byte {
	quoted, err := jsontext.AppendQuote(b, s)
	if err != nil {
		return append(b, `""`...)
	}
	return quoted
}
