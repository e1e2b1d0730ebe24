// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import "github.com/moonloop/moonloop/agent/clock"

// This file keeps the figures of each engine, where requests are spread over several.

// Server is an engine by its address.
type Server struct {
	Name    string // host:port
	Address string
	Port    int
}

// Instance is the engine that served the request, or was to: as a header of the reply names it, else host:port where there are several
// engines, else empty.
func (r *Record) Instance() string {
	switch {
	case r.Exchange.Instance != "":
		return r.Exchange.Instance
	case r.Server != nil:
		return r.Server.Name
	}
	return ""
}

// maxServers bounds the engines that have figures of their own: a router may name a new one with each reply. Those beyond are otherServers.
const (
	maxServers   = 1000
	otherServers = "_OTHER"
)

// ServerFigures are those of one engine.
type ServerFigures struct {
	Server string `json:"server"` // host:port, or what a header of the replies calls it
	Rows   Rows   `json:"rows"`   // that went there
	// PromptTokens and CachedTokens are of the served rows whose engine said both.
	PromptTokens int64 `json:"prompt_tokens"`
	CachedTokens int64 `json:"cached_tokens"`
	// TTFT is from the start of the request to its first token, Latency to its last, in ms; both of served rows that were sent once.
	TTFT    Stat `json:"time_to_first_token"`
	Latency Stat `json:"request_latency"`
}

// serverTally collects the figures of one engine.
type serverTally struct {
	ServerFigures
	ttft, latency histogram
}

// addServer counts a record for its engine.
func (a *Aggregate) addServer(r *Record) {
	name := r.Instance()
	if name == "" {
		return
	}
	if a.servers[name] == nil && len(a.servers) >= maxServers {
		name = otherServers
	}
	t := a.servers[name]
	if t == nil {
		t = &serverTally{ttft: newHistogram(scaleMillis), latency: newHistogram(scaleMillis)}
		t.Server = name
		a.servers[name] = t
	}
	t.Rows.add(r.Outcome)
	if r.Outcome != Served || !r.Sent || r.Resent() {
		return
	}
	if u := r.Exchange.Usage; u.Prompt > 0 && u.Cached >= 0 {
		t.PromptTokens += u.Prompt
		t.CachedTokens += u.Cached
	}
	if d, ok := r.TTFT(r.Exchange.Start); ok {
		t.ttft.record(clock.Millis(d))
	}
	if d, ok := r.Latency(r.Exchange.Start); ok {
		t.latency.record(clock.Millis(d))
	}
}

// figures returns what has been collected.
func (t *serverTally) figures() ServerFigures {
	f := t.ServerFigures
	f.TTFT, f.Latency = t.ttft.stat("ms"), t.latency.stat("ms")
	return f
}

// add counts a row by what became of it.
func (r *Rows) add(o Outcome) {
	r.Total++
	*[...]*int64{Served: &r.Served, Failed: &r.Failed, Cancelled: &r.Cancelled, Skipped: &r.Skipped, Disconnected: &r.Disconnected}[o]++
}
