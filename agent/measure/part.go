// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

// This file computes the figures of parts of a run's requests: of each engine, if there are several, and of each class, if rows have
// classes.

import (
	"maps"
	"slices"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
	"github.com/moonloop/moonloop/semconv"
)

// Server is an engine, identified by its address.
type Server struct {
	Name    string // host:port
	Address string
	Port    int
}

// Instance returns the engine that served the request, or was chosen to serve it: its name in a response header, else host:port if there
// are several engines, else empty.
func (r *Record) Instance() string {
	switch {
	case r.Exchange.Instance != "":
		return r.Exchange.Instance
	case r.Server != nil:
		return r.Server.Name
	}
	return ""
}

// ServerFigures are the figures of one engine.
type ServerFigures struct {
	Server string `json:"server"` // host:port, or the name in a response header
	PartFigures
}

// ClassFigures are the figures of the rows of one class.
type ClassFigures struct {
	// Class is empty for rows without a class, and _OTHER for the classes after the first [MaxClasses].
	Class string `json:"class"`
	// Priority is the priority that all requests of the class had in their bodies; absent if they had none, or different ones.
	Priority *int64 `json:"priority,omitempty"`
	PartFigures
}

// PartFigures are the figures of a part of the requests.
type PartFigures struct {
	Rows Rows `json:"rows"`
	// PromptTokens and CachedTokens cover the rows for which the engine reported both, OutputTokens those for which it reported them; all
	// only over served rows that were sent once. OutputTokens is absent if it reported them for none.
	PromptTokens int64  `json:"prompt_tokens"`
	CachedTokens int64  `json:"cached_tokens"`
	OutputTokens *int64 `json:"output_tokens,omitempty"`
	// Good counts the served rows within the service level; absent if there is none.
	Good *int64 `json:"good_requests,omitempty"`
	// TTFT is from the start of the request to its first token, Latency to its last one; ITL is the mean gap between tokens. All are in ms,
	// over served rows that were sent once.
	TTFT    Stat `json:"time_to_first_token"`
	ITL     Stat `json:"inter_token_latency"`
	Latency Stat `json:"request_latency"`
}

// maxServers limits the number of engines that are counted separately, since a router may name a new one with each reply.
const maxServers = 1000

// MaxClasses is the maximum number of classes that are counted separately.
const MaxClasses = stats.MaxClasses

// part collects the figures of one part.
type part struct {
	PartFigures

	ttft, itl, latency histogram
	sent               int64
	priority           mooncake.Opt[int64] // of the first request that was sent
	mixed              bool                // another one had a different priority
}

// parts are the parts of one kind, by name.
type parts map[string]*part

// of returns the part with a name. The first names, up to the limit, have parts of their own; later names share one.
func (all parts) of(name string, limit int) *part {
	if all[name] == nil && len(all) >= limit {
		name = semconv.ErrorOther
	}
	if all[name] == nil {
		all[name] = &part{ttft: newHistogram(scaleMillis), itl: newHistogram(scaleMillis), latency: newHistogram(scaleMillis)}
	}
	return all[name]
}

// add counts a record.
func (p *part) add(r *Record, slo *SLO) {
	p.Rows.add(r, slo)
	if slo.Any() && p.Good == nil {
		p.Good = new(int64)
	}
	if r.Sent {
		p.notePriority(r.Priority)
	}
	if r.Outcome != Served || !r.Sent {
		return
	}
	countIf(p.Good, p.Good != nil && slo.Good(r))
	if r.Retried() {
		return
	}
	u := r.Exchange.Usage
	if u.Prompt > 0 && u.Cached >= 0 {
		p.PromptTokens += u.Prompt
		p.CachedTokens += u.Cached
	}
	if u.Completion > send.Unknown {
		if p.OutputTokens == nil {
			p.OutputTokens = new(int64)
		}
		*p.OutputTokens += u.Completion
	}
	if d, ok := r.TTFT(r.Exchange.Start); ok {
		p.ttft.record(clock.Millis(d))
	}
	if d, ok := r.ITL(); ok {
		p.itl.record(clock.Millis(d))
	}
	if d, ok := r.Latency(r.Exchange.Start); ok {
		p.latency.record(clock.Millis(d))
	}
}

// notePriority notes the priority of a request that was sent, and whether it differs from that of the first one.
func (p *part) notePriority(of mooncake.Opt[int64]) {
	if p.sent == 0 {
		p.priority = of
	}
	p.sent++
	p.mixed = p.mixed || p.priority != of
}

// figures returns the collected figures.
func (p *part) figures() PartFigures {
	f := p.PartFigures
	f.TTFT, f.ITL, f.Latency = p.ttft.stat("ms"), p.itl.stat("ms"), p.latency.stat("ms")
	if f.Good != nil {
		f.Good = new(*f.Good)
	}
	if f.OutputTokens != nil {
		f.OutputTokens = new(*f.OutputTokens)
	}
	return f
}

// All calls yield for each of the figures that was measured, in the order of the report.
func (f PartFigures) All(yield func(ID, Stat) bool) {
	single := func(id ID, n int64) bool { return yield(id, Stat{Unit: definitions[id].Unit, Avg: float64(n)}) }
	for _, s := range []struct {
		id   ID
		stat Stat
	}{{TTFT, f.TTFT}, {Latency, f.Latency}, {ITL, f.ITL}} {
		if s.stat.Count > 0 && !yield(s.id, s.stat) {
			return
		}
	}
	if !single(RequestCount, f.Rows.Served) || !single(ErrorCount, f.Rows.Failed) {
		return
	}
	if f.Good != nil && !single(GoodCount, *f.Good) {
		return
	}
	if f.OutputTokens != nil {
		single(TotalOutput, *f.OutputTokens)
	}
}

// servers returns the figures of each engine.
func (all parts) servers() (list []ServerFigures) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, ServerFigures{name, all[name].figures()})
	}
	return list
}

// classes returns the figures of each class; none if no row has a class.
func (all parts) classes() (list []ClassFigures) {
	if len(all) == 0 || len(all) == 1 && all[""] != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		f := ClassFigures{Class: name, PartFigures: p.figures()}
		if p.priority.Set && !p.mixed {
			f.Priority = new(p.priority.V)
		}
		list = append(list, f)
	}
	return list
}

// addParts counts a record for its engine and its class.
func (a *Aggregate) addParts(r *Record) {
	if name := r.Instance(); name != "" {
		a.servers.of(name, maxServers).add(r, &a.opt.SLO)
	}
	class := ""
	if r.Row != nil {
		class = r.Row.Class
	}
	a.classes.of(class, MaxClasses).add(r, &a.opt.SLO)
}

// add counts a row by its outcome.
func (r *Rows) add(of *Record, slo *SLO) {
	r.Total++
	*[...]*int64{Served: &r.Served, Failed: &r.Failed, Cancelled: &r.Cancelled, Skipped: &r.Skipped, Disconnected: &r.Disconnected}[of.Outcome]++
	countIf(&r.CutOff, of.Outcome == Cancelled && of.Reason == CancelEnd)
	countIf(&r.CutOffMissed, slo.Missed(of))
}
