// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// form writes a reply: events, appended to b, or a whole reply.
type form interface {
	role(b []byte) []byte // what opens a stream
	call(b []byte) []byte // what opens a tool call
	tokens(b []byte, from, to int) []byte
	finish(b []byte) []byte
	failure(b []byte, e *apiError) []byte
	done(b []byte) []byte
	whole() []byte
}

// format writes replies in OpenAI's formats: events of a stream, and whole replies.
type format struct {
	api          api
	request      *request
	plan         *plan
	shape        *shape
	config       *Config
	head         []byte // beginning of every object, up to its choices
	callID       string
	promptTokens int
	cachedTokens int
	promptIDs    []uint64 // nil once they have been sent
	begun        bool     // the role or a chunk has been written
	created      int64    // unix time, s
	events       int      // number of events so far, in a stream of the Responses API
}

// newFormat returns the format of the reply to a prompt that has been read. The ids in the reply depend on id.
func newFormat(x *exchange, q *request, id uint64) *format {
	f := &format{
		api: x.api, request: q, plan: &x.plan, shape: &x.shape, config: &x.engine.config,
		callID: fmt.Sprintf("call_%016x", splitmix.Next(id)), promptTokens: x.chain.tokens, created: x.rec.Time.Unix(),
	}
	if q.returnIDs {
		f.promptIDs = x.chain.ids
	}
	if x.shape.shortPrompt {
		f.promptTokens = (x.chain.tokens + 1) / 2
	}
	prefix, object := "chatcmpl", "chat.completion"
	switch {
	case x.api == completions:
		prefix, object = "cmpl", "text_completion"
	case q.facts.Stream:
		object += ".chunk"
	}
	f.head = fmt.Appendf(nil, `{"id":"%s-%016x","object":%q,"created":%d,"model":`, prefix, id, object, f.created)
	f.head = append(appendQuoted(f.head, q.facts.Model), `,"choices":[`...)
	return f
}

// begin appends an event of a stream up to the delta, or text, in its list of choices.
func (f *format) begin(b []byte, index byte) []byte {
	b = append(append(b, plainField...), f.head...)
	return append(append(append(b, `{"index":`...), index), ',')
}

