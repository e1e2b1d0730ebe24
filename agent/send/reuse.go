// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net/http"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"
)

// This file decides which requests share a connection, one after the other. A balancer that sends a connection to one engine, whatever is
// in it, has the turns of a session on one engine only where they share one.

// Reuse says which requests a connection that is kept open is for.
type Reuse string

// The ways to use a connection again.
const (
	ReuseAny     Reuse = "kept"    // any; the zero value is this
	ReuseNever   Reuse = "fresh"   // none: each request has a connection of its own, which is closed behind the reply
	ReuseSession Reuse = "session" // those of its session; requests without one share others
)

// maxStickySessions is how many sessions keep their connections: those that were used last.
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
	if before, known, _ := c.sessions.PeekOrAdd(session, t); known { // by another request of the session meanwhile
		return before
	}
	return t
}

// closeIdle closes the connections that nothing is under way on.
func (c *connections) closeIdle() {
	c.shared.CloseIdleConnections()
	if c.sessions != nil {
		for _, t := range c.sessions.Values() {
			t.CloseIdleConnections()
		}
	}
}

// knownReuse reports whether it is one of the ways.
func knownReuse(r Reuse) bool {
	return slices.Contains([]Reuse{"", ReuseAny, ReuseNever, ReuseSession}, r)
}
