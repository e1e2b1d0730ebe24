// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// The kinds of prompt, as [Facts].Prompt names them.
const (
	PromptText     = "text"
	PromptTokens   = "tokens"
	PromptMessages = "messages"
)

// render puts the prompt's tokens into the chain.
func (q *request) render(a api, c *chain, t Template) *apiError {
	var err *apiError
	if a.ofMessages() {
		q.facts.Prompt = PromptMessages
		err = q.renderChat(c, t)
	} else {
		err = q.renderPrompt(c, q.prompt, true)
	}
	if err == nil && c.tokens == 0 {
		return badRequest("prompt", "the prompt is empty")
	}
	return err
}

// renderPrompt renders a text or an array of token ids. An outer array with a single text or array is unwrapped.
func (q *request) renderPrompt(c *chain, prompt jsontext.Value, outer bool) *apiError {
	if prompt.Kind() == '"' {
		q.facts.Prompt = PromptText
		return renderText(c, prompt, "prompt")
	}
	if prompt.Kind() != '[' {
		return badRequest("prompt", "prompt must be a text or an array of token ids")
	}
	inside := bytes.TrimLeft(prompt[1:], " \t\r\n")
	if inside[0] != '"' && inside[0] != '[' {
		q.facts.Prompt = PromptTokens
		return renderIDs(c, inside)
	}
	if !outer {
		return badRequest("prompt", "prompt is nested too deeply: it must be a text or an array of token ids")
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(prompt))
	if _, err := dec.ReadToken(); err != nil {
		return notJSON(err)
	}
	value, err := dec.ReadValue()
	if err != nil {
		return notJSON(err)
	}
	end := dec.InputOffset()
	if dec.PeekKind() != ']' {
		return badRequest("prompt", "prompt holds more than one prompt: send one prompt per request")
	}
	return q.renderPrompt(c, prompt[end-int64(len(value)):end], false)
}

// renderIDs reads the integers of a valid JSON array whose opening bracket has been cut off. It is a plain loop because a prompt may
// have more than 100,000 of them.
func renderIDs(c *chain, array []byte) *apiError {
	const limit = 1 << 31
	for i := 0; i < len(array); {
		switch b := array[i]; {
		case b == ',' || b == ' ' || isSpace(b):
			i++
		case b == ']':
			return nil
		case b >= '0' && b <= '9':
			id := uint64(0)
			for ; array[i]-'0' < 10; i++ {
				if id = id*10 + uint64(array[i]-'0'); id >= limit {
					return badRequest("prompt", "token %d of the prompt is out of range: token ids are below 2^31", c.tokens)
				}
			}
			if v := c.tokenizer.Vocabulary; v > 0 && id >= uint64(v) {
				refusal := badRequest("prompt", "token %d of the prompt is out of vocabulary: token ids are below %d", c.tokens, v)
				refusal.late = true
				return refusal
			}
			if b := array[i]; b == '.' || b == 'e' || b == 'E' {
				return badRequest("prompt", "token %d of the prompt is not an integer", c.tokens)
			}
			c.add(id)
		default:
			return badRequest("prompt", "token %d of the prompt is not a non-negative integer: send one prompt per request", c.tokens)
		}
	}
	return nil
}

// renderText adds the words of a JSON string.
func renderText(c *chain, value jsontext.Value, param string) *apiError {
	text := []byte(value[1 : len(value)-1])
	if bytes.IndexByte(text, '\\') >= 0 {
		var err error
		if text, err = jsontext.AppendUnquote(nil, value); err != nil {
			return badRequest(param, "%s holds a text that is not valid JSON", param)
		}
	}
	c.words(text)
	return nil
}