// end appends what follows the choice in an event: ids and usage, as the request and the shape want them.
func (f *format) end(b []byte, completed int) []byte {
	b = append(b, "}]"...)
	if f.api == chat {
		b = f.promptTokenIDs(b)
	}
	switch {
	case f.shape.usage == usageNone, f.shape.usage == usageOnFinish:
	case f.shape.usage == usageGrows, f.request.usage.Continuous:
		b = f.usage(b, completed)
	case f.shape.usage == usageZero:
		b = append(b, `,"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`...)
	case f.shape.usage == usageNull, f.request.usage.Include:
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

// unfinished is what follows the delta, or text, of a choice that continues.
const unfinished = `,"logprobs":null,"finish_reason":null`

// role appends the event that opens a chat's reply: the role, no content.
func (f *format) role(b []byte) []byte {
	return f.end(append(f.begin(b, '0'), `"delta":{"role":"assistant","content":""}`+unfinished...), 0)
}

// call appends the event that opens a tool call: its id and name, no arguments.
func (f *format) call(b []byte) []byte {
	b = f.callHead(append(f.begin(b, '0'), `"delta":{"tool_calls":[{"index":0,`...))
	return f.end(append(b, `""}}]}`+unfinished...), 0)
}

// callHead appends the members of a tool call up to the value of its arguments.
func (f *format) callHead(b []byte) []byte {
	b = fmt.Appendf(b, `"id":"%s","type":"function","function":{"name":`, f.callID)
	return append(appendQuoted(b, f.plan.tool), `,"arguments":`...)
}

// tokens appends the event with the tokens whose indices are in [from, to), and what the shape puts before that event.
func (f *format) tokens(b []byte, from, to int) []byte {
	if f.shape.empty {
		nothing := `"delta":{"content":""}` + unfinished
		if f.api == completions {
			nothing = `"text":""` + unfinished
		}
		b = f.end(append(f.begin(b, '0'), nothing...), from)
	}
	if f.shape.second {
		b = append(f.text(f.begin(b, '1'), from, to), "}]}\n\n"...)
	}
	return f.end(f.text(f.begin(b, '0'), from, to), to)
}

// text appends the choice that contains some tokens, from its delta (or text) to its end.
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
	if f.shape.finishOnLast && to == f.plan.tokens {
		b = f.reason(b)
	} else {
		b = append(b, unfinished...)
	}
	return f.tokenIDs(b, from, to)
}

// promptTokenIDs appends the member with the prompt's ids, once, if they were requested.
func (f *format) promptTokenIDs(b []byte) []byte {
	if f.promptIDs == nil {
		return b
	}
	b = appendIDs(append(b, `,"prompt_token_ids":`...), f.promptIDs)
	f.promptIDs = nil
	return b
}

// tokenIDs appends the members with the ids of some tokens of a reply, if they were requested.
func (f *format) tokenIDs(b []byte, from, to int) []byte {
	if !f.request.returnIDs {
		return b
	}
	if f.api == completions {
		b = f.promptTokenIDs(b)
	}
	var ids []uint64
	for i := from; i < to; i++ {
		f.plan.tokenIDs(i, &f.config.Tokenizer, func(id uint64) { ids = append(ids, id) })
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

// reason appends what follows the delta, or text, of a choice that ends.
func (f *format) reason(b []byte) []byte {
	b = append(append(b, `,"logprobs":null,"finish_reason":"`...), f.plan.finish...)
	return append(b, '"')
}

// finish appends what follows the last token: the finish reason, the usage if it was asked for, and the end mark.
func (f *format) finish(b []byte) []byte {
	nothing := `"delta":{}`
	if f.api == completions {
		nothing = `"text":""`
	}
	last := func(index byte) []byte { return f.reason(append(f.begin(b, index), nothing...)) }
	if f.shape.second && !f.shape.unfinished {
		b = append(last('1'), "}]}\n\n"...)
	}
	switch {
	case f.shape.finishOnLast:
	case f.shape.usage == usageOnFinish:
		b = append(f.usage(append(last('0'), "}]"...), f.plan.tokens), "}\n\n"...)
	default:
		b = f.end(last('0'), f.plan.tokens)
	}
	if u := f.shape.usage; u == usageZero || u == usageGrows || u != usageNone && u != usageOnFinish && f.request.usage.Include {
		b = append(append(append(b, plainField...), f.head...), ']')
		b = append(f.usage(b, f.plan.tokens), "}\n\n"...)
	}
	if f.shape.noDone {
		return b
	}
	return f.done(b)
}

// failure appends an error event.
func (f *format) failure(b []byte, e *apiError) []byte {
	b = append(append(b, plainField...), e.body()...)
	return append(b, "\n\n"...)
}

func (f *format) done(b []byte) []byte { return append(b, "data: [DONE]\n\n"...) }

// whole returns a reply that is not a stream.
func (f *format) whole() []byte {
	b := append(append([]byte(nil), f.head...), `{"index":0,`...)
	end := `"`
	switch {
	case f.api == completions:
		b = append(b, `"text":"`...)
	case f.plan.tool != "":
		b = f.callHead(append(b, `"message":{"role":"assistant","content":null,"tool_calls":[{`...))
		b = append(b, '"')
		end = `"}}]}`
	default:
		b = append(b, `"message":{"role":"assistant","content":"`...)
		end = `"}`
	}
	for i := range f.plan.tokens {
		b = f.plan.appendToken(b, i)
	}
	b = f.tokenIDs(f.reason(append(b, end...)), 0, f.plan.tokens)
	b = f.promptTokenIDs(append(b, "}]"...))
	if f.shape.usage != usageNone {
		b = f.usage(b, f.plan.tokens)
	}
	return append(b, '}')
}

func (f *format) usage(b []byte, completed int) []byte {
	b = strconv.AppendInt(append(b, `,"usage":{"prompt_tokens":`...), int64(f.promptTokens), 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), int64(completed), 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), int64(f.promptTokens+completed), 10)
	b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), int64(f.cachedTokens), 10)
	b = append(b, "}}"...)
	if f.config.Like != LikeLlamaCPP {
		return b
	}
	return fmt.Appendf(b, `,"timings":{"cache_n":%d,"prompt_n":%d,"predicted_n":%d}`, f.cachedTokens, f.promptTokens-f.cachedTokens, completed)
}

// appendQuoted appends a JSON string. The texts come from valid JSON, so quoting cannot fail.
func appendQuoted(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
