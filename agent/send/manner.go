// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"sync/atomic"
	"time"
)

// manner is what a client learns of how its server treats a connection after a streamed reply: some servers, such as llama.cpp's, close it,
// although they announce that they keep it. If the next request follows at once, it arrives before the client knows of the end, and nobody
// reads it. So the first of two events decides: a request gets a reply over such a connection, or, before anything of it is sent, it finds the
// connection dead soon after the stream. A manner that has not been learned is the zero value.
type manner struct{ learned atomic.Int32 }

const (
	keeps  = 1 + iota // connections outlive their streams
	closes            // a stream is the last reply of its connection
)

// soon is the time after a stream within which the end of its connection is taken for a consequence of the stream. Servers keep idle
// connections longer, most of them for five seconds or more.
const soon = time.Second

// settle is how long a request waits if its connection's stream has only just ended, and the manner has not been learned: a server that
// closes the connection does it in this time. Usually that is one request of a run, or none, because later ones know the manner.
const settle = 2 * time.Millisecond

// unknown reports whether the manner has not been learned.
func (m *manner) unknown() bool { return m.learned.Load() == 0 }

// reused notes a reply over a connection whose last reply was a stream.
func (m *manner) reused() { m.learned.CompareAndSwap(0, keeps) }

// died notes that such a connection ended soon after the stream.
func (m *manner) died() { m.learned.CompareAndSwap(0, closes) }

// closes reports whether the server closes a connection after a stream.
func (m *manner) closes() bool { return m.learned.Load() == closes }

// ClosesAfterStreams reports whether the server turned out to close each connection after a streamed reply, without announcing it. Then each
// streamed request has a connection of its own, as with [ReuseNever]. A request whose connection such a server closes at that
// moment does not count in [Exchange].Resent, because the server does not read it.
func (c *Client) ClosesAfterStreams() bool { return c.manner.closes() }
