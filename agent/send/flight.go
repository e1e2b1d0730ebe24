// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// flight is the state of an exchange in flight: what net/http reports from its own goroutines. Some reports arrive after the exchange has
// ended, so they are kept outside the Exchange and copied once.
type flight struct {
	clk    clock.Clock
	guard  guard
	manner *manner // of the server
	http2  bool
	// direct is whether the exchange goes without net/http.
	direct bool
	gate   *Gate // nil: none

	rests   *atomic.Int64 // what is lowered while the exchange rests, see Request.Busy; nil: it never rests
	sample  bool          // it could rest, but its reply is read at once, if possible, to learn from it
	session string        // of the request, if each session has connections of its own

	uploaded atomic.Int64 // bytes of the body that net/http took for this connection
	size     int64        // of the body

	mu       sync.Mutex
	conn     *conn // nil with HTTP/2
	turn     uint32
	attempts int
	earlier  string // how an attempt ended that was followed by another one; the last such
	vain     int    // number of attempts before this one that got no connection
	got      int    // number of connections of this attempt
	replays  int
	resent   int // times that a whole request was sent again
	reused   bool
	tlsErr   error
	wireLate bool // see Exchange
	stopped  bool
	undo     func()                  // ends what the exchange waits for, unless net/http does that; nil: it waits for nothing
	halt     context.CancelCauseFunc // stop; made once

	asked, obtained             time.Duration // when a connection was
	dns, dnsEnd                 time.Duration
	connect, connectEnd         time.Duration
	handshake, handshakeEnd     time.Duration
	wire, firstByte, headersEnd time.Duration
}

// newFlight begins an exchange.
func (c *Client) newFlight(req *Request, start time.Duration) *flight {
	f, ok := c.flights.Get().(*flight)
	if !ok {
		f = new(flight)
		f.halt = func(error) { f.stop() }
	}
	*f = flight{
		clk: c.clk, manner: &c.manner, http2: c.cfg.HTTP2, direct: c.direct.takes(req), size: req.Body.Size, gate: req.Gate, session: req.Session, halt: f.halt,
		guard: guard{
			clk: c.clk, start: start, gate: req.Gate, cancel: f.halt, timer: f.guard.timer, rings: clock.Never,
			limits: limits{
				connect: c.cfg.ConnectTimeout, first: c.cfg.FirstTokenTimeout, idle: c.cfg.IdleTimeout, total: c.cfg.TotalTimeout,
				hangUp: req.HangUp,
			},
		},
	}
	if f.direct && req.Busy != nil && req.gapless() && !c.cfg.hasty() {
		if f.sample = !c.brevity.lets(); !f.sample {
			f.rests = req.Busy
		}
	}
	f.clear()
	return f
}

// unused reports whether a direct flight can be used again after its exchange, if its context does not use it either. It cannot if its
// timer may be about to ring, if its gate is not open and may still be shut, or if package net may still be dialling, which can go on after a
// connection has been made.
func (f *flight) unused() bool {
	return f.guard.idle && f.gate.current() == gateOpen && f.reused && f.attempts == 1 && f.got == 1
}

type flightKey struct{}

// flightOf returns the flight of a request: each has one.
func flightOf(ctx context.Context) *flight {
	f, _ := ctx.Value(flightKey{}).(*flight)
	return f
}

// replay reports whether the request may be sent again after its connection failed, and counts the replay if the server may have begun to
// process the request. The connection must have been a kept one, without a byte of a reply: the server may have closed it before it saw the
// request, as servers that close after each stream do. As long as the upload was not complete, the engine cannot have
// begun, and a replay has no cost. The same holds if the server closes each connection after a stream. Otherwise only the first replay is
// made, and it is reported.
func (f *flight) replay() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.reused || f.firstByte != clock.Never {
		return false
	}
	streamed := f.afterStream(soon)
	if t, ok := f.conn.look(f.turn); streamed && ok && t.sent == 0 {
		f.manner.died()
	}
	switch {
	case !f.sentWhole(), streamed && f.manner.closes():
		return true
	case f.resent >= maxResends:
		return false
	}
	f.resent++
	return true
}

// sentWhole reports whether the kernel may have received the whole request. When net/http reports the failure of a connection, it has ended
// the upload.
func (f *flight) sentWhole() bool {
	if f.uploaded.Load() < f.size {
		return false
	}
	t, ok := f.conn.look(f.turn)
	return !ok || !t.cut && t.sent > f.size
}

// afterStream reports whether the connection's last reply was a stream, and came at most this long ago.
func (f *flight) afterStream(within time.Duration) bool {
	at, ok := f.conn.streamed(f.turn)
	return ok && f.clk.Now()-at <= within
}

