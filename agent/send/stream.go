// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/moonloop/moonloop/agent/clock"
)

const (
	mediaEvents     = "text/event-stream"
	mediaEventsUTF8 = mediaEvents + "; charset=utf-8"
	mediaJSON       = "application/json"

	maxErrorBody = 64 << 10 // of a reply that is an error
	maxName      = 256      // of an id, a model, a finish reason
	maxStamps    = 1 << 16  // maximum initial capacity of a stream's arrays, in chunks; larger ones are not reused
)

// stream reads a reply into an exchange. It is reused: only its buffers stay.
type stream struct {
	x       *Exchange
	flight  *flight
	req     *Request
	chunks  *atomic.Int64 // of all streams
	in      arrivals
	events  events
	chunk   chunk
	reply   reply
	max     int
	failure *Error // the reply's first error
	broken  Class  // the class of a finish reason that is a failure; empty: none

	messages       messageUsage // of the Messages API, so far
	last           arrival      // of the last content chunk
	seen, finished uint64       // choices, a bit for each index below 64
	counted        int64        // tokens in usage at the last content chunk
	uncounted      bool         // a content chunk came without usage

	names names
}

var streams = sync.Pool{New: func() any { return new(stream) }}

func (s *stream) begin(x *Exchange, f *flight, req *Request, chunks *atomic.Int64, maxReply int64, maxLine int) {
	*s = stream{
		x: x, flight: f, req: req, chunks: chunks, max: maxLine,
		in:     arrivals{flight: f, limit: maxReply},
		events: s.events, chunk: s.chunk, names: s.names,
	}
}

// free resets the stream and returns it to the pool.
func (s *stream) free() {
	s.chunk.reset()
	clear(s.chunk.choices[:cap(s.chunk.choices)])
	s.events.reset(nil, 0)
	*s = stream{events: s.events, chunk: s.chunk, names: s.names}
	streams.Put(s)
}

// complete reports whether the reply is complete: it has a finish reason for every choice that it began.
func (s *stream) complete() bool { return s.finished&1 != 0 && s.finished == s.seen }

// fail records the first error of the reply.
func (s *stream) fail(c Class, name, message string) {
	if s.failure == nil {
		s.failure = &Error{Class: c, Code: name, Message: message}
	}
}

// take reads the whole reply. It returns an error of the connection or of a limit of ours; errors in the reply itself are in the field failure.
func (s *stream) take(resp *http.Response) error {
	s.x.Status = resp.StatusCode
	if s.req.API == Generate {
		s.generateHeader(resp.Header)
	}
	s.in.body = resp.Body
	media := mediaOf(resp.Header)
	encoding := resp.Header.Get("Content-Encoding")
	switch {
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return s.compressed(resp, encoding)
	case resp.StatusCode/100 != 2:
		return s.refusal(resp)
	case s.req.Stream && media == mediaEvents:
		return s.stream()
	case !s.req.Stream && media == mediaJSON:
		return s.whole()
	}
	return s.stranger(media)
}

// mediaOf returns the media type of a reply without its parameters; "" if there is none that can be read.
func mediaOf(header http.Header) string {
	text := header.Get("Content-Type")
	switch text { // of nearly all replies
	case mediaEvents, mediaEventsUTF8:
		return mediaEvents
	case mediaJSON:
		return mediaJSON
	}
	media, _, err := mime.ParseMediaType(text)
	if err != nil {
		return ""
	}
	return media
}

// refusal reads a reply whose status is not a success.
func (s *stream) refusal(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(&s.in, maxErrorBody))
	s.fail(refusal(resp, body))
	return err
}

// compressed reads a reply that is compressed, although no request allows that: a fault of something between client and engine. It cannot be
// understood, and the arrival of its tokens could not be told.
func (s *stream) compressed(resp *http.Response, encoding string) error {
	_, err := io.Copy(io.Discard, io.LimitReader(&s.in, maxErrorBody))
	if resp.StatusCode/100 != 2 {
		s.fail(refusal(resp, nil))
		return err
	}
	s.fail(ClassProtocol, "", fmt.Sprintf("the reply is compressed (%s), although the request does not allow that; switch compression off in the engine, or in the proxy before it",
		printable(encoding, maxWord)))
	return err
}

// stranger reads a reply of a different kind than requested: an error with a status of success, or a web page.
func (s *stream) stranger(media string) error {
	body, err := io.ReadAll(io.LimitReader(&s.in, maxErrorBody))
	if s.chunk.parse(body) && s.chunk.failed {
		s.complain(body)
		return err
	}
	s.fail(ClassProtocol, "", fmt.Sprintf("the reply is %s, not %s; is this the address of an OpenAI-compatible API?",
		printable(cmp.Or(media, "no content type"), maxWord), accept[s.req.Stream][0]))
	return err
}

