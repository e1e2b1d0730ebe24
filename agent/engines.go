// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file spreads requests over several engines that serve one model.

import (
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
)

// Balance says which of several engines a request goes to.
type Balance string

// The ways to balance; zero = RoundRobin.
const (
	RoundRobin  Balance = "round-robin"  // one after the other
	LeastLoaded Balance = "least-loaded" // the one with the fewest requests of this process in flight, of several the next in turn
	BySession   Balance = "session"      // all turns of a session to one, by a hash of its id; rows without one in turn
)

// engines are the engines of a run.
type engines struct {
	balance Balance
	all     []*backend

	mu   sync.Mutex
	next int // in turn
}

// backend is one of them.
type backend struct {
	url      string
	client   *send.Client
	server   *measure.Server // nil of the only one
	inFlight int             // of engines.mu
}

// pick chooses the engine of a request, which counts as in flight there until it is left.
func (e *engines) pick(session string) *backend {
	e.mu.Lock()
	defer e.mu.Unlock()
	var chosen *backend
	switch {
	case e.balance == BySession && session != "":
		chosen = e.all[xxhash.Sum64String(session)%uint64(len(e.all))]
	case e.balance == LeastLoaded:
		for i := range e.all {
			if one := e.all[(e.next+i)%len(e.all)]; chosen == nil || one.inFlight < chosen.inFlight {
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

// leave says that a request is over.
func (e *engines) leave(one *backend) {
	e.mu.Lock()
	defer e.mu.Unlock()
	one.inFlight--
}

// close closes the connections that are idle.
func (e *engines) close() {
	for _, one := range e.all {
		one.client.Close()
	}
}

// chunks is the number of chunks that have arrived from all of them.
func (e *engines) chunks() (n int64) {
	for _, one := range e.all {
		n += one.client.Chunks()
	}
	return n
}

// clockStep is the greatest of the clients'.
func (e *engines) clockStep() (step time.Duration, used bool) {
	for _, one := range e.all {
		s, u := one.client.ClockStep()
		step, used = max(step, s), used || u
	}
	return step, used
}

// serverOf says what spans and metrics call an engine.
func serverOf(address string) *measure.Server {
	u, _ := url.Parse(address) // which Validate has read
	s := &measure.Server{Address: u.Hostname(), Port: map[string]int{"http": 80, "https": 443}[u.Scheme]}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		s.Port = port
	}
	s.Name = net.JoinHostPort(s.Address, strconv.Itoa(s.Port))
	return s
}
