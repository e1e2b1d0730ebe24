// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// MaxHistory is the maximum size of what a session remembers, in bytes: its texts and replies literally, its generated words as ids of
// their blocks.
const MaxHistory = 8 << 20

// ErrHistoryFull says that a session has grown past [MaxHistory]: its later turns cannot be built.
var ErrHistoryFull = errors.New("the session's conversation is longer than moonloop keeps")

// History is the conversation of one delta session so far: its turns, as they were sent, and the live replies between them. The zero
// History has no turns. It belongs to one goroutine at a time.
//
// If prompts are messages, a reply is a message of the assistant, with its tool calls. Otherwise the conversation is one text: the prompt,
// the reply, the next turn, with nothing between them.
type History struct {
	parts  []part
	tools  json.RawMessage // of the last turn that had any
	system []byte          // likewise
	size   int             // bytes held
}

// Fork returns a conversation that begins like this one, and continues independently.
func (h *History) Fork() *History {
	fork := *h
	fork.parts = slices.Clip(h.parts)
	return &fork
}

// Append adds a turn that was served: the row, the prompt that Build made from it with this history, the text of the reply, and its tool
// calls as a JSON array, or nil. A prompt that was built without a history adds nothing. Beyond [MaxHistory] the conversation is dropped,
// and the next Build returns [ErrHistoryFull].
func (h *History) Append(row *mooncake.Row, p Prompt, reply string, toolCalls []byte) {
	if p.turn == nil || h.full() {
		return
	}
	h.size += len(reply) + len(toolCalls) + len(row.Tools) + len(p.system)
	for _, part := range p.turn {
		h.size += len(part.raw)
		if of := part.blocks; of != nil {
			h.size += 8*len(of.ids) + 16*len(of.ranges)
		}
	}
	if h.full() {
		h.parts, h.tools, h.system = nil, nil, nil
		return
	}
	if row.Tools != nil {
		h.tools = row.Tools
	}
	if p.system != nil {
		h.system = p.system
	}
	if !p.endpoint.OfMessages() {
		h.parts = append(append(h.parts, p.turn...), part{raw: inner(nil, reply)})
		return
	}
	if len(h.parts) > 0 {
		h.parts = append(h.parts, part{raw: []byte(",")})
	}
	h.parts = append(append(h.parts, p.turn...), part{raw: p.endpoint.assistant(reply, toolCalls)})
}

// Forgotten returns this many invented tokens for a reply that was lost. They are the same for a row in every process.
func (b *Builder) Forgotten(index, tokens int64) (string, error) {
	const reply = 1 << 31 // indexes of rows in a trace are below it, so no row has these words
	body := newBody(&b.scheme, []part{{blocks: &blocks{row: index | reply}, n: max(0, tokens)}})
	text, err := io.ReadAll(body.Open())
	return string(text), err
}

// assistant returns a reply as a message, after a comma.
func (e Endpoint) assistant(reply string, toolCalls []byte) []byte {
	if e == Messages && len(toolCalls) > 0 {
		return blocksOfReply(reply, toolCalls)
	}
	if e == Responses && len(toolCalls) > 0 {
		return itemsOfReply(reply, toolCalls)
	}
	raw := []byte(`,{"role":"assistant","content":`)
	if reply == "" && len(toolCalls) > 0 {
		raw = append(raw, "null"...)
	} else {
		raw = quote(raw, reply)
	}
	if len(toolCalls) > 0 {
		raw = append(append(raw, `,"tool_calls":`...), toolCalls...)
	}
	return append(raw, '}')
}

func (h *History) full() bool { return h.size > MaxHistory }