// whole reads a reply that is one JSON body.
func (s *stream) whole() error {
	s.x.Whole = true
	bound := int64(s.max)
	body, err := io.ReadAll(io.LimitReader(&s.in, bound+1))
	switch {
	case err != nil:
		return err
	case int64(len(body)) > bound:
		return errReplyTooLong
	}
	return s.event(&event{data: body, at: s.in.last})
}

// stream reads a reply that is a stream of events. After the reply is complete, it reads on to the end of the stream, so that the connection
// can be reused; the guard limits the time for that.
func (s *stream) stream() error {
	s.events.reset(&s.in, s.max)
	for {
		e, err := s.events.next()
		switch {
		case err == io.EOF: //nolint:errorlint // a clean end is io.EOF itself
			return nil
		case err != nil:
			return err
		case s.x.Done:
			continue
		}
		if err := s.event(e); err != nil {
			return err
		}
		if s.failure != nil && s.failure.Class == ClassProtocol {
			return nil // what follows cannot be understood
		}
	}
}

var (
	doneMark = []byte("[DONE]")
	nullMark = []byte("null")
)

// event reads the data of one event.
func (s *stream) event(e *event) error {
	data := bytes.TrimSpace(e.data)
	switch {
	case len(data) == 0, bytes.Equal(data, nullMark):
		return nil
	case bytes.Equal(data, doneMark):
		s.x.Done = true
		s.flight.guard.enter(stageOver)
		return nil
	}
	switch s.req.API {
	case Messages:
		return s.messageEvent(data, e.at, e.isError)
	case Generate:
		return s.generateEvent(data, e.at, e.isError)
	case Embeddings:
		s.embedding(data)
		return nil
	case OpenAI:
	}
	c := &s.chunk
	ok := c.parse(data)
	switch {
	case e.isError, ok && (c.failed || c.typ.is("error") || c.typ.is("response.failed")):
		s.complain(data)
		s.flight.guard.enter(stageTail)
		return nil
	case !ok:
		s.fail(ClassProtocol, "", s.unit()+" is not a JSON object")
		return nil
	}
	return s.content(e.at)
}

// unit is what errors call an event: a whole reply is read as one.
func (s *stream) unit() string {
	if s.x.Whole {
		return "the reply"
	}
	return "an event of the stream"
}

// complain records an error in a reply whose status is a success. vLLM answers 200 before it checks a request. If the request is invalid,
// the first event says so, with the status of a client's error (4xx).
func (s *stream) complain(data []byte) {
	name, message, status := complaint(data)
	class := ClassStreamError
	if status/100 == 4 && status != http.StatusTooManyRequests && len(s.x.At) == 0 {
		class = ClassRejected
	}
	s.fail(class, name, cmp.Or(message, noMessage))
}

// noMessage is the message of an error that a server reported without any.
const noMessage = "the server reports an error, and does not say which"

// content reads a parsed chunk.
func (s *stream) content(at arrival) error {
	c, x := &s.chunk, s.x
	if len(c.typ) > 0 {
		s.typed()
	} else if c.whole.is {
		s.response()
	}
	if x.ResponseID == "" && len(c.id) > 0 {
		x.ResponseID = decoded(c.id)
	}
	if x.Model == "" && len(c.model) > 0 {
		x.Model = s.names.model.of(c.model)
	}
	if c.hasUsage {
		x.Usage = c.usage
	}
	return s.choices(at)
}

// choices reads the choices of a chunk.
func (s *stream) choices(at arrival) error {
	c, x := &s.chunk, s.x
	stamped := false
	if len(c.choices) > 0 && x.FirstEvent == clock.Never {
		x.FirstEvent = time.Duration(at.at)
	}
	for i := range c.choices {
		ch := &c.choices[i]
		if ch.index > 63 {
			return errTooManyChoices
		}
		bit := uint64(1) << ch.index
		s.seen |= bit
		if len(ch.finish) > 0 {
			s.finished |= bit
			s.broken = cmp.Or(s.broken, brokenBy(ch.finish))
		}
		if ch.index != 0 {
			continue
		}
		if len(ch.finish) > 0 {
			x.FinishReason = s.names.finish.of(ch.finish)
		}
		if ch.produced() && !stamped {
			s.stamp(at, ch.answered())
			stamped = true
		}
		if s.req.KeepReply {
			if err := s.reply.add(ch, s.max); err != nil {
				return err
			}
		}
	}
	switch {
	case !s.complete():
	case c.hasUsage && (len(c.choices) == 0 || len(c.typ) > 0):
		// A separate usage chunk, or the last event of a typed stream, is final. Usage together with a finish reason is not: a server that
		// sends it with each chunk sends a more complete one at the end.
		s.flight.guard.enter(stageOver)
	default:
		s.flight.guard.enter(stageTail)
	}
	return nil
}

