// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file distributes requests over several engines that serve one model.

import (
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
)

// Balance says which of several engines a request goes to.
type Balance string

// The kinds of balance; zero = RoundRobin.
const (
	RoundRobin  Balance = "round-robin"  // one after the other
	LeastLoaded Balance = "least-loaded" // the one with the fewest requests of this process in flight; if there are several, the next in turn; see unreachableFor
	BySession   Balance = "session"      // all turns of a session to one engine, by a hash of its id; other rows to the engines in turn
	// ByPrefix sends all rows with the same first block after the trunk to one engine, by a hash of the block's id. The trunk is the set of
	// blocks, such as a system prompt's, that, with n engines, are in more than 1/(2n) of the rows. If rows were sent by the blocks of the
	// trunk, nearly all would go to one engine. Rows that end in the trunk go to the engines in turn. Rows without block ids, or with those of
	// a new turn only, are sent as with BySession.
	ByPrefix Balance = "prefix"
)

// Balances returns all kinds of balance.
func Balances() []Balance { return []Balance{RoundRobin, LeastLoaded, BySession, ByPrefix} }

// engines are the engines of a run.
type engines struct {
	balance Balance
	clk     clock.Clock
	all     []*backend
	// For ByPrefix: the blocks of the trunk, and whether the ids of a session's rows are those of whole prompts.
	trunk map[uint64]bool
	whole bool

	mu   sync.Mutex
	next int // the next engine in turn
}

// backend is one engine.
type backend struct {
	url    string
	client *send.Client
	server *measure.Server // nil if there is only one

	// Guarded by engines.mu.
	inFlight int
	shun     time.Duration // the time until which LeastLoaded leaves it out
}

// unreachableFor is how long LeastLoaded leaves out an engine after a request got no connection to it, unless it leaves out all of them.
// Without this, an engine that is down would get most requests: they fail at once, so it has the fewest in flight.
const unreachableFor = time.Second

// byLoad reports whether the choice of an engine depends on the requests in flight.
func (e *engines) byLoad() bool { return e.balance == LeastLoaded && len(e.all) > 1 }

// follow prepares ByPrefix with the first rows of the trace.
func (e *engines) follow(s *load.Stream, said *notices) {
	if e.balance != ByPrefix || len(e.all) < 2 {
		return
	}
	e.whole = s.Info().Sessions != mooncake.SessionDelta
	share := 1 / float64(2*len(e.all))
	trunk, rows := s.Trunk(share)
	switch {
	case !e.whole:
		said.warn("balance: rows are new turns of their sessions, so requests are sent by session, not by prefix")
	case rows == 0:
		said.warn("balance: the first rows have no block ids, so requests are sent by session or in turn, not by prefix")
	default:
		said.note("balance: the trunk (blocks that more than %.3g %% of the first %s have) has %s; requests are sent by their first block after the trunk",
			100*share, term.Counted(int64(rows), "rows"), term.Counted(int64(len(trunk)), "blocks"))
	}
	e.trunk = trunk
}

// stickyKey returns a number that is equal for all rows that must be sent to one engine; fixed is false if the row may be sent to any
// engine.
func (e *engines) stickyKey(row *mooncake.Row) (key uint64, fixed bool) {
	if e.balance == ByPrefix && len(row.HashIDs) > 0 && (e.whole || row.SessionID == "") {
		for _, id := range row.HashIDs {
			if !e.trunk[id] {
				return splitmix.Next(id), true
			}
		}
		return 0, false
	}
	if (e.balance == BySession || e.balance == ByPrefix) && row.SessionID != "" {
		return xxhash.Sum64String(row.SessionID), true
	}
	return 0, false
}

// pick chooses the engine of a request, which counts as in flight there until release is called.
func (e *engines) pick(row *mooncake.Row) *backend {
	e.mu.Lock()
	defer e.mu.Unlock()
	var chosen *backend
	key, fixed := e.stickyKey(row)
	switch {
	case fixed:
		chosen = e.all[key%uint64(len(e.all))]
	case e.balance == LeastLoaded:
		now := e.clk.Now()
		for i := range e.all {
			one := e.all[(e.next+i)%len(e.all)]
			if chosen == nil || one.before(chosen, now) {
				chosen = one
			}
		}
		e.next = (e.next + 1) % len(e.all)
	default:
		chosen = e.all[e.next]
		e.next = (e.next + 1) % len(e.all)
	}
	chosen.inFlight++
	return chosen
}

// before reports whether LeastLoaded prefers an engine to another one.
func (b *backend) before(other *backend, now time.Duration) bool {
	if out, otherOut := now < b.shun, now < other.shun; out != otherOut {
		return otherOut
	}
	return b.inFlight < other.inFlight
}

// release records that a request is over, and how it failed; nil: it did not.
func (e *engines) release(one *backend, failed *send.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	one.inFlight--
	if failed == nil {
		return
	}
	switch failed.Class {
	case send.ClassDNS, send.ClassConnect, send.ClassTLS, send.ClassConnectTimeout:
		one.shun = e.clk.Now() + unreachableFor
	default:
	}
}

// close closes idle connections.
func (e *engines) close() {
	for _, one := range e.all {
		one.client.Close()
	}
}

// chunks returns the number of chunks that have arrived from all engines.
func (e *engines) chunks() (n int64) {
	for _, one := range e.all {
		n += one.client.Chunks()
	}
	return n
}

// clockStep returns the greatest clock step of the clients.
func (e *engines) clockStep() (step time.Duration, used bool) {
	for _, one := range e.all {
		s, u := one.client.ClockStep()
		step, used = max(step, s), used || u
	}
	return step, used
}

// serverOf returns the attributes of an engine for spans and metrics.
func serverOf(address string) *measure.Server {
	u, _ := url.Parse(address) // Validate has parsed it before
	s := &measure.Server{Address: u.Hostname(), Port: map[string]int{"http": 80, "https": 443}[u.Scheme]}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		s.Port = port
	}
	s.Name = net.JoinHostPort(s.Address, strconv.Itoa(s.Port))
	return s
}
