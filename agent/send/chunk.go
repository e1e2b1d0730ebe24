// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"encoding/json"
)

// text is the content of a JSON string: without its quotes, with its escapes. It is valid as long as the event.
type text []byte

// append decodes the text and appends it to b. Invalid text is appended unchanged.
func (t text) append(b []byte) []byte {
	if bytes.IndexByte(t, '\\') < 0 {
		return append(b, t...)
	}
	quoted := make([]byte, 0, len(t)+2)
	quoted = append(append(append(quoted, '"'), t...), '"')
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return append(b, t...)
	}
	return append(b, s...)
}

// String decodes the text.
func (t text) String() string { return string(t.append(nil)) }

// is reports whether the decoded text is s.
func (t text) is(s string) bool {
	if bytes.IndexByte(t, '\\') < 0 {
		return string(t) == s
	}
	return t.String() == s
}

// chunk has the relevant parts of one event of a stream, or of a whole reply.
type chunk struct {
	choices   []choice
	usage     Usage
	hasUsage  bool // usage has a count
	failed    bool // it reports an error
	id, model text

	// For the Responses API: the event's type, its text, its response's status and why that is incomplete.
	typ, delta, status, reason text
	whole                      response // if it is a whole reply of that API
	output                     []byte   // the raw array of output items of a whole reply, or of the last event of a stream
}

// response is a whole reply of the Responses API.
type response struct {
	is             bool
	status, reason text
	text           text // of its last message
}

// choice is one element of choices: a delta, a message, or a completion's text.
type choice struct {
	index     int64
	content   text // content, text or refusal
	reasoning text // reasoning or reasoning_content
	finish    text
	tools     []byte // the raw array of tool calls
	called    bool   // the name or the arguments of a call are not empty
	tokenIDs  []byte // the raw array of the choice's token ids
}

// answered reports whether the choice has a token that is not reasoning. Role-only, empty and finish-only choices have none.
func (c *choice) answered() bool { return len(c.content) > 0 || c.called }

// produced reports whether the choice has a token.
func (c *choice) produced() bool { return c.answered() || len(c.reasoning) > 0 }

// reset empties the chunk and keeps its memory.
func (c *chunk) reset() { *c = chunk{choices: c.choices[:0], usage: NoUsage} }

// parse reads one JSON object. It returns false if the text is not a whole object.
func (c *chunk) parse(data []byte) bool {
	c.reset()
	s := scanner{data: data, out: c}
	return s.root()
}

// refuses reports whether a document is a JSON object that reports an error, whatever its status.
func (c *chunk) refuses(data []byte) bool { return c.parse(data) && c.failed }

// maxCount is larger than the number of tokens of any prompt or reply. A count above it is ignored.
const maxCount = 1 << 31

// note stores a count that the server sent in p, unless it is Unknown or too large.
func (c *chunk) note(p *int64, n int64) {
	if n != Unknown && n <= maxCount {
		*p, c.hasUsage = n, true
	}
}

// digits reads a count of at most 18 digits; anything else is Unknown.
func digits(b []byte) int64 {
	if len(b) == 0 || len(b) > 18 {
		return Unknown
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return Unknown
		}
		n = n*10 + int64(c-'0')
	}
	return n
}
