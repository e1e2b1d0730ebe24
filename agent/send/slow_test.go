// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"encoding/json"
	"errors"
)

// parseSlowly does what the scanner does, with encoding/json; the scanner is compared with it.
func (c *chunk) parseSlowly(data []byte) bool {
	c.reset()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decode(d, 0)
	root, ok := v.(object)
	if err != nil || !ok {
		return false
	}
	for _, m := range root {
		switch m.key {
		case "choices":
			for _, o := range objects(m.value) {
				c.choices = append(c.choices, choiceOf(o))
			}
		case "usage":
			c.takeUsage(m.value)
		case "id":
			takeText(&c.id, m.value)
		case "model":
			takeText(&c.model, m.value)
		case "error":
			c.failed = c.failed || isFailure(m.value)
		case "object":
			c.failed = c.failed || m.value == "error"
		case "type":
			takeText(&c.typ, m.value)
		case "delta":
			takeText(&c.delta, m.value)
		case "response":
			c.takeResponse(m.value)
		}
	}
	return true
}

func (c *chunk) takeResponse(v any) {
	for _, m := range members(v) {
		switch m.key {
		case "id":
			takeText(&c.id, m.value)
		case "model":
			takeText(&c.model, m.value)
		case "status":
			takeText(&c.status, m.value)
		case "usage":
			c.takeUsage(m.value)
		case "error":
			c.failed = c.failed || isFailure(m.value)
		case "incomplete_details":
			for _, m := range members(m.value) {
				if m.key == "reason" {
					takeText(&c.reason, m.value)
				}
			}
		}
	}
}

func (c *chunk) takeUsage(v any) {
	for _, m := range members(v) {
		switch m.key {
		case "prompt_tokens", "input_tokens":
			c.note(&c.usage.Prompt, number(m.value))
		case "completion_tokens", "output_tokens":
			c.note(&c.usage.Completion, number(m.value))
		case "reasoning_tokens":
			c.note(&c.usage.Reasoning, number(m.value))
		case "prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details":
			for _, m := range members(m.value) {
				switch m.key {
				case "cached_tokens":
					c.note(&c.usage.Cached, number(m.value))
				case "reasoning_tokens":
					c.note(&c.usage.Reasoning, number(m.value))
				}
			}
		}
	}
}

func choiceOf(o object) choice {
	var c choice
	for _, m := range o {
		switch m.key {
		case "delta", "message":
			c.takeDelta(m.value)
		case "text":
			takeFilled(&c.content, m.value)
		case "finish_reason":
			takeText(&c.finish, m.value)
		case "index":
			if n := number(m.value); n != Unknown {
				c.index = n
			}
		case "token_ids":
			if _, ok := m.value.([]any); ok {
				c.tokenIDs, _ = json.Marshal(m.value) // it was valid JSON a moment ago
			}
		}
	}
	return c
}

func (c *choice) takeDelta(v any) {
	for _, m := range members(v) {
		switch m.key {
		case "content", "refusal":
			takeFilled(&c.content, m.value)
		case "reasoning", "reasoning_content":
			takeFilled(&c.reasoning, m.value)
		case "function_call":
			c.takeFunction(m.value)
		case "tool_calls":
			if _, ok := m.value.([]any); !ok {
				continue
			}
			c.tools, _ = json.Marshal(m.value) // it was valid JSON a moment ago
			for _, call := range objects(m.value) {
				for _, m := range call {
					if m.key == "function" {
						c.takeFunction(m.value)
					}
				}
			}
		}
	}
}

func (c *choice) takeFunction(v any) {
	for _, m := range members(v) {
		if s, ok := m.value.(string); ok && (m.key == "name" || m.key == "arguments") {
			c.called = c.called || s != ""
		}
	}
}

// object is a JSON object with its members in order, duplicates included.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the object as it was.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		for j, v := range [...]any{m.key, m.value} {
			if j > 0 {
				b = append(b, ':')
			}
			part, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			b = append(b, part...)
		}
	}
	return append(b, '}'), nil
}

var errTooDeep = errors.New("nested too deeply")

// decode reads one value.
func decode(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	open, ok := t.(json.Delim)
	if err != nil || !ok {
		return t, err
	}
	if depth++; depth > maxDepth {
		return nil, errTooDeep
	}
	list, o := []any{}, object{}
	for d.More() {
		var key any
		if open == '{' {
			if key, err = d.Token(); err != nil {
				return nil, err
			}
		}
		v, err := decode(d, depth)
		if err != nil {
			return nil, err
		}
		if k, ok := key.(string); ok {
			o = append(o, member{k, v})
		} else {
			list = append(list, v)
		}
	}
	if _, err = d.Token(); err != nil {
		return nil, err
	}
	if open == '{' {
		return o, nil
	}
	return list, nil
}

func members(v any) object {
	o, _ := v.(object)
	return o
}

// objects returns the elements of an array that are objects.
func objects(v any) []object {
	list, _ := v.([]any)
	var out []object
	for _, e := range list {
		if o, ok := e.(object); ok {
			out = append(out, o)
		}
	}
	return out
}

func number(v any) int64 {
	n, ok := v.(json.Number)
	if !ok {
		return Unknown
	}
	return digits([]byte(n))
}

func takeText(t *text, v any) {
	s, ok := v.(string)
	if !ok {
		return
	}
	quoted, err := json.Marshal(s)
	if err == nil {
		*t = quoted[1 : len(quoted)-1]
	}
}

func takeFilled(t *text, v any) {
	if v != "" {
		takeText(t, v)
	}
}

// isFailure reports whether the value of an error key is one: null, false and an empty string are not.
func isFailure(v any) bool { return v != nil && v != false && v != "" }
