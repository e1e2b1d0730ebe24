// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"cmp"
)

// shape says how a reply differs from the plain one, which is the zero shape. Each of these differences exists in some engine.
type shape struct {
	// When and how the bytes are sent.
	slowAccept bool
	piece      int    // bytes of a write; 0: all that are ready
	tokens     int    // least number of tokens in each chunk after the first
	chunks     int    // chunks of tokens in a write
	closes     bool   // the connection closes at the reply's end
	media      string // content type of a stream

	// How an event is written.
	frame   frame
	comment bool // a comment is sent before the request waits

	// The content of the events.
	pad                  int // token ids in the first event
	earlyRole, everyRole bool
	empty                bool // a chunk without text before each with text
	usage                usageShape
	finishOnLast, noDone bool
	finish               string // finish reason
	shortOutput          bool
	shortPrompt          bool
	reasoning            string // the member that has the first half of the tokens
	call                 bool   // the reply is a tool call even if none was asked for
	second               bool   // there is a second choice
	unfinished           bool   // the second choice has no end
}

// change adapts a plan to the shape.
func (s *shape) change(p *plan, a api) {
	if s.shortOutput {
		p.tokens = (p.tokens + 1) / 2
	}
	if s.call && a.ofMessages() {
		p.tool, p.finish = "simulated", finishToolCalls
	}
	if s.finish != "" && a != embeddings {
		p.finish = s.finish
	}
}

// usageShape says where a stream reports its usage.
type usageShape uint8

const (
	usageAsked    usageShape = iota // where the request wants it
	usageNone                       // nowhere
	usageNull                       // null on each chunk, and at the end where the request wants it
	usageZero                       // zeros on each chunk, and an event at the end
	usageGrows                      // the tokens so far on each chunk, and an event at the end
	usageOnFinish                   // on the chunk with the finish reason
)

// frame is the text around an event's data. Empty fields mean the usual text.
type frame struct {
	first  string // before the first event of all
	before string // before each event
	field  string // "data: "
	end    string // "\n\n"
	split  bool   // the data is written as two lines
}

const (
	plainField = "data: "
	plainEnd   = "\n\n"
)

// apply returns plain events in the frame, and anything else as it is.
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
