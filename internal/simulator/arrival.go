// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/internal/kernelstamp"
)

// Stamped returns a listener for [Engine.NewServer] with which records say when the kernel had the whole request ([Record].Received).
// Without it, and on systems other than Linux, they have only the time at which the engine read it.
func (e *Engine) Stamped(l net.Listener) net.Listener { return stampedListener{l} }

type stampedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l stampedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c, nil
	}
	stamps := kernelstamp.NewReader(tcp)
	if stamps == nil {
		return c, nil
	}
	return &stampedConn{TCPConn: tcp, stamps: stamps}, nil
}

// stampedConn remembers the stamp of its last read. net/http reads from several goroutines, one after the other.
type stampedConn struct {
	*net.TCPConn
	stamps *kernelstamp.Reader
	last   atomic.Int64 // on the wall clock, ns; 0 if the kernel gave no stamp
}

// Read implements net.Conn.
func (c *stampedConn) Read(p []byte) (int, error) {
	n, ns, _, err := c.stamps.Read(p)
	if n > 0 {
		c.last.Store(ns)
	}
	return n, err
}

// received returns when the kernel had the last bytes that were read from the request's connection; Never if that is unknown, or if they
// are not only this request's.
func (e *Engine) received(r *http.Request) time.Duration {
	c := connOf(r.Context()).conn
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	stamped, ok := c.(*stampedConn)
	if !ok || r.ProtoMajor > 1 {
		return Never
	}
	ns := stamped.last.Load()
	if ns == 0 {
		return Never
	}
	e.wall.Refresh()
	return time.Duration(min(e.wall.Instant(ns), int64(e.now())))
}