// unsent forgets the connection, which ended before the request was due. So sending on another one does not count as a replay.
func (f *flight) unsent() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got--
}

// in returns a context in which net/http and the retrier find the flight.
func (f *flight) in(ctx context.Context) context.Context {
	return context.WithValue(httptrace.WithClientTrace(ctx, f.trace()), flightKey{}, f)
}

// stop ends the exchange early.
func (f *flight) stop() {
	f.mu.Lock()
	undo := f.undo
	f.stopped, f.undo = true, nil
	f.mu.Unlock()
	if undo != nil {
		undo()
	}
}

var errStopped = errors.New("the exchange was ended")

// over returns why an exchange has been ended; nil if it has not.
func (f *flight) over(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return errStopped
	}
	return nil
}

// waits begins to wait for something that the function undo ends. It returns false if the exchange has been stopped already.
func (f *flight) waits(undo func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stopped {
		f.undo = undo
	}
	return !f.stopped
}

// waited ends the wait. It returns false if the exchange was stopped meanwhile, so that undo has been called or is about to be.
func (f *flight) waited() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.undo = nil
	return !f.stopped
}

// slowly calls a function with a context that ends with the exchange. It returns why the exchange has ended; nil if it has not.
func (f *flight) slowly(ctx context.Context, do func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.waits(cancel) {
		do(ctx)
		f.waited()
	}
	return f.over(ctx)
}

func (f *flight) clear() {
	for _, p := range []*time.Duration{
		&f.asked, &f.obtained, &f.dns, &f.dnsEnd, &f.connect, &f.connectEnd,
		&f.handshake, &f.handshakeEnd, &f.wire, &f.firstByte, &f.headersEnd,
	} {
		*p = clock.Never
	}
	f.conn, f.reused, f.tlsErr, f.wireLate = nil, false, nil, false
	f.uploaded.Store(0)
}

// attempt begins the attempt with the number n, counted from 0.
func (f *flight) attempt(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clear()
	if n > 0 && f.got == 0 {
		f.vain++
	}
	f.attempts, f.got = n+1, 0
}

// retry notes how an attempt ended that another one may follow.
func (f *flight) retry(how string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.earlier = fmt.Sprintf("attempt %d ended with %s", f.attempts, how)
}

// told adds to the text of a timeout how an earlier attempt ended: the engine may not be slow, but refuse.
func (f *flight) told(text string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.earlier == "" {
		return text
	}
	return text + "; " + f.earlier
}

// tries returns the number of attempts so far.
func (f *flight) tries() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.attempts
}

// reached returns whether the current attempt has had a connection, including one that net/http replaced by itself: it replaces a connection
// even if the call's time ends at that moment.
func (f *flight) reached() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got > 0
}

// connected returns whether the current attempt has a connection.
func (f *flight) connected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.obtained != clock.Never
}

// classify finds the underlying failure of the current attempt.
func (f *flight) classify(err error) *Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return classify(err, f.tlsErr, f.obtained != clock.Never)
}

// trace returns the hooks that net/http calls.
func (f *flight) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:           func(string) { f.ask() },
		DNSStart:          func(httptrace.DNSStartInfo) { f.first(&f.dns, nil) },
		DNSDone:           func(httptrace.DNSDoneInfo) { f.first(&f.dnsEnd, nil) },
		ConnectStart:      func(string, string) { f.first(&f.connect, nil) },
		ConnectDone:       func(_, _ string, err error) { f.first(&f.connectEnd, err) },
		TLSHandshakeStart: func() { f.first(&f.handshake, nil) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			f.first(&f.handshakeEnd, err)
			f.mu.Lock()
			f.tlsErr = err
			f.mu.Unlock()
		},
		GotConn:              f.gotConn,
		WroteRequest:         f.wrote,
		GotFirstResponseByte: f.answered,
	}
}

// ask begins to wait for a connection.
func (f *flight) ask() {
	f.mu.Lock()
	f.clear() // also if net/http sends again by itself
	f.asked = f.clk.Now()
	f.mu.Unlock()
	f.guard.enter(stageConnect)
}

// first records the time of a step, unless the step failed or its time is recorded already: addresses are tried in parallel.
func (f *flight) first(at *time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && *at == clock.Never {
		*at = f.clk.Now()
	}
}