// renderChat renders begin, tools, messages and the header of the reply.
func (q *request) renderChat(c *chain, t Template) *apiError {
	c.special("begin", min(t.PerPrompt, 1))
	if q.tools != nil {
		c.words(q.tools)
	}
	if q.items && q.messages.Kind() == '"' { // one message of the user
		q.messages = slices.Concat(jsontext.Value(`[{"role":"user","content":`), q.messages, jsontext.Value(`}]`))
	}
	if q.messages.Kind() != '[' {
		return badRequest("messages", "messages must be an array")
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(q.messages))
	if _, err := dec.ReadToken(); err != nil {
		return notJSON(err)
	}
	var all []message
	if q.system != nil {
		all = append(all, message{role: "system", content: q.system})
	}
	given := len(all)
	for dec.PeekKind() == '{' {
		m, err := q.readMessage(dec, len(all)-given)
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	if dec.PeekKind() != ']' {
		return badRequest("messages", "messages[%d] must be an object", len(all)-given)
	}
	if len(all) == given {
		return badRequest("messages", "messages is empty")
	}
	home := -1 // the message to which the system text moves
	for i, m := range all {
		if t.SystemLast && m.role == "user" {
			home = i
		}
	}
	for i, m := range all {
		before := c.tokens
		if home < 0 || m.role != "system" {
			c.special(m.role, max(t.PerMessage-1, 0))
			texts := []message{m}
			if i == home {
				texts = append(slices.DeleteFunc(slices.Clone(all), func(s message) bool { return s.role != "system" }), m)
			}
			for _, text := range texts {
				if err := text.renderContent(c); err != nil {
					return err
				}
			}
			c.special("end", min(t.PerMessage, 1))
		}
		q.facts.Messages = append(q.facts.Messages, Message{
			Role: cut(m.role, maxName), Bytes: len(m.content), Tokens: c.tokens - before, ToolCalls: m.toolCalls != nil,
		})
	}
	// The header of the reply is that of an assistant's message, so that the next turn extends this prompt.
	c.special("assistant", max(t.PerPrompt-1, 0))
	return nil
}

// message is one message of a chat; its values alias the body.
type message struct {
	role               string
	content, toolCalls jsontext.Value
}

// readMessage reads the next message, which has the given index.
func (q *request) readMessage(dec *jsontext.Decoder, index int) (m message, _ *apiError) {
	var kind string
	var arguments, output jsontext.Value
	refusal := members(dec, q.messages, func(name string, value jsontext.Value) *apiError {
		switch name {
		case "role":
			if !decode(value, &m.role) {
				return badRequest("messages", "messages[%d].role must be a text", index)
			}
		case "content":
			m.content = value
		case "tool_calls":
			m.toolCalls = value
		case "type":
			_ = decode(value, &kind) // if this fails, the item is read as a message
		case "arguments":
			arguments = value
		case "output":
			output = value
		}
		return nil
	})
	switch {
	case !q.items:
	case kind == "function_call":
		m.role, m.toolCalls = "assistant", arguments
	case kind == "function_call_output":
		m.role, m.content = "tool", output
	case kind == "reasoning":
		m.role, m.content = "assistant", nil
	}
	if refusal == nil && m.role == "" {
		refusal = badRequest("messages", "messages[%d].role is missing", index)
	}
	return m, refusal
}

// renderContent adds the words of a message: a text, or an array of parts of which those with a text count.
func (m *message) renderContent(c *chain) *apiError {
	switch m.content.Kind() {
	case '"':
		if err := renderText(c, m.content, "messages"); err != nil {
			return err
		}
	case '[':
		var parts []struct {
			Text    string         `json:"text"`
			Input   jsontext.Value `json:"input"`   // of a tool_use
			Content jsontext.Value `json:"content"` // of a tool_result
		}
		if !decode(m.content, &parts) {
			return badRequest("messages", "content must be a text or an array of parts")
		}
		for _, p := range parts {
			c.words([]byte(p.Text))
			c.words(p.Input)
			c.words(p.Content)
		}
	case jsontext.KindInvalid: // no content: an assistant's message of tool calls
	default:
		return badRequest("messages", "content must be a text or an array of parts")
	}
	c.words(m.toolCalls)
	return nil
}
