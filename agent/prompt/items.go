// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

// This file translates rows in the form of a chat into that of the Responses API: tool calls and their results are items next to the
// messages, parts of content have other names, and tools have no member "function". Content that has this form already is unchanged.

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// item is an item of that API that is not a message: a tool call, or its result.
type item struct {
	Type      string          `json:"type"`
	CallID    string          `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments string          `json:"arguments,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
}

// itemsOf returns the messages of a chat as items, without the brackets of their array.
func itemsOf(messages []byte) ([]part, error) {
	var list []json.RawMessage
	if json.Unmarshal(messages, &list) != nil || len(list) == 0 {
		return nil, fmt.Errorf("%w: messages: want an array of at least one message with role and content", ErrRow)
	}
	var out [][]byte
	for _, raw := range list {
		var m chatMessage
		if json.Unmarshal(raw, &m) != nil {
			return nil, fmt.Errorf("%w: messages: want an array of messages with role and content", ErrRow)
		}
		items, err := m.items(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
	}
	return []part{{raw: bytes.Join(out, []byte(","))}}, nil
}

// items returns the message in the form of the Responses API.
func (m *chatMessage) items(raw []byte) (out [][]byte, err error) {
	add := func(v any) {
		b, wrong := json.Marshal(v)
		if out = append(out, b); wrong != nil {
			err = fmt.Errorf("%w: messages: %w", ErrRow, wrong)
		}
	}
	switch {
	case m.Role == "tool":
		output := m.Content
		if text, ok := textOf(output); ok {
			output = quote(nil, text)
		}
		add(item{Type: "function_call_output", CallID: m.CallID, Output: output})
	case len(m.Calls) > 0:
		if text, ok := textOf(m.Content); ok && text != "" {
			add(struct {
				Role    string `json:"role"`
				Content string `json:"content"`
			}{m.Role, text})
		}
		for _, c := range m.Calls {
			add(item{Type: "function_call", CallID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
	case bytes.HasPrefix(bytes.TrimSpace(m.Content), []byte("[")):
		content, known := m.inputs()
		if !known {
			return [][]byte{oneLine(jsontext.Value(raw))}, nil
		}
		one, wrong := saying(m.Role, content)
		return [][]byte{one}, wrong
	default:
		return [][]byte{oneLine(jsontext.Value(raw))}, nil
	}
	return out, err
}

// inputs returns the parts of a message with their names in the Responses API; false if no part has a name that a chat uses.
func (m *chatMessage) inputs() ([]json.RawMessage, bool) {
	var parts []json.RawMessage
	if json.Unmarshal(m.Content, &parts) != nil {
		return nil, false // for the engine to refuse
	}
	text := "input_text"
	if m.Role == "assistant" {
		text = "output_text"
	}
	found := false
	for i, raw := range parts {
		var p struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			ImageURL struct {
				URL    string `json:"url"`
				Detail string `json:"detail"`
			} `json:"image_url"`
		}
		if json.Unmarshal(raw, &p) != nil {
			continue
		}
		var other any
		switch p.Type {
		case "text":
			other = struct {
				Type string `json:"type"`
				Text string `json:"text"`
			}{text, p.Text}
		case "image_url":
			other = struct {
				Type   string `json:"type"`
				URL    string `json:"image_url"`
				Detail string `json:"detail,omitempty"`
			}{"input_image", p.ImageURL.URL, p.ImageURL.Detail}
		default:
			continue
		}
		parts[i], _ = json.Marshal(other) // texts always marshal
		found = true
	}
	return parts, found
}

// itemsOfReply returns a reply with tool calls as items, after a comma.
func itemsOfReply(reply string, toolCalls []byte) []byte {
	m := chatMessage{Role: "assistant", Content: quote(nil, reply)}
	_ = json.Unmarshal(toolCalls, &m.Calls) // the client wrote them
	items, _ := m.items(nil)                // they always marshal
	return append([]byte(","), bytes.Join(items, []byte(","))...)
}

// functionsOf returns tools in the form of the Responses API; nil for none.
func functionsOf(tools json.RawMessage) (json.RawMessage, error) {
	return mapTools(tools, func(raw json.RawMessage) json.RawMessage {
		var tool struct {
			Function map[string]json.RawMessage `json:"function"`
		}
		if json.Unmarshal(raw, &tool) != nil || tool.Function == nil {
			return raw
		}
		tool.Function["type"] = json.RawMessage(`"function"`)
		out, _ := json.Marshal(tool.Function) // parts of valid JSON
		return out
	})
}
