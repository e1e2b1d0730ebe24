// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

// This file translates rows in the form of a chat into that of the Messages API: a system text outside the messages, content in blocks, and
// tool calls and their results among these blocks. Content that has this form already is unchanged.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// chatMessage is a message of a chat.
type chatMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Calls   []chatCall      `json:"tool_calls"`
	CallID  string          `json:"tool_call_id"`
}

type chatCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// block is a block of a message that has another form in the Messages API than in a chat.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	Source    *source         `json:"source,omitempty"`
}

// source is the location of an image.
type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// blocksOf converts the messages of a chat. It returns them without the brackets of their array, and the system text, nil if there is none.
func blocksOf(messages []byte) (turn []part, system []byte, err error) {
	bad := fmt.Errorf("%w: messages: want an array of at least one message with role and content", ErrRow)
	var list []json.RawMessage
	if json.Unmarshal(messages, &list) != nil {
		return nil, nil, bad
	}
	var instructions []string
	var out [][]byte
	for _, raw := range list {
		var m chatMessage
		if json.Unmarshal(raw, &m) != nil || m.Role == "" {
			return nil, nil, bad
		}
		if m.Role == "system" || m.Role == "developer" {
			text, ok := textOf(m.Content)
			if !ok {
				return nil, nil, fmt.Errorf("%w: messages: a system message that is not text", ErrRow)
			}
			instructions = append(instructions, text)
			continue
		}
		one, err := m.blocks(raw)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return nil, nil, bad
	}
	if instructions != nil {
		system = quote(nil, strings.Join(instructions, "\n\n"))
	}
	return []part{{raw: bytes.Join(out, []byte(","))}}, system, nil
}

// blocks returns the message in the form of the Messages API.
func (m *chatMessage) blocks(raw []byte) ([]byte, error) {
	switch {
	case m.Role == "tool":
		content := m.Content
		if text, ok := textOf(content); ok {
			content = quote(nil, text)
		}
		return saying("user", []block{{Type: "tool_result", ToolUseID: m.CallID, Content: content}})
	case len(m.Calls) > 0:
		var list []block
		if text, ok := textOf(m.Content); ok && text != "" {
			list = append(list, block{Type: "text", Text: text})
		}
		for _, c := range m.Calls {
			list = append(list, c.block())
		}
		return saying("assistant", list)
	case bytes.HasPrefix(bytes.TrimSpace(m.Content), []byte("[")):
		content, err := imagesOf(m.Content)
		if err != nil || content == nil {
			return oneLine(jsontext.Value(raw)), err
		}
		return saying(m.Role, content)
	}
	return oneLine(jsontext.Value(raw)), nil
}

// block returns a call as a block. Arguments that are not a JSON object cannot be expressed, and are left out.
func (c *chatCall) block() block {
	input := json.RawMessage("{}")
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(c.Function.Arguments), &object) == nil && object != nil {
		input = json.RawMessage(c.Function.Arguments)
	}
	return block{Type: "tool_use", ID: c.ID, Name: c.Function.Name, Input: input}
}

func saying(role string, content any) ([]byte, error) {
	raw, err := json.Marshal(struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	}{role, content})
	if err != nil {
		return nil, fmt.Errorf("%w: messages: %w", ErrRow, err)
	}
	return raw, nil
}

// textOf returns the text of a content that is a text, or consists of texts; ok is false for any other content.
func textOf(content json.RawMessage) (text string, ok bool) {
	if json.Unmarshal(content, &text) == nil {
		return text, true
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(content, &parts) != nil {
		return "", false
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return "", false
		}
		b.WriteString(p.Text)
	}
	return b.String(), true
}

// imagesOf returns the parts of a content, with its images as blocks; nil if no part is an image in a chat's form.
func imagesOf(content json.RawMessage) ([]json.RawMessage, error) {
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return nil, fmt.Errorf("%w: messages: content that is neither a text nor parts", ErrRow)
	}
	found := false
	for i, raw := range parts {
		var p struct {
			Type     string `json:"type"`
			ImageURL struct {
				URL string `json:"url"`
			} `json:"image_url"`
		}
		if json.Unmarshal(raw, &p) != nil || p.Type != "image_url" {
			continue
		}
		found = true
		from := &source{Type: "url", URL: p.ImageURL.URL}
		if media, data, inline := strings.Cut(strings.TrimPrefix(p.ImageURL.URL, "data:"), ";base64,"); inline {
			from = &source{Type: "base64", MediaType: media, Data: data}
		}
		parts[i], _ = json.Marshal(block{Type: "image", Source: from}) // texts always marshal
	}
	if !found {
		return nil, nil
	}
	return parts, nil
}

// blocksOfReply returns a reply with tool calls as a message, after a comma.
func blocksOfReply(reply string, toolCalls []byte) []byte {
	var calls []chatCall
	_ = json.Unmarshal(toolCalls, &calls) // the client wrote them
	var list []block
	if reply != "" {
		list = append(list, block{Type: "text", Text: reply})
	}
	for _, c := range calls {
		list = append(list, c.block())
	}
	raw, _ := saying("assistant", list) // it always marshals
	return append([]byte(","), raw...)
}

// toolsOf returns tools in the form of the Messages API; nil for none.
func toolsOf(tools json.RawMessage) (json.RawMessage, error) {
	return mapTools(tools, func(raw json.RawMessage) json.RawMessage {
		var tool struct {
			Function *struct {
				Name        string          `json:"name"`
				Description string          `json:"description,omitempty"`
				Parameters  json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		if json.Unmarshal(raw, &tool) != nil || tool.Function == nil {
			return raw
		}
		schema := tool.Function.Parameters
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		out, _ := json.Marshal(struct { // parts of valid JSON
			Name        string          `json:"name"`
			Description string          `json:"description,omitempty"`
			Schema      json.RawMessage `json:"input_schema"`
		}{tool.Function.Name, tool.Function.Description, schema})
		return out
	})
}

// mapTools converts tools of the Chat Completions API to another API's form; nil for none. Tools that translate does not know are
// unchanged: they have the other form already, or the engine refuses them.
func mapTools(tools json.RawMessage, translate func(json.RawMessage) json.RawMessage) (json.RawMessage, error) {
	var list []json.RawMessage
	if len(tools) == 0 {
		return nil, nil
	}
	if json.Unmarshal(tools, &list) != nil {
		return nil, fmt.Errorf("%w: tools: want an array", ErrRow)
	}
	for i, raw := range list {
		list[i] = translate(raw)
	}
	out, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("%w: tools: %w", ErrRow, err)
	}
	return out, nil
}