func (f *flight) gotConn(info httptrace.GotConnInfo) {
	f.mu.Lock()
	f.obtained, f.reused = f.clk.Now(), info.Reused
	f.wire, f.firstByte, f.wireLate = clock.Never, clock.Never, false
	if f.got++; f.got > 1 {
		f.replays++
	}
	if f.conn = nil; !f.http2 {
		if f.conn = connOf(info.Conn); f.conn != nil {
			f.turn = f.conn.begin(f.size > 0 && !f.direct)
		}
	}
	wait := time.Duration(0)
	if f.reused && f.manner.unknown() && f.afterStream(settle) && f.conn.socket != nil {
		wait = settle
	}
	f.mu.Unlock()
	f.guard.enter(stageUpload)
	clock.Pause(context.Background(), wait) // short, and once
}

// uncork lets the headers be sent with the next write.
func (f *flight) uncork() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != nil {
		f.conn.uncork()
	}
}

// wrote is called when the request has been written. The call may be late, even after the reply's arrival. It can also be about a
// connection that has been abandoned since; a later call then replaces its time.
func (f *flight) wrote(info httptrace.WroteRequestInfo) {
	f.mu.Lock()
	ok := info.Err == nil && f.firstByte == clock.Never
	if ok {
		f.wire, _ = f.written()
	}
	f.mu.Unlock()
	if ok {
		f.guard.enter(stageFirst)
	}
}

// written returns the end of the last write call, or now. ended is false if it is not known that this was the request's last one: a write call
// has not returned, or the reply has come before the whole request was sent.
func (f *flight) written() (at time.Duration, ended bool) {
	t, ok := f.conn.look(f.turn)
	if ok && t.wrote != clock.Never {
		return t.wrote, !t.writing && t.sent > f.size
	}
	return f.clk.Now(), !ok && f.uploaded.Load() >= f.size
}

func (f *flight) answered() {
	f.mu.Lock()
	if f.reused && f.manner.unknown() && f.afterStream(1<<63-1) {
		f.manner.reused()
	}
	f.firstByte = f.arrived()
	waiting, ended := f.wire == clock.Never, true
	if waiting {
		f.wire, ended = f.written()
	}
	// The timestamp of the last byte is taken after the write call, because only that is free. If our process stalls, or if the engine is
	// as near as loopback, the reply can arrive before: then the timestamp only shows that the byte was sent no later than the reply
	// arrived. The kernel could also timestamp what it sends, but each such timestamp is a message in the socket's error queue: one more
	// wake-up and system call for every request, for the few whose timestamp is late. A server can also reply before it has read the whole
	// request: then there is no last byte, and what was written last is not it.
	if f.wire > f.firstByte || !ended {
		f.wire, f.wireLate = f.firstByte, true
	}
	f.mu.Unlock()
	if waiting {
		f.guard.enter(stageFirst)
	}
}

// opened records the end of the headers, and whether a stream follows: a body of unknown length.
func (f *flight) opened(stream bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.headersEnd = f.arrived()
	f.conn.note(f.turn, stream)
}

// arrived returns the last arrival on the exchange's connection, or now if it is unknown.
func (f *flight) arrived() time.Duration {
	if t, ok := f.conn.look(f.turn); ok {
		return time.Duration(t.at)
	}
	return f.clk.Now()
}

// last returns the last arrival on the exchange's connection.
func (f *flight) last() (a arrival, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.conn.look(f.turn)
	return t.arrival, ok
}

// copyTo copies the reports of net/http to an exchange. End must be set.
func (f *flight) copyTo(x *Exchange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x.Wire, x.WireLate, x.FirstByte, x.Headers = f.wire, f.wireLate, f.firstByte, f.headersEnd
	x.Attempts, x.Replays, x.Resent, x.Reused = max(1, f.attempts), f.replays, f.resent, f.reused
	if x.Unconnected = f.vain; f.attempts > 1 && f.got == 0 {
		x.Unconnected++
	}
	p := &x.Phases
	if !f.reused && f.obtained != clock.Never {
		p.DNS = span(f.dns, f.dnsEnd)
		p.Connect = span(f.connect, f.connectEnd)
		p.TLS = span(f.handshake, f.handshakeEnd)
	}
	p.Blocked = max(0, span(f.asked, f.obtained)-p.DNS-p.Connect-p.TLS)
	began := f.obtained
	if t, ok := f.conn.look(f.turn); ok {
		x.BytesSent, x.BytesRead = t.sent, t.received
		if t.began != clock.Never {
			began = t.began
		}
	}
	p.Sending = span(began, f.wire)
	p.Waiting = span(f.wire, f.firstByte)
	p.Receiving = span(f.firstByte, x.End)
}

// span returns the time between two times, 0 if one was not reached.
func span(from, to time.Duration) time.Duration {
	if from == clock.Never || to == clock.Never {
		return 0
	}
	return max(0, to-from)
}
