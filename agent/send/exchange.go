// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// Body is the body of a request. Open is called anew for each attempt; its reader yields exactly Size bytes.
type Body struct {
	Size int64
	Open func() io.Reader
}

// Field is a header field. Its name is in canonical form: "Traceparent", see [net/http.CanonicalHeaderKey].
type Field struct{ Name, Value string }

// Request is the request of one exchange.
type Request struct {
	Path string // joined to the client's base URL, e.g. "/v1/chat/completions"
	// Header is added to the client's own headers (traceparent, session headers), and replaces those of the same name.
	Header []Field
	// Session is the session that the request belongs to, if each session has connections of its own ([ReuseSession]); empty: none.
	Session string
	Body    Body
	API     API  // the form of the reply
	Stream  bool // whether the body asks for a stream; a reply of the other kind is an error of class "protocol"
	// ExpectTokens is the number of output tokens asked for, a hint for the stamp arrays; 0 when unknown.
	ExpectTokens int
	// KeepReply keeps the reply's text and tool calls, for sessions that insert them into later prompts.
	KeepReply bool
	// Gate, unless nil, delays the request until it is open.
	Gate *Gate
	// HangUp closes the connection this long after the last byte of the request was sent, unless the reply is complete by then. The
	// class of an exchange that ends in this way is ClassDisconnected. 0 = never.
	HangUp time.Duration
	// Busy, unless nil, counts exchanges. Do lowers it by one while the exchange is at rest: while only the time at which the kernel receives
	// the reply matters, and not the time at which it is read. An exchange rests until the first byte of its reply has been read, if it does not use
	// net/http, if the kernel timestamps the reply, if no gaps in it are measured, and if the server's replies come as a whole.
	Busy *atomic.Int64
	// First, unless nil, is called with the arrival of the first content of a stream, on the goroutine that reads it.
	First func(at time.Duration)
}

// gapless reports whether the time at which the reply is read may not matter.
func (r *Request) gapless() bool {
	return r.HangUp == 0 && !r.KeepReply && r.First == nil && (!r.Stream || r.ExpectTokens == 1)
}

// Exchange describes one request and its reply. Times are offsets on the run's clock; those that were not reached are clock.Never.
type Exchange struct {
	// Start is the time at which the request was handed to the transport, or released by its gate.
	Start time.Duration
	// Wire is the time at which the kernel had the last byte of the request. Every gen_ai.* latency counts from here.
	Wire time.Duration
	// WireLate says that the timestamp of the last byte was taken after the reply had arrived, or that the reply arrived before the whole request
	// had been sent. Wire is then FirstByte, its latest possible value, and no latency counts from it.
	WireLate bool
	// FirstByte is the arrival of the first byte of the reply's status line, Headers the end of its headers.
	FirstByte, Headers time.Duration
	// FirstEvent is the arrival of the first event with a choice, including role-only ones (the first-token rule of vLLM's bench client).
	FirstEvent time.Duration
	// End is the arrival of the reply's last byte, or the time of the failure. Do returns later if a server keeps a complete stream open:
	// up to 100 ms after [DONE] (or the final usage), after which the connection is dropped; up to 5 s after a finish reason alone, because
	// usage may still come.
	End time.Duration
	// Phases are the parts of the exchange's time.
	Phases Phases

	// At has the arrival of each content chunk in order: a chunk with non-empty content, reasoning, text or tool-call delta. Its length is
	// the number of chunks. Nanoseconds on the run's clock.
	At []int64
	// Read has, for each chunk, the number of the socket read that returned it. Two consecutive chunks with one number arrived in one read;
	// see Coalesced.
	Read []uint32
	// Tokens has the number of tokens of each chunk if the server sent it (cumulative usage), else nil.
	Tokens []int32
	stamps *stamps // the memory of the three arrays, if it came from the pool, else nil
	// Coalesced counts the chunks that arrived in the same read as their predecessor and may have been sent separately: the gap before them is
	// unknown, not 0. Without kernel timestamps, every chunk that shares its predecessor's read number counts, because a late read cannot
	// be distinguished from a server that writes several chunks at once. With kernel timestamps, chunks do not count if the read was
	// waiting when the bytes arrived and returned within 0.5 ms of the kernel's timestamp: they arrived in one segment, or so close
	// together that the exact timestamp of the last one is valid for all.
	Coalesced int
	// FirstAnswer is the arrival of the first non-reasoning content.
	FirstAnswer time.Duration

	// Usage is the last usage that was reported.
	Usage        Usage
	Choices      int    // that the reply has; At has the chunks of choice 0, Usage counts the tokens of all
	FinishReason string // of choice 0, in the server's spelling; empty if none came
	ResponseID   string
	Instance     string // the instance behind a router, from a response header; empty if there is none
	Model        string // the model in the reply
	Status       int    // HTTP status; 0 if no reply came
	Attempts     int    // 1 unless retried
	// Unconnected is the number of Attempts that got no connection, if there were several: nothing of them can have reached the server.
	Unconnected int
	// Replays counts how often the request was sent again on another connection because the kept one died before a byte of the reply came.
	// A server that closes a connection while the next request is in transit causes them. They are not retries, and also happen without
	// retries. Times and Phases are those of the last connection.
	Replays int
	// Resent is the number of Replays before which the kernel had the whole request, at most 1. The server may have begun to process it, so
	// the engine may have received it twice. In the other cases the server never had all of the request, or closes each connection after a
	// stream ([Client.ClosesAfterStreams]) and did not read it.
	Resent       int
	Reused       bool // the connection was used before
	KernelStamps bool // the kernel timestamped At
	Whole        bool // the reply was one JSON body, not a stream: its chunks show nothing about the times of tokens
	Embedding    bool // the reply was an embedding: nothing was generated, and there are no output tokens
	// BytesSent and BytesRead count the bytes of the exchange on its last connection, including headers and TLS; with HTTP/2, only bodies.
	BytesSent int64
	BytesRead int64
	Done      bool // [DONE] was received

	Reply string // text of choice 0, if KeepReply was set
	// ReplyTokens are the token ids of choice 0, if KeepReply was set and the server sent the ids of all tokens.
	ReplyTokens []uint32
	ToolCalls   []byte // JSON array of the reassembled tool calls of choice 0, if KeepReply was set

	// Err is nil exactly if the request was served: a finish reason came and no error, and the finish reason is not that of a failure.
	Err *Error
}

