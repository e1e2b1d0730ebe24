// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"cmp"
)

// shape is how a reply differs from the plain one, which the zero shape is. Each way is one that an engine has.
type shape struct {
	// When and how the bytes go out.
	slowAccept bool
	piece      int    // bytes of a write; 0: all that there is
	tokens     int    // least tokens of each chunk after the first
	chunks     int    // chunks of tokens in a write
	closes     bool   // the connection, once the reply is over
	media      string // content type of a stream

	// How an event is written.
	frame   frame
	comment bool // one goes out before the request waits

	// What the events say.
	pad                  int // token ids in the first event
	earlyRole, everyRole bool
	empty                bool // a chunk without text before each with text
	usage                usageShape
	finishOnLast, noDone bool
	finish               string // finish reason
	shortOutput          bool
	shortPrompt          bool
	reasoning            string // the member that has the first half of the tokens
	call                 bool   // a tool call, asked for or not
	second               bool   // a second choice
	unfinished           bool   // which has no end
}

// change makes a plan's reply one of the shape.
func (s *shape) change(p *plan, a api) {
	if s.shortOutput {
		p.tokens = (p.tokens + 1) / 2
	}
	if s.call && a != completions {
		p.tool, p.finish = "simulated", finishToolCalls
	}
	if s.finish != "" {
		p.finish = s.finish
	}
}

// usageShape is where a stream's usage stands.
type usageShape uint8

const (
	usageAsked    usageShape = iota // where the request wants it
	usageNone                       // nowhere
	usageNull                       // null on each chunk, and as asked at the end
	usageZero                       // zeros on each chunk, and an event at the end
	usageGrows                      // the tokens so far on each chunk, and an event at the end
	usageOnFinish                   // on the chunk with the finish reason
)

// frame is the text around an event's data; empty parts are the usual ones.
type frame struct {
	first  string // before the first event of all
	before string // before each event
	field  string // "data: "
	end    string // "\n\n"
	split  bool   // the data stands on two lines
}

const (
	plainField = "data: "
	plainEnd   = "\n\n"
)

// apply returns plain events in the frame; what is no event stays.
func (f *frame) apply(events []byte, first bool) []byte {
	field, end := cmp.Or(f.field, plainField), cmp.Or(f.end, plainEnd)
	var out []byte
	if first {
		out = append(out, f.first...)
	}
	for event := range bytes.SplitAfterSeq(events, []byte(plainEnd)) {
		data, ok := bytes.CutPrefix(event, []byte(plainField))
		if !ok {
			out = append(out, event...)
			continue
		}
		data = bytes.TrimSuffix(data, []byte(plainEnd))
		out = append(append(out, f.before...), field...)
		if head, tail, found := bytes.Cut(data, []byte(`,"`)); f.split && found {
			out = append(append(append(append(out, head...), ",\n"...), field...), '"')
			data = tail
		}
		out = append(append(out, data...), end...)
	}
	return out
}
