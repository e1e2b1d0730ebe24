// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/internal/kernelstamp"
)

// promptly is the maximum time from the kernel's timestamp to the return of a read that was waiting, if its bytes are to count as one segment.
const promptly = 500 * time.Microsecond

// arrival describes the last read of a connection.
type arrival struct {
	at     int64  // ns on the run's clock
	number uint32 // of the read, from 1; 0 = nothing was read
	kernel bool   // at is the kernel's
	// prompt says that the read was waiting when the bytes arrived and returned them at once. The bytes were then most likely sent
	// together, because several segments would have had to arrive while the reader woke up.
	prompt bool
}

// traffic describes the use of a connection by one exchange.
type traffic struct {
	arrival
	began, wrote   time.Duration // start of the first, end of the last write call; clock.Never before
	sent, received int64         // bytes, TLS framing included
	cut            bool          // a write failed: not all of it was sent
	writing        bool          // a write call has not returned
	stream         bool          // the reply is a stream
}

// conn records when its bytes were read and written. Exchanges use it one after the other. begin starts the records of the next exchange
// and keeps those of the last, because the last Read of a reply's body can release the connection before its caller has queried its records.
type conn struct {
	net.Conn
	stamped *kernelstamp.Reader // nil: stamps after the read call
	socket  *socket             // nil if it cannot be inspected
	wall    *wall
	clk     clock.Clock

	mu       sync.Mutex
	corked   *bytes.Buffer // headers that wait for the body; nil: none
	cork     bool          // writes wait for the body
	turn     uint32        // number of the exchange
	now, old traffic
	full     bool // the last read filled its buffer

	// before sends the request, and returns whether there can be nothing to read yet. The next read calls it as soon as a reply would be
	// noticed.
	before func() (empty bool, err error)
}

// wall converts kernel timestamps to the run's clock.
type wall struct {
	*kernelstamp.Wall
	clk  clock.Clock
	used atomic.Bool // a connection has kernel stamps
}

func newWall(clk clock.Clock) *wall { return &wall{Wall: kernelstamp.NewWall(clk.Now), clk: clk} }

func newConn(c net.Conn, w *wall, kernel bool) *conn {
	k := &conn{Conn: c, wall: w, clk: w.clk, socket: newSocket(c)}
	if tcp, ok := c.(*net.TCPConn); ok && kernel {
		if k.stamped = kernelstamp.NewReader(tcp); k.stamped != nil {
			w.used.Store(true)
		}
	}
	return k
}

// connOf returns the conn that a connection of net/http is, or that its TLS uses; nil if there is none.
func connOf(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	k, _ := c.(*conn)
	return k
}

// begin starts the records of a new exchange and returns its number. With cork, written data waits until uncork.
func (c *conn) begin(cork bool) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	c.cork, c.corked = cork, nil
	c.full = false
	c.old = c.now
	c.now = traffic{arrival: arrival{number: c.now.number}, began: clock.Never, wrote: clock.Never}
	return c.turn
}

