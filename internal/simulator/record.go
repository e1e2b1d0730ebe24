// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Never marks an instant that was not reached.
const Never time.Duration = -1

// Absent marks a count that the request did not give.
const Absent = -1

// Outcome is how a request ended.
type Outcome string

// The outcomes.
const (
	Finished   Outcome = "finished"    // the whole reply was written
	Rejected   Outcome = "rejected"    // answered with an error of the engine's own
	ClientGone Outcome = "client_gone" // the client left first
	Faulted    Outcome = "fault"       // served with the fault that Record.Fault names
	Closed     Outcome = "closed"      // the engine was closed first
)

// Record is the truth about one request to a generation endpoint. Instants are offsets from [Engine.Start] on the
// monotonic clock, [Never] when not reached. Records are not changed once they are visible.
type Record struct {
	Seq    uint64 `json:"seq"`  // from 1, in the order in which headers were received
	Conn   uint64 `json:"conn"` // number of the connection, from 1; 0 without [Engine.NewServer]
	Path   string `json:"path"`
	Proto  string `json:"proto"`            // "HTTP/1.1"
	Header Header `json:"header,omitempty"` // Traceparent, X-Request-Id and those of [Recording].Headers
	// Authorized is whether an Authorization or X-Api-Key header was present.
	Authorized bool  `json:"authorized"`
	Request    Facts `json:"request"`

	PromptTokens int    `json:"prompt_tokens"`
	PromptHash   Hash   `json:"prompt_hash"` // of all tokens of the prompt; model and salt are not in it
	Blocks       []Hash `json:"blocks,omitempty"`
	CachedTokens int    `json:"cached_tokens"`
	OutputTokens int    `json:"output_tokens"` // tokens written, or, of a whole reply, generated

	ConnAccepted time.Duration `json:"conn_accepted_ns"`
	Headers      time.Duration `json:"headers_ns"`      // the handler began: the request's headers had been read
	Received     time.Duration `json:"received_ns"`     // the kernel had the request's last byte; see [Engine.Stamped]
	BodyRead     time.Duration `json:"body_read_ns"`    // the engine had read it
	Admitted     time.Duration `json:"admitted_ns"`     // the request was allowed to run
	PrefillDone  time.Duration `json:"prefill_done_ns"` // the first token was ready
	Ended        time.Duration `json:"ended_ns"`        // after the last write, or the time of the failure
	// Time is the wall clock at Headers.
	Time time.Time `json:"time"`
	// Writes are the writes of the reply's body, each stamped just before the call. Those of a stream's role, finish
	// reason, usage and end have 0 tokens, except that a role that is sent with the first token shares its write.
	Writes Writes `json:"writes,omitempty"`

	BytesIn  int64 `json:"bytes_in"`  // of the request's body
	BytesOut int64 `json:"bytes_out"` // of the reply's body

	Status       int     `json:"status"` // HTTP status; 0 when none was sent
	FinishReason string  `json:"finish_reason,omitempty"`
	Outcome      Outcome `json:"outcome"`
	Fault        Fault   `json:"fault,omitempty"` // the fault that was chosen for the request, whether or not it took effect
	// Error says why the request was rejected, without text of the request.
	Error string `json:"error,omitempty"`

	Body []byte `json:"body,omitempty"` // with [Recording].Bodies
}

// Arrived returns the time at which the request had arrived completely: when the kernel had it, or, if that is unknown, when the engine
// had read it.
func (r *Record) Arrived() time.Duration {
	if r.Received > 0 { // a record written by others may lack it
		return r.Received
	}
	return r.BodyRead
}

// Header is a set of recorded headers.
type Header = http.Header

// Facts are what a request's body asked for.
type Facts struct {
	Model string `json:"model"`
	// Prompt is the kind of the prompt: [PromptText], [PromptTokens] or [PromptMessages].
	Prompt    string    `json:"prompt"`
	Stream    bool      `json:"stream"`
	MaxTokens int       `json:"max_tokens"` // max_completion_tokens, else max_tokens, else Absent
	MinTokens int       `json:"min_tokens"` // or Absent
	IgnoreEOS bool      `json:"ignore_eos"`
	CacheSalt bool      `json:"cache_salt"` // whether one was given
	Messages  []Message `json:"messages,omitempty"`
	Tools     int       `json:"tools"`
	// Extra names the fields that have no effect here (temperature, ...), in order, at most 64.
	Extra []string `json:"extra,omitempty"`
}

// Message is one message of a chat, without its text.
type Message struct {
	Role      string `json:"role"`
	Bytes     int    `json:"bytes"`  // of its content as JSON
	Tokens    int    `json:"tokens"` // rendered, template included
	ToolCalls bool   `json:"tool_calls,omitempty"`
}

// Write is one write of a reply's body.
type Write struct {
	At     time.Duration
	Tokens int
}

// Writes are written to JSON as an array of [nanoseconds, tokens].
type Writes []Write

// MarshalJSON implements [encoding/json.Marshaler].
func (w Writes) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+20*len(w))
	b = append(b, '[')
	for i, v := range w {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(v.At), 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, int64(v.Tokens), 10)
		b = append(b, ']')
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (w *Writes) UnmarshalJSON(b []byte) error {
	var pairs [][2]int64
	if err := json.Unmarshal(b, &pairs); err != nil {
		return fmt.Errorf("simulator: writes must be an array of [nanoseconds, tokens]: %w", err)
	}
	*w = make(Writes, len(pairs))
	for i, p := range pairs {
		(*w)[i] = Write{At: time.Duration(p[0]), Tokens: int(p[1])}
	}
	return nil
}

// Hash is a 64-bit digest, written as 16 hexadecimal digits.
type Hash uint64

// String returns the 16 digits.
func (h Hash) String() string { return fmt.Sprintf("%016x", uint64(h)) }

// MarshalText implements [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (h *Hash) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil {
		return fmt.Errorf("simulator: a hash must be 16 hexadecimal digits: %w", err)
	}
	*h = Hash(n)
	return nil
}

// bytes estimates the memory that the record holds.
func (r *Record) bytes() int64 {
	const fixed = 1024 // the structure, headers, names
	return int64(fixed + 16*cap(r.Writes) + 8*cap(r.Blocks) + cap(r.Body) + 64*cap(r.Request.Messages))
}
