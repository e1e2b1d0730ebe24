// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
)

// faultKind is one row of the fault table: what a fault does, and at which point of a request. To add a fault is to add a row.
type faultKind struct {
	name   Fault
	about  string
	refuse error                 // ends the request before its reply: an apiError is sent instead, errAbort drops the connection
	mid    func(*exchange) error // runs in place of the next token; when it returns nil the reply continues
	shape  shape                 // of a reply that is otherwise whole
}

var faultTable = []faultKind{
	// Another reply is sent.
	{name: "rate-limit", about: "429 with Retry-After", refuse: &apiError{
		status: http.StatusTooManyRequests, kind: "rate_limit_error", code: "rate_limit_exceeded", message: "too many requests (simulated)", retry: true,
	}},
	{name: "unavailable", about: "503 with Retry-After", refuse: &apiError{
		status: http.StatusServiceUnavailable, kind: "server_error", code: "unavailable", message: "the engine is unavailable (simulated)", retry: true,
	}},
	{name: "overloaded", about: "529 with Retry-After, as Anthropic sends it", refuse: &apiError{
		status: statusOverloaded, kind: "overloaded_error", code: "overloaded", message: "the engine is overloaded (simulated)", retry: true,
	}},
	{name: "server-error", about: "500", refuse: &apiError{
		status: http.StatusInternalServerError, kind: "server_error", message: "the engine failed (simulated)",
	}},
	{name: "refuse", about: "the connection is dropped before a reply", refuse: errAbort},
	{name: "not-found", about: "404 in plain text", refuse: foreign(http.StatusNotFound, mediaText, "Not Found")},
	{name: "error-integer", about: "400 whose code is an integer", refuse: foreign(http.StatusBadRequest, mediaJSON,
		`{"error":{"message":"the request is wrong (simulated)","type":"BadRequestError","param":null,"code":400}}`)},
	{name: "error-digits", about: "500 whose code is a string of digits", refuse: foreign(http.StatusInternalServerError, mediaJSON,
		`{"error":{"message":"the engine failed (simulated)","type":"internal_error","param":null,"code":"500"}}`)},
	{name: "error-flat", about: "400 whose body is the error object itself", refuse: foreign(http.StatusBadRequest, mediaJSON,
		`{"object":"error","message":"the request is wrong (simulated)","type":"BadRequest","param":null,"code":400}`)},
	{name: "error-string", about: "401 whose error is a string", refuse: foreign(http.StatusUnauthorized, mediaJSON, `{"error":"Unauthorized"}`)},
	{name: "error-ok", about: "200 with an error as JSON", refuse: foreign(http.StatusOK, mediaJSON,
		`{"error":{"message":"the engine failed (simulated)","type":"server_error","code":null}}`)},
	{name: "html", about: "200 with a page of HTML", refuse: foreign(http.StatusOK, "text/html; charset=utf-8", "<!doctype html><title>Sign in</title>")},
	{name: "malformed-json", about: "200 with invalid JSON", refuse: foreign(http.StatusOK, mediaJSON, "{malformed json: <<<")},

	// The stream breaks.
	{name: "stream-error", about: "an error event in the stream, then its clean end", mid: func(x *exchange) error { return x.breakStream(false) }},
	{name: "stream-error-done", about: "an error event in the stream, then [DONE]", mid: func(x *exchange) error { return x.breakStream(true) }},
	{name: "cut", about: "the connection is dropped in the middle of the stream", mid: func(*exchange) error { return errAbort }},
	{name: "stall", about: "the stream falls silent", mid: (*exchange).stall},
	{name: "silent-end", about: "a clean end without a finish reason, usage or [DONE]", mid: func(x *exchange) error { return x.endWith("") }},
	{name: "done-only", about: "[DONE] without a finish reason", mid: func(x *exchange) error { return x.endWith("data: [DONE]\n\n") }},
	{name: "malformed-event", about: "an event whose JSON breaks off", mid: func(x *exchange) error { return x.endWith(`data: {"choices":[{"delta":{` + "\n\n") }},
	{name: "bad-framing", about: "an HTTP chunk whose length is not a number", mid: (*exchange).breakFraming},
	{name: "endless-line", about: "a line of 64 MiB in the stream", mid: (*exchange).endlessLine},

	// The reply is complete, but unusual in its timing or its writes.
	{name: "slow-accept", about: "the request is not read for --stall-for", shape: shape{slowAccept: true}},
	{name: "tiny-writes", about: "each byte is a write of its own", shape: shape{piece: 1}},
	{name: "joined-tokens", about: "four tokens a chunk", shape: shape{tokens: 4}},
	{name: "joined-chunks", about: "four chunks a write", shape: shape{chunks: 4}},
	{name: "close-after", about: "the connection is closed after the reply, unannounced", shape: shape{closes: true}},

	// The reply is complete, in a shape that some engine has.
	{name: "wrong-type", about: "a stream whose content type is plain text", shape: shape{media: mediaText}},
	{name: "comments", about: "comment lines, before the first token too", shape: shape{comment: true, frame: frame{before: ": keep-alive\n\n"}}},
	{name: "null-events", about: "data: null before each event", shape: shape{frame: frame{before: "data: null\n\n"}}},
	{name: "fields", about: "id: and retry: lines", shape: shape{frame: frame{before: "id: 1\nretry: 10\n"}}},
	{name: "no-space", about: "data: without a space after it", shape: shape{frame: frame{field: "data:"}}},
	{name: "trailing-space", about: "a space before each line's end", shape: shape{frame: frame{end: " \n\n"}}},
	{name: "crlf", about: "lines end with CR LF", shape: shape{frame: frame{end: "\r\n\r\n"}}},
	{name: "cr", about: "lines end with CR", shape: shape{frame: frame{end: "\r\r"}}},
	{name: "byte-order-mark", about: "the stream begins with a byte-order mark", shape: shape{frame: frame{first: "\xef\xbb\xbf"}}},
	{name: "split-data", about: "an event in two data lines", shape: shape{frame: frame{split: true}}},
	{name: "long-line", about: "300 kB of token ids in the first event", shape: shape{pad: 150_000}},
	{name: "empty-chunks", about: "the role at once; an empty chunk before each chunk of text", shape: shape{earlyRole: true, empty: true}},
	{name: "role-everywhere", about: "the role on each chunk", shape: shape{everyRole: true}},
	{name: "usage-null", about: "usage null on each chunk", shape: shape{usage: usageNull}},
	{name: "usage-zero", about: "usage of zeros on each chunk, the real one at the end", shape: shape{usage: usageZero}},
	{name: "usage-grows", about: "usage on each chunk, with the tokens so far", shape: shape{usage: usageGrows}},
	{name: "usage-on-finish", about: "usage on the chunk with the finish reason", shape: shape{usage: usageOnFinish}},
	{name: "no-usage", about: "no usage", shape: shape{usage: usageNone}},
	{name: "finish-on-last", about: "the finish reason on the last chunk with text", shape: shape{finishOnLast: true}},
	{name: "no-done", about: "no [DONE]", shape: shape{noDone: true}},
	{name: "other-finish", about: "finish reason abort", shape: shape{finish: "abort"}},
	{name: "short-output", about: "half of the tokens, but finish reason length", shape: shape{shortOutput: true, finish: finishLength}},
	{name: "short-prompt", about: "the prompt is cut to half, which only usage shows", shape: shape{shortPrompt: true}},
	{name: "reasoning", about: "first half of a chat's tokens as delta.reasoning", shape: shape{reasoning: "reasoning"}},
	{name: "reasoning-content", about: "first half of a chat's tokens as delta.reasoning_content", shape: shape{reasoning: "reasoning_content"}},
	{name: "tool-deltas", about: "a chat's tokens as arguments of a tool call", shape: shape{call: true}},
	{name: "choices", about: "a second choice between the chunks of the first", shape: shape{second: true}},
	{name: "choice-unfinished", about: "a second choice that has no finish reason", shape: shape{second: true, unfinished: true}},
}

