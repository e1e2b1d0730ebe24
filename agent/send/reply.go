// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"strings"
)

const maxToolCalls = 128

// reply reassembles choice 0 of a stream.
type reply struct {
	text   []byte
	calls  []partialCall
	size   int // bytes in calls
	tokens []uint32
	partly bool // a choice with a token had no token ids, or invalid ones
}

// toolCall is one call, in the form in which the next request contains it.
type toolCall struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// partialCall has the pieces of a call so far.
type partialCall struct {
	kind                string
	id, name, arguments []byte
}

// toolPiece is a call or a piece of one.
type toolPiece struct {
	toolCall

	Index *int `json:"index"`
}

// add adds a choice. All choices together may have at most bound bytes.
func (r *reply) add(c *choice, bound int) error {
	r.text = c.content.append(r.text)
	if len(c.tools) > 0 {
		if err := r.addCalls(c.tools); err != nil {
			return err
		}
	}
	r.addTokens(c)
	if len(r.text)+r.size+4*len(r.tokens) > bound {
		return errReplyKept
	}
	return nil
}

// addCalls adds an array of calls or pieces of calls: those of one index belong together.
func (r *reply) addCalls(array []byte) error {
	var pieces []toolPiece
	if err := json.Unmarshal(array, &pieces); err != nil {
		return errBadToolCall
	}
	for i, p := range pieces {
		at := i
		if p.Index != nil {
			at = *p.Index
		}
		if at < 0 || at >= maxToolCalls {
			return errTooManyCalls
		}
		for len(r.calls) <= at {
			r.calls = append(r.calls, partialCall{})
		}
		c := &r.calls[at]
		c.kind = cmp.Or(p.Type, c.kind)
		c.id = append(c.id, p.ID...)
		c.name = append(c.name, p.Function.Name...)
		c.arguments = append(c.arguments, p.Function.Arguments...)
		r.size += len(p.ID) + len(p.Function.Name) + len(p.Function.Arguments)
	}
	return nil
}

// addTokens adds a choice's token ids.
func (r *reply) addTokens(c *choice) {
	if len(c.tokenIDs) == 0 {
		r.partly = r.partly || c.produced()
		return
	}
	for rest := c.tokenIDs[1 : len(c.tokenIDs)-1]; len(rest) > 0 && !r.partly; {
		var id []byte
		id, rest, _ = bytes.Cut(rest, []byte(","))
		n := digits(bytes.TrimSpace(id))
		if r.partly = n < 0 || n > math.MaxUint32; r.partly {
			return
		}
		r.tokens = append(r.tokens, uint32(n)) //nolint:gosec // bounded above
	}
}

// copyTo sets the exchange's reply.
func (r *reply) copyTo(x *Exchange) {
	if !r.partly {
		x.ReplyTokens = r.tokens
	}
	x.Reply = strings.ToValidUTF8(string(r.text), "\ufffd")
	var calls []toolCall
	for _, c := range r.calls {
		if len(c.name)+len(c.arguments) > 0 {
			call := toolCall{ID: string(c.id), Type: cmp.Or(c.kind, "function")}
			call.Function.Name, call.Function.Arguments = string(c.name), string(c.arguments)
			calls = append(calls, call)
		}
	}
	if calls != nil {
		x.ToolCalls, _ = json.Marshal(calls) // strings always marshal
	}
}
