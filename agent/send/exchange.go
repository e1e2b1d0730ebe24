// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// Body opens the request's body afresh for each attempt. The reader yields exactly Size bytes.
type Body struct {
	Size int64
	Open func() io.Reader
}

// Request is what one exchange sends.
type Request struct {
	Path   string      // joined to the client's base URL, e.g. "/v1/chat/completions"
	Header http.Header // added to the client's own headers (traceparent, session headers); may be nil
	// Session is the one that the request belongs to, where each has connections of its own ([ReuseSession]); empty: none.
	Session string
	Body    Body
	API     API  // the form of the reply
	Stream  bool // whether the body asks for a stream; a reply of the other kind is an error of class "protocol"
	// ExpectTokens is the number of output tokens asked for, a hint for the stamp arrays; 0 when unknown.
	ExpectTokens int
	// KeepReply keeps the reply's text and tool calls, for sessions that carry them forward.
	KeepReply bool
	// Gate, unless nil, holds the request back until it is open.
	Gate *Gate
	// HangUp closes the connection this long after the last byte of the request was sent, unless the reply is complete by then:
	// the class is then ClassDisconnected. 0 = never.
	HangUp time.Duration
	// First, unless nil, is called with the arrival of the first content of a stream, on the goroutine that reads it.
	First func(at time.Duration)
}

// Exchange is everything that one request and its reply showed. Instants are offsets on the run's clock;
// clock.Never marks those that were not reached.
type Exchange struct {
	// Start is the instant at which the request was handed to the transport, or let through its gate.
	Start time.Duration
	// Wire is the instant at which the last byte of the request had been given to the kernel. Every
	// gen_ai.* latency counts from here.
	Wire time.Duration
	// WireLate says that the stamp of the last byte was taken when the reply had come already. Wire is then FirstByte, which it
	// cannot be after, and no measurement: no latency counts from it.
	WireLate bool
	// FirstByte is the arrival of the first byte of the reply's status line, Headers the end of its headers.
	FirstByte, Headers time.Duration
	// FirstEvent is the arrival of the first event with a choice, role-only ones included (the
	// first-token rule of vLLM's bench client).
	FirstEvent time.Duration
	// End is the arrival of the reply's last byte, or the instant of the failure. Do returns later where a server
	// leaves a stream open that has said all: up to 100 ms after [DONE] (or the final usage), after which the connection
	// is dropped; up to 5 s after a finish reason alone, since usage may still come.
	End time.Duration
	// Phases are the connection's part of the time before Wire.
	Phases Phases

	// At holds the arrival of each content chunk in order: a chunk with non-empty content, reasoning, text
	// or tool-call delta. Its length is the number of chunks. Nanoseconds on the run's clock.
	At []int64
	// Read holds for each chunk the number of the socket read that brought it. Two neighbours with one
	// number arrived in one read; see Coalesced.
	Read []uint32
	// Tokens holds the number of tokens of each chunk where the server said it (cumulative usage), else nil.
	Tokens []int32
	// Coalesced counts the chunks that came with their predecessor in one read although they had
	// been sent apart: their gap is unknown, not 0. Without kernel stamps every chunk that shares its predecessor's
	// read number counts, since nothing tells a late read from a server that writes several chunks at once. With
	// kernel stamps those of a read do not count that was waiting when the bytes came and had them within 0.5 ms
	// of the kernel: they came in one segment, or so close together that the exact stamp of the last is that of all.
	Coalesced int
	// FirstAnswer is the arrival of the first non-reasoning content.
	FirstAnswer time.Duration

	// Usage is the last that was reported.
	Usage        Usage
	FinishReason string // of choice 0, as the server spelled it; empty when none came
	ResponseID   string
	Instance     string // the instance behind a router, as a header of the reply names it; empty when none does
	Model        string // the model that the reply names
	Status       int    // HTTP status; 0 when no reply came
	Attempts     int    // 1 unless retried
	// Replays counts how often the request was sent again on another connection because the kept one died before a
	// byte of the reply came. A server that closes while the next request is on its way causes them, so they are no
	// retries, and happen with retries off too. Instants and Phases are those of the last connection.
	Replays int
	// Resent is the part of Replays before which the whole request had been given to the kernel, at most 1: the
	// server may have begun on it, so the engine may have had it twice. Of the others it never had all.
	Resent       int
	Reused       bool // the connection had served before
	KernelStamps bool // At was stamped by the kernel
	Whole        bool // the reply was one JSON body, no stream: its chunks say nothing about tokens' times
	Embedding    bool // the reply was an embedding: nothing was generated, and no token of it can be counted
	// BytesSent and BytesRead count what the exchange moved over its last connection, headers and TLS included;
	// bodies alone with HTTP/2.
	BytesSent int64
	BytesRead int64
	Done      bool // [DONE] was seen

	Reply string // text of choice 0, when KeepReply was set
	// ReplyTokens are the token ids of choice 0, when KeepReply was set and the server named those of every token.
	ReplyTokens []uint32
	ToolCalls   []byte // JSON array of the reassembled tool calls of choice 0, when KeepReply was set

	// Err is nil exactly when the request was served: a finish reason came and no error did.
	Err *Error
}