const (
	mediaJSON = "application/json"
	mediaText = "text/plain; charset=utf-8"

	mediaEvents = "text/event-stream; charset=utf-8"
)

// foreign returns a reply in the shape of another engine.
func foreign(status int, media, body string) *apiError {
	return &apiError{status: status, media: media, raw: body, message: "answered in another shape (simulated)"}
}

var errSimulated = &apiError{status: http.StatusInternalServerError, kind: "server_error", code: "engine_error", message: "the engine failed while it generated (simulated)"}

// breakStream writes an error event, or answers with 500 when the reply is not a stream.
func (x *exchange) breakStream(done bool) error {
	if !x.stream {
		return errSimulated
	}
	x.buf = x.form.failure(x.buf, errSimulated)
	if done {
		x.buf = x.form.done(x.buf)
	}
	return x.breakOff()
}

// breakOff writes what is buffered, and ends the reply there.
func (x *exchange) breakOff() error {
	if err := x.write(); err != nil {
		return err
	}
	return errBroken
}

// endWith ends a stream cleanly after the given text. A reply that is not a stream is cut off.
func (x *exchange) endWith(text string) error {
	if !x.stream {
		return errAbort
	}
	if text == "" {
		return errBroken
	}
	x.buf = append(x.buf, text...)
	return x.breakOff()
}

// stall sends nothing for the configured time, and delays the rest of the plan by this time.
func (x *exchange) stall() error {
	d := x.engine.config.Faults.StallFor
	if d == 0 {
		<-x.pacer.ctx.Done()
		return x.pacer.ctx.Err()
	}
	x.planned += d
	return x.pacer.until(x.planned)
}

// delay leaves the request unread for the configured time. To a client, the server is slow to accept. A client that leaves goes
// unnoticed, because nothing is read.
func (x *exchange) delay() error {
	x.met = true
	c := &x.engine.config
	err := x.pacer.until(x.engine.now() + cmp.Or(c.Faults.StallFor, c.BodyTimeout))
	if err == nil && c.Faults.StallFor == 0 {
		err = errSlowBody
	}
	return err
}

// breakFraming writes an invalid HTTP chunk. HTTP/2 has no chunks, so its stream is reset.
func (x *exchange) breakFraming() error {
	if !x.stream {
		return errAbort
	}
	conn, _, err := x.rc.Hijack()
	if errors.Is(err, http.ErrNotSupported) {
		return errAbort
	}
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("zz\r\nno length\r\n"))
	return errors.Join(errBroken, err, conn.Close())
}

// endlessBytes bounds the endless line: more than any client should hold, less than a disk.
const endlessBytes = 64 << 20

// endlessLine begins an event and does not end it, until the client leaves or the bound is reached.
func (x *exchange) endlessLine() error {
	if !x.stream {
		return errAbort
	}
	x.buf = append(x.buf, `data: {"padding":"`...)
	piece := bytes.Repeat([]byte("x"), 64<<10)
	for range endlessBytes / len(piece) {
		x.buf = append(x.buf, piece...)
		if err := x.write(); err != nil {
			return err
		}
	}
	return errBroken
}