// Phases divide the time from Start to End, in the terms of AIPerf's HTTP metrics. Sending ends at Wire. On a reused connection
// all are zero, except Blocked, Sending, Waiting and Receiving. The phases before Sending are before Start if a gate held the request back.
type Phases struct {
	Blocked   time.Duration // waiting for a connection from the pool
	DNS       time.Duration
	Connect   time.Duration // TCP
	TLS       time.Duration
	Sending   time.Duration // first to last byte of the request
	Waiting   time.Duration // Wire to FirstByte
	Receiving time.Duration // FirstByte to End
}

// Usage has the server's counts. Absent counts are Unknown; 0 is a count.
type Usage struct {
	Prompt, Completion, Cached, Reasoning int64
}

// Unknown is the value of a count that the server did not report.
const Unknown = -1

// NoUsage is the Usage of a reply without counts.
var NoUsage = Usage{Prompt: Unknown, Completion: Unknown, Cached: Unknown, Reasoning: Unknown}

// Class is why a request was not served. The values are stable: they are error.type on spans and metrics.
type Class string

// The classes of failure.
const (
	ClassDNS               Class = "dns"                 // name resolution failed
	ClassConnect           Class = "connect"             // TCP connection refused or unreachable
	ClassTLS               Class = "tls"                 // handshake or certificate
	ClassConnectTimeout    Class = "connect_timeout"     // DNS + TCP + TLS took too long
	ClassFirstTokenTimeout Class = "first_token_timeout" // no content within the limit after the request was sent
	ClassIdleTimeout       Class = "idle_timeout"        // the stream became silent
	ClassTotalTimeout      Class = "total_timeout"       // the whole request took too long
	ClassHTTP              Class = "http"                // a status outside 2xx; error.type is the number
	ClassRateLimited       Class = "rate_limited"        // 429
	ClassStreamError       Class = "stream_error"        // an error event inside a 2xx reply
	ClassAbort             Class = "abort"               // the engine ended the request itself: a choice has this finish reason
	ClassError             Class = "error"               // the engine failed within the reply: a choice has this finish reason
	ClassRejected          Class = "rejected"            // the engine considers the request invalid, and says so in a 2xx reply
	ClassIncomplete        Class = "incomplete"          // the stream ended without a finish reason
	ClassTransport         Class = "transport"           // the connection broke (reset, unexpected EOF)
	ClassProtocol          Class = "protocol"            // not what was requested: HTML, bad JSON, no event stream
	ClassLimit             Class = "limit"               // the reply exceeded a limit of ours (line, body)
	ClassCancelled         Class = "cancelled"           // we stopped it
	ClassDisconnected      Class = "disconnected"        // Request.HangUp closed the connection
)

// Error is a failed exchange. Message contains no headers and no keys. Up to 200 bytes of a server's own message are kept, because they
// show which limit was hit or which field is unknown. But servers also echo prompts in messages. So every run of 16 or more bytes that is
// also in the request's body is removed, unless it is one word (the name of a model or a field, at most 64 bytes), and so is everything
// that is not ASCII. What may remain: a shorter fragment, or a prompt that the server changed before it quoted it.
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
