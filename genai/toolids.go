// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

// This file finds the ids of tool calls. A request whose prompt ends with the result of a call follows the request whose reply made the
// call, whatever their spans show. The ids are in the telemetry even if its producer records no text.

import "slices"

// MaxToolIDs is the maximum number of ids of each kind in a record.
const MaxToolIDs = 64

// ToolIDs are ids of tool calls, as chosen by their engine or client: many choose them at random, and some count from 0 in each
// conversation. Hash them; do not store them. Each has at most 256 bytes.
type ToolIDs struct {
	// Made are the ids of the calls that the reply made. They are known after the reply has been walked.
	Made []string
	// Given are the ids of the calls whose results end the prompt, after the last message of the assistant. They are known after the
	// content has been walked. For the run of a tool, Given is the call that the tool answers.
	Given []string
	// Spoke is true if the prompt has a message of the assistant. If the prompt has several log records, the results in another record
	// then end the prompt only if that record comes after this one.
	Spoke bool
	// SurplusMade and SurplusGiven are the numbers of ids that were left out because they were too long or too many.
	SurplusMade, SurplusGiven int64
}

// forget lets go of all ids.
func (ids *ToolIDs) forget() {
	for _, list := range [...][]string{ids.Made, ids.Given} {
		clear(list[:cap(list)])
	}
}

// ReadTools finds the calls that the reply made, unless it has been walked.
func (r *Record) ReadTools() {
	if !r.Reply.walked {
		r.Reply.Walk(func(Piece) bool { return false })
	}
}

// The types of parts and items that are calls, and of those that are results of calls.
var (
	callTypes = map[string]bool{
		"tool_call": true, "tool-call": true, "tool_use": true, "function_call": true, "custom_tool_call": true,
	}
	resultTypes = map[string]bool{
		"tool_call_response": true, "tool-result": true, "tool_result": true, "tool-return": true, "function_call_output": true,
		"custom_tool_call_output": true, "tool": true,
	}
)

// toolScan looks through a tree for the calls that a reply made, or for the results that end a prompt.
type toolScan struct {
	t       *tree
	reply   bool
	found   []string
	spoke   bool
	surplus int64
}

// scan searches a node and all nodes within it.
func (s *toolScan) scan(t *tree, n int32, reply bool) {
	*s = toolScan{t: t, reply: reply, found: s.found[:0]}
	for i := n; i < t.nodes[n].next; i++ {
		if t.nodes[i].kind == nodeObject {
			s.object(i)
		}
	}
}

// object reads one object. The nodes within it are searched separately.
func (s *toolScan) object(n int32) {
	t := s.t
	kind, role := t.word(t.get(n, "type", "kind")), canonicalRole(t.word(t.get(n, "role")))
	switch call := t.get(n, "toolRequest", "functionCall"); {
	case callTypes[kind]:
		s.call(n)
	case t.kind(call) == nodeObject:
		s.call(call)
	case resultTypes[kind]:
		s.result(t.callID(n))
	case s.reply && t.get(n, "toolCallId") != none: // in a list of only calls
		s.call(n)
	case role == "tool":
		s.message(n)
	case role == assistant || canonicalRole(kind) == assistant:
		s.speak()
	}
	if response := t.get(n, "toolResponse", "functionResponse", "function_response"); t.kind(response) == nodeObject {
		s.result(t.callID(response))
	}
	if calls := t.get(n, "tool_calls", "toolCalls"); t.kind(calls) == nodeArray {
		for call := range t.values(calls) {
			s.call(t.unwrap(call, "tool_call"))
		}
	}
}

// message reads a message that is a result. If its parts have the results, its own id does not belong to a call.
func (s *toolScan) message(n int32) {
	if id := s.t.get(n, "tool_call_id", "toolCallId", "call_id"); id != none {
		s.result(id)
	} else if s.t.kind(s.t.get(n, "parts", "content")) != nodeArray {
		s.result(s.t.get(n, "id"))
	}
}

// call reads a call: of a reply, or of the assistant in the history of a prompt.
func (s *toolScan) call(n int32) {
	if s.speak(); s.reply {
		s.add(s.t.callID(n))
	}
}

// speak records a message of the assistant: results before it do not end the prompt.
func (s *toolScan) speak() {
	if !s.reply {
		s.found, s.spoke, s.surplus = s.found[:0], true, 0
	}
}

func (s *toolScan) result(id int32) {
	if !s.reply {
		s.add(id)
	}
}

// add adds the id at a node, if there is one. Of too many, the last ones are kept.
func (s *toolScan) add(n int32) {
	if n == none {
		return
	}
	id := s.t.str(n)
	switch {
	case id == "": // too long, or not a text
		s.surplus++
		return
	case slices.Contains(s.found, id):
		return
	case len(s.found) == MaxToolIDs:
		s.found = slices.Delete(s.found, 0, 1)
		s.surplus++
	}
	s.found = append(s.found, id)
}

// callID returns the id of a call, given the call or its result. Some objects also have an id of their
// own, which counts only if there is no other.
func (t *tree) callID(n int32) int32 {
	return t.get(n, "call_id", "toolCallId", "tool_call_id", "tool_use_id", "id", "ref")
}

// word returns a string that has no escapes, or "".
func (t *tree) word(n int32) string {
	if t.kind(n) != nodeString || t.nodes[n].escaped {
		return ""
	}
	return t.nodes[n].text
}

// promptTools finds the results that end a prompt, if its end is known.
func (c *Content) promptTools(w *walker, list int32) {
	if t := &w.main; !t.cut && (c.form != formFlat || !c.dropped) {
		s, ids := &c.reader.tools, &c.reader.record.Tools
		s.scan(t, list, false)
		ids.Given, ids.Spoke, ids.SurplusGiven = append(ids.Given[:0], s.found...), s.spoke, s.surplus
	}
}

// replyTools finds the calls that a reply made. The reply may be incomplete, or one of several.
func (r *Reply) replyTools(t *tree) {
	if t.empty() {
		return
	}
	s, ids := &r.reader.tools, &r.reader.record.Tools
	s.scan(t, 0, true)
	ids.Made, ids.SurplusMade = append(ids.Made[:0], s.found...), s.surplus
}
