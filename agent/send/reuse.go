// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net/http"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"
)

// This file decides which requests share a connection, one after the other. If a balancer assigns whole connections to engines, the turns
// of a session reach one engine only if they share a connection.

// Reuse says which requests may use a connection that is kept open.
type Reuse string

// The ways to reuse connections.
const (
	ReuseAny     Reuse = "kept"    // any; the zero value is this
	ReuseNever   Reuse = "fresh"   // none: each request has its own connection, which is closed after the reply
	ReuseSession Reuse = "session" // those of its session; requests without a session share others
)

// maxStickySessions is the number of sessions that keep their connections: those that were used last.
const maxStickySessions = 1 << 14

// connections has the transports of a client.
type connections struct {
	shared   *http.Transport
	sessions *lru.Cache[string, *http.Transport] // nil: no session has its own
	open     func() *http.Transport
}

func newConnections(reuse Reuse, open func() *http.Transport) *connections {
	c := &connections{shared: open(), open: open}
	if reuse == ReuseSession {
		c.sessions, _ = lru.NewWithEvict(maxStickySessions, func(_ string, t *http.Transport) { t.CloseIdleConnections() }) // refuses no size but 0
	}
	return c
}

// of returns the transport of a session's requests.
func (c *connections) of(session string) *http.Transport {
	if c.sessions == nil || session == "" {
		return c.shared
	}
	if t, known := c.sessions.Get(session); known {
		return t
	}
	t := c.open()
	if before, known, _ := c.sessions.PeekOrAdd(session, t); known { // by another request of the session in the meantime
		return before
	}
	return t
}

// closeIdle closes the connections that are not in use.
func (c *connections) closeIdle() {
	c.shared.CloseIdleConnections()
	if c.sessions != nil {
		for _, t := range c.sessions.Values() {
			t.CloseIdleConnections()
		}
	}
}

// Known reports whether it is one of the ways to reuse connections, or empty.
func (r Reuse) Known() bool {
	return slices.Contains([]Reuse{"", ReuseAny, ReuseNever, ReuseSession}, r)
}