// Phases split the time from Start to Wire, and name the two waits after it, in the terms of AIPerf's HTTP
// metrics. Zero on a reused connection, except Blocked, Sending, Waiting and Receiving. Those before Sending lie before
// Start where the request was held back at a gate.
type Phases struct {
	Blocked   time.Duration // waiting for a connection from the pool
	DNS       time.Duration
	Connect   time.Duration // TCP
	TLS       time.Duration
	Sending   time.Duration // first to last byte of the request
	Waiting   time.Duration // Wire to FirstByte
	Receiving time.Duration // FirstByte to End
}

// Usage is what the server said it counted. Absent counts are Unknown; 0 is a count.
type Usage struct {
	Prompt, Completion, Cached, Reasoning int64
}

// Unknown marks a count that the server did not report.
const Unknown = -1

// NoUsage is the Usage of a reply that reported none.
var NoUsage = Usage{Prompt: Unknown, Completion: Unknown, Cached: Unknown, Reasoning: Unknown}

// Class names why a request was not served. The values are stable: they are error.type on spans and metrics.
type Class string

// The classes of failure.
const (
	ClassDNS               Class = "dns"                 // name resolution failed
	ClassConnect           Class = "connect"             // TCP connection refused or unreachable
	ClassTLS               Class = "tls"                 // handshake or certificate
	ClassConnectTimeout    Class = "connect_timeout"     // DNS + TCP + TLS took too long
	ClassFirstTokenTimeout Class = "first_token_timeout" // no content within the limit after the wire
	ClassIdleTimeout       Class = "idle_timeout"        // the stream fell silent
	ClassTotalTimeout      Class = "total_timeout"       // the whole request took too long
	ClassHTTP              Class = "http"                // a status outside 2xx; error.type is the number
	ClassRateLimited       Class = "rate_limited"        // 429
	ClassStreamError       Class = "stream_error"        // an error event inside a 2xx reply
	ClassRejected          Class = "rejected"            // the engine finds the request invalid, and says so in a 2xx reply
	ClassIncomplete        Class = "incomplete"          // the stream ended without a finish reason
	ClassTransport         Class = "transport"           // the connection broke (reset, unexpected EOF)
	ClassProtocol          Class = "protocol"            // not what was asked for: HTML, bad JSON, no event stream
	ClassLimit             Class = "limit"               // the reply went past a bound of ours (line, body)
	ClassCancelled         Class = "cancelled"           // we stopped it
	ClassDisconnected      Class = "disconnected"        // Request.HangUp asked for it
)

// Error is a failed exchange. Message holds no headers and no keys. A server's own words are kept up to 200 bytes,
// since they say which limit was hit or which field is unknown; servers also echo prompts in them. So every run of 16
// or more bytes that stands in the request's body too is taken out, unless it is one word (a model's or a field's name
// of at most 64 bytes), and so is all that is not ASCII. What remains possible: a shorter fragment, or a prompt that
// the server rewrote before it quoted it.
type Error struct {
	Class   Class
	Status  int    // HTTP status, 0 when none
	Code    string // the server's own code or type, at most 64 bytes
	Message string // at most 512 bytes, printable
	Cause   error
}

// Error returns class, status and message.
func (e *Error) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (HTTP %d): %s", e.Class, e.Status, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Class, e.Message)
}

// Unwrap returns the cause, for errors.Is and errors.As. Its text is not cleaned: do not show it.
func (e *Error) Unwrap() error { return e.Cause }