// look returns the records of an exchange: the current one or the one before. A nil conn, as with HTTP/2, has none.
func (c *conn) look(turn uint32) (traffic, bool) {
	if c == nil {
		return traffic{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.turn {
	case turn:
		return c.now, true
	case turn + 1:
		return c.old, true
	}
	return traffic{}, false
}

// note records whether the reply of an exchange is a stream.
func (c *conn) note(turn uint32, stream bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn == turn {
		c.now.stream = stream
	}
}

// streamed returns when the reply before that of an exchange ended, if it was a stream.
func (c *conn) streamed(turn uint32) (at time.Duration, ok bool) {
	if c == nil {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.old.at), c.turn == turn && c.old.stream
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (n int, err error) {
	var ns int64
	var waited bool
	before := c.before
	c.before = nil
	switch {
	case c.stamped != nil:
		n, ns, waited, err = c.stamped.ReadAfter(before, p)
	case before != nil:
		if _, err := before(); err != nil {
			return 0, err
		}
		fallthrough
	default:
		n, err = c.Conn.Read(p)
	}
	if n > 0 {
		c.arrived(n, len(p), ns, waited)
	}
	return n, err
}

// arrived records a read of n bytes into a buffer of size bytes. ns is the kernel's timestamp, or 0.
//
// A read after one that filled its buffer counts as part of that one and has its number, unless the kernel tells them apart: the bytes
// had arrived already, and only net/http's small buffer split them.
func (c *conn) arrived(n, size int, ns int64, waited bool) {
	now := int64(c.clk.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.now.arrival
	at, delay := now, time.Duration(0)
	if ns != 0 {
		stamp := c.wall.Instant(ns)
		delay = time.Duration(now - stamp)
		// A timestamp lies between the one before and now, except after a step of the wall clock.
		at = max(a.at, min(now, stamp))
	}
	if continues := c.full && !waited && a.number > 0 && (ns == 0 || at == a.at); !continues {
		a.number++
		a.prompt = ns != 0 && waited && delay.Abs() <= promptly
	}
	a.at, a.kernel = at, ns != 0
	c.full = n == size
	c.now.received += int64(n)
}

// maxCorked is the maximum size of the headers that wait for their body.
const maxCorked = 16 << 10

// headers are the buffers of corked connections; an open stream needs none.
var headers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// uncork makes the next write include the waiting headers.
func (c *conn) uncork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cork = false
}

// Write implements net.Conn. On a corked connection it holds the headers back. net/http flushes them before it reads a body of unknown
// type: that would cost one more system call and segment for each request, and the engine would see a request whose gate is still closed.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.cork && c.waits()+len(p) <= maxCorked {
		if c.corked == nil {
			c.corked = headers.Get().(*bytes.Buffer) // the pool has only buffers
		}
		c.corked.Write(p)
		c.mu.Unlock()
		return len(p), nil
	}
	before := c.corked
	c.corked = nil
	c.writes()
	c.mu.Unlock()
	sent, err := c.send(before, p)
	c.wrote(sent, err)
	if err != nil {
		return 0, err // some of p may have been written; it does not matter, because the connection is broken
	}
	return len(p), nil
}

// WriteNow writes what the kernel accepts at once: nothing on a connection without a socket.
func (c *conn) WriteNow(p []byte) (int, error) {
	if c.socket == nil {
		return 0, nil
	}
	c.mu.Lock()
	c.writes()
	c.mu.Unlock()
	n, err := c.socket.WriteNow(p)
	c.wrote(int64(n), err)
	return n, err
}

// writes records that a write call begins; c.mu must be held.
func (c *conn) writes() {
	c.now.writing = true
	if c.now.began == clock.Never {
		c.now.began = c.clk.Now()
	}
}

// wrote records the end of a write call.
func (c *conn) wrote(sent int64, err error) {
	now := c.clk.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.wrote, c.now.writing = now, false
	c.now.sent += sent
	c.now.cut = c.now.cut || err != nil
}

// Quiet reports whether a connection that nobody reads is still open and has received nothing. It is true if that cannot be determined.
func (c *conn) Quiet() bool { return c.socket == nil || c.socket.Quiet() }

// waits returns the number of waiting bytes.
func (c *conn) waits() int {
	if c.corked == nil {
		return 0
	}
	return c.corked.Len()
}

// send writes the waiting headers, if there are any, and p, with one system call if possible.
func (c *conn) send(before *bytes.Buffer, p []byte) (int64, error) {
	if before == nil {
		to := io.Writer(c.Conn)
		if c.socket != nil {
			to = c.socket
		}
		n, err := to.Write(p)
		return int64(n), err
	}
	both := net.Buffers{before.Bytes(), p}
	n, err := both.WriteTo(c.Conn)
	before.Reset()
	headers.Put(before)
	return n, err
}

// copyBuffers save 32 KiB of garbage per request: without ReadFrom, net/http's io.Copy would allocate a buffer for each body.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFrom implements io.ReaderFrom.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	b := copyBuffers.Get().(*[32 << 10]byte) // nothing else is in the pool
	defer copyBuffers.Put(b)
	return io.CopyBuffer(struct{ io.Writer }{c}, r, b[:])
}