// brokenBy returns the class of a finish reason that says that the engine did not complete the reply; empty for any other reason. vLLM and
// SGLang send "abort" and go on to [DONE] if they end a request themselves, for example because they pause or shut down, or because someone
// called their API for that. Gateways send "error".
func brokenBy(finish text) Class {
	for _, class := range [...]Class{ClassAbort, ClassError} {
		if finish.is(string(class)) {
			return class
		}
	}
	return ""
}

// stamp records a content chunk of choice 0.
func (s *stream) stamp(at arrival, answer bool) {
	x := s.x
	switch {
	case len(x.At) == 0:
		x.reserve(s.req.ExpectTokens)
		x.KernelStamps = true
		s.flight.guard.enter(stageStream)
		if s.req.First != nil {
			s.req.First(time.Duration(at.at))
		}
	case at.number == s.last.number && !at.prompt:
		x.Coalesced++
	}
	s.last = at
	x.KernelStamps = x.KernelStamps && at.kernel
	x.At = append(x.At, at.at)
	s.chunks.Add(1)
	x.Read = append(x.Read, at.number)
	if answer && x.FirstAnswer == clock.Never {
		x.FirstAnswer = time.Duration(at.at)
	}
	if n := s.chunk.usage.Completion; n >= s.counted && n <= 1<<31 {
		x.Tokens = append(x.Tokens, int32(min(n-s.counted, 1<<31-1))) //nolint:gosec // bounded
		s.counted = n
	} else {
		s.uncounted = true
	}
}

// typed converts an event of the Responses API to the form of a chunk: /v1/responses streams typed events and has no [DONE].
func (s *stream) typed() {
	c := &s.chunk
	switch c.typ.String() {
	case "response.output_text.delta", "response.refusal.delta":
		c.choices = append(c.choices, choice{content: c.delta})
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta":
		c.choices = append(c.choices, choice{reasoning: c.delta})
	case "response.function_call_arguments.delta":
		c.choices = append(c.choices, choice{called: len(c.delta) > 0})
	case "response.completed":
		c.choices = append(c.choices, choice{finish: text("completed"), tools: s.called()})
	case "response.incomplete":
		if len(c.reason) == 0 {
			c.reason = text("incomplete")
		}
		c.choices = append(c.choices, choice{finish: c.reason, tools: s.called()})
	}
}

// called returns the tool calls in the output of a whole response, in the form of a chat; nil if they are not needed.
func (s *stream) called() []byte {
	var items []struct {
		Type      string `json:"type"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	if !s.req.KeepReply || json.Unmarshal(s.chunk.output, &items) != nil {
		return nil
	}
	var calls []toolCall
	for _, i := range items {
		if i.Type == "function_call" {
			call := toolCall{ID: i.CallID, Type: "function"}
			call.Function.Name, call.Function.Arguments = i.Name, i.Arguments
			calls = append(calls, call)
		}
	}
	if calls == nil {
		return nil
	}
	all, _ := json.Marshal(calls) // texts always marshal
	return all
}

// response converts a whole reply of the Responses API to the form of a chunk.
func (s *stream) response() {
	c := &s.chunk
	finish := c.whole.status
	switch {
	case finish.is("completed"):
	case !finish.is("incomplete"):
		return // there is no reply
	case len(c.whole.reason) > 0:
		finish = c.whole.reason
	}
	c.choices = append(c.choices, choice{content: c.whole.text, finish: finish, tools: s.called()})
}

// finish fills in what is known only at the end.
func (s *stream) finish() {
	x := s.x
	x.Choices = bits.OnesCount64(s.seen)
	// Tokens are known if the usage on the chunks increased with them; zeros on each chunk show nothing.
	if s.uncounted || s.counted == 0 {
		x.Tokens = nil
	}
	if s.req.KeepReply {
		s.reply.copyTo(x)
	}
	if s.flight.http2 {
		x.BytesRead, x.BytesSent = s.in.total, s.req.Body.Size
	}
}

// names are the names in the last reply. Most replies have the same names, which then need no further memory.
type names struct{ model, finish name }

// name is a short text that was decoded.
type name string

// of decodes a short text.
func (n *name) of(t text) string {
	var room [maxName]byte // most are short and valid, and are copied once
	b := t[:min(len(t), maxName)].append(room[:0])
	if string(b) == string(*n) {
		return string(*n)
	}
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, nil)
	}
	*n = name(b)
	return string(*n)
}

// decoded decodes a short text that no other reply has, such as an id.
func decoded(t text) string { return new(name).of(t) }
