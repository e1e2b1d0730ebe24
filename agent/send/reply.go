// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

const maxToolCalls = 128

// reply puts choice 0 of a stream together again.
type reply struct {
	text  []byte
	calls []toolCall
	size  int // bytes in calls
}

// toolCall is one call, in the form in which the next request carries it.
type toolCall struct {
	ID       string `json:"id,omitempty"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// add takes a choice, at most max bytes in all.
func (r *reply) add(c *choice, bound int) error {
	r.text = c.content.append(r.text)
	if len(c.tools) > 0 {
		if err := r.addCalls(c.tools); err != nil {
			return err
		}
	}
	if len(r.text)+r.size > bound {
		return errReplyKept
	}
	return nil
}

// addCalls takes an array of calls or pieces of calls: those of one index belong together.
func (r *reply) addCalls(array []byte) error {
	var pieces []struct {
		toolCall

		Index *int `json:"index"`
	}
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
			r.calls = append(r.calls, toolCall{})
		}
		c := &r.calls[at]
		c.ID, c.Type = c.ID+p.ID, cmp.Or(p.Type, c.Type)
		c.Function.Name += p.Function.Name
		c.Function.Arguments += p.Function.Arguments
		r.size += len(p.ID) + len(p.Function.Name) + len(p.Function.Arguments)
	}
	return nil
}

// copyTo sets the exchange's reply.
func (r *reply) copyTo(x *Exchange) {
	x.Reply = strings.ToValidUTF8(string(r.text), "\ufffd")
	calls := slices.DeleteFunc(r.calls, func(c toolCall) bool { return c.Function.Name == "" && c.Function.Arguments == "" })
	if len(calls) == 0 {
		return
	}
	for i := range calls {
		if calls[i].Type == "" {
			calls[i].Type = "function"
		}
	}
	x.ToolCalls, _ = json.Marshal(calls) // strings always marshal
}
