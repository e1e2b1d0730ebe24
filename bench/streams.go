// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/study/referee"
)

// outcome has the results of one streaming run.
type outcome struct {
	report *report
	cpu    float64 // µs per token, between the first request and the last token
	steady float64 // µs per token, while all streams are open: excludes connections, requests and ends
	all    float64 // µs per token, for the whole run including the program's start
	since  float64 // µs, from the first request to the program's end
	tokens float64
	rss    float64 // MiB
	first  float64 // s from the program's start to its first request
	rate   float64 // tokens/s while the most streams were open, by the engine's record
	engine float64 // percent of the engine's core
	worst  float64 // see report.worstError
	took   time.Duration
}

// streamOnce runs one load with one client.
func (b *bench) streamOnce(ctx context.Context, c client, w work, parts ...any) (o *outcome, err error) {
	began := time.Now()
	stream := func(dir, url string) (*process, error) { return c.stream(ctx, b, dir, url, w) }
	err = b.measure(ctx, append(parts, c.name(), w.streams), w.engine(), stream, func(m *measured) error {
		r, err := c.read(m.dir, m.truth)
		if err != nil {
			return err
		}
		o = &outcome{
			report: r, rss: mebi(m.peak), first: m.first.Sub(m.began).Seconds(), took: time.Since(began),
			cpu: m.perToken(m.cpu(m.first, m.last)), steady: m.steady(), all: m.perToken(m.total()),
			since: 1e3 * clock.Millis(m.total()-used(m.samples, m.first)), tokens: float64(m.truth.tokens()),
			engine: m.engineCore(), worst: r.worstError(m.truth), rate: m.truth.peakRate(),
		}
		return nil
	})
	return o, err
}

// errorsOf returns cells with the p1, p50 and p99 of errors, in ms.
func errorsOf(what string, errs []float64) []cell {
	return []cell{
		num(what+" p1", referee.Percentile(errs, 0.01)), num(what+" p50", referee.Percentile(errs, 0.5)), num(what+" p99", referee.Percentile(errs, 0.99)),
	}
}

// cells returns an outcome's columns.
func (o *outcome) cells() []cell {
	cells := append(errorsOf("gap error ms", o.report.gapErrors), errorsOf("TTFT error ms", o.report.ttftErrors)...)
	return append(cells,
		num("coalesced %", 100*o.report.coalesced), num("CPU µs/token", o.cpu), num("RSS MiB", o.rss), num("engine core %", o.engine),
		word("verdict", o.report.verdict))
}

const streamColumns = "`gap error`: a gap between two chunks as a client reports it, minus the gap in the engine's record, gap by gap. `TTFT error`: ours,\n" +
	"from the wire (peers: from their call), minus the engine's (its first write − its receipt of the request's last byte). `coalesced`: gaps\n" +
	"that a client could not tell apart. CPU from the first request to the last token. A peer's RSS is summed over its processes.\n"

// streams compares the agent, in several settings, with the floor.
func streams(ctx context.Context, b *bench) error {
	kernel := &moonloop{label: "moonloop, kernel stamps"}
	read := &moonloop{label: "moonloop, stamps after the read", args: []string{"--arrival-stamps", "read"}}
	full := &moonloop{label: "moonloop, kernel stamps, all telemetry", sink: true}
	type load struct {
		streams int
		busy    bool
	}
	var loads []load
	for _, n := range b.streamsOf(300, 1000) {
		loads = append(loads, load{n, false})
	}
	loads = append(loads, load{loads[len(loads)-1].streams, true})
	for _, l := range loads {
		w := work{streams: l.streams, tokens: b.tokens(), within: time.Second}
		clients, beside := []client{kernel, read, full, bare}, ""
		if l.busy {
			clients, beside = []client{kernel, full, stampedBare}, besideBusy
		}
		t := b.table(fmt.Sprintf("%d streams of 50 tokens/s%s", l.streams, beside), streamColumns+
			"All telemetry: a span with an event per token for each request, and metrics, over OTLP to a sink on the engine's core.\n"+
			reasonsColumn)
		b.turns(ctx, t, clients, func(c client, round int) error {
			var o *outcome
			err := b.beside(ctx, l.busy, func() (err error) {
				o, err = b.streamOnce(ctx, c, w, "streams", l.busy, round)
				return err
			})
			if err != nil {
				return err
			}
			t.add(c.name(), append(o.cells(), o.report.reasons()...)...)
			b.say("  %4d × %-40s gap error p99 %s ms, %s µs/token, %s (%.0f s)", w.streams, c.name(),
				figure(referee.Percentile(o.report.gapErrors, 0.99)), figure(o.cpu), o.report.verdict, o.took.Seconds())
			return nil
		})
		least := clients[len(clients)-1].name()
		aimGapErrors(t, kernel.label, least)
		aimOwnFault(t, "all telemetry", full.label, l.busy)
		if l.busy {
			aimCoalesced(t, "all telemetry", full.label)
		}
		ratio := t.median(full.label, "CPU µs/token") / t.median(least, "CPU µs/token")
		t.aim("CPU per token with events, metrics and kernel stamps within 1.5× of the floor", ratio <= 1.5, ratio)
	}
	return nil
}

// aimGapErrors compares errors of gaps with 0.05 ms, or with the floor's if that has greater ones.
func aimGapErrors(t *table, row, floor string) {
	text, holds := "gap error within ±0.05 ms from p1 to p99 with kernel stamps", true
	var values []float64
	for _, column := range []string{"gap error ms p1", "gap error ms p99"} {
		ours, most := t.median(row, column), 0.05
		values = append(values, ours)
		if floors := t.median(floor, column); math.Abs(floors) > most {
			most, text = ofFloor*math.Abs(floors), text+fmt.Sprintf("; the floor has %s at %s, so at most %v times that", figure(floors), column[len("gap error ms "):], ofFloor)
		}
		holds = holds && math.Abs(ours) <= most
	}
	t.aim(text, holds, values...)
}

// aimCoalesced compares the coalesced gaps of a row with the floor's: no client can respond in time on a processor that others occupy.
func aimCoalesced(t *table, what, row string) {
	ours, floors := t.median(row, "coalesced %"), t.median(stampedBare.label, "coalesced %")
	t.aim(fmt.Sprintf("%s: at most %v× as many gaps as at the floor, and one in a hundred, cannot be told apart", what, ofFloor), ours <= ofFloor*floors+1, ours, floors)
}

// reasonsColumn explains the cells of reasons.
const reasonsColumn = "`reasons`: what made a verdict worse than valid. A busy loop makes hiccups and coalesced gaps, and delays writes and the collector's pauses,\n" +
	"which the verdict reports. These are compared with the floor's. Any other reason would be our own fault.\n" +
	"`wire lag`: the time until the kernel had the whole request."

const wireLag, longestPause = "wire lag p99 ms", "longest GC pause ms"

// reasons returns the cells that say what made a verdict worse than valid, and those that the floor also has.
func (r *report) reasons() []cell {
	cells := []cell{word("reasons", cmp.Or(r.why, "–"))}
	if len(r.wireLags) > 0 {
		cells = append(cells, num(wireLag, referee.Percentile(r.wireLags, 0.99)), num(longestPause, r.longestPause))
	}
	return cells
}

// aimOwnFault counts the rounds of a row whose verdict was worse than valid, and the machine was not the reason.
func aimOwnFault(t *table, what, row string, busy bool) {
	excused := map[string]bool{"–": true, "hiccup_share": true}
	if busy { // no client can do better than the floor
		noWorse := func(column string) bool { return t.median(row, column) <= ofFloor*t.median(stampedBare.label, column) }
		excused["coalesced_share"] = true // see aimCoalesced
		excused["wire_lag_p99"], excused["gc_pause_max"] = noWorse(wireLag), noWorse(longestPause)
	}
	worse := 0.0
	for _, reasons := range t.row(row).Cells["reasons"] {
		if ownFault(fmt.Sprint(reasons), excused) {
			worse++
		}
	}
	t.aim(what+": no round is worse than valid by our own doing", worse == 0, worse)
}

// ownFault reports whether one of a verdict's reasons is not excused.
func ownFault(reasons string, excused map[string]bool) bool {
	for why := range strings.SplitSeq(reasons, ", ") {
		if !excused[why] {
			return true
		}
	}
	return false
}

// pythonColumns explains the columns that the table has in addition to streamColumns. Python clients delay as much work as they can until a
// stream is over, so CPU while streaming makes them look better than they are.
const pythonColumns = "`TTFT, ITL off`: by how much the worst of TTFT p50 and p99, ITL p50 and p99 (ITL as the mean gap of a request, which every one\n" +
	"of them reports) differs from the engine's own. `first request`: from the start of the program to its first request at the engine.\n" +
	"`all CPU`: of the whole run, start and end of the program included. `one token more`: what a token adds to all CPU after the first\n" +
	"request, from this run and one with a tenth of the tokens: it does not depend on the start, or on when work is done."

const allCPU, oneMore = "all CPU µs/token", "CPU µs for one token more"

// pythonStreams compares the agent with the Python peers at rates that these can sustain.
func pythonStreams(ctx context.Context, b *bench) error {
	rivals := b.pythonPeers()
	if len(rivals) == 0 {
		b.say("  no Python peer is installed; run: make peers")
		return nil
	}
	full := &moonloop{label: "moonloop, all telemetry", sink: true}
	long := work{streams: 50, tokens: 3 * b.tokens(), within: time.Second / 2}
	short := long
	short.tokens /= 10
	t := b.table(fmt.Sprintf("%d streams of 50 tokens/s, next to the Python peers", long.streams), streamColumns+pythonColumns+fmt.Sprintf(" Rounds of the peers: %d.", min(b.rounds, b.slow)))
	b.turns(ctx, t, append([]client{full, bare}, rivals...), func(c client, round int) error {
		less, err := b.streamOnce(ctx, c, short, "peers", "short", round)
		if err != nil {
			return err
		}
		o, err := b.streamOnce(ctx, c, long, "peers", round)
		if err != nil {
			return err
		}
		more := (o.since - less.since) / (o.tokens - less.tokens)
		t.add(c.name(), append(o.cells(), num("TTFT, ITL off %", 100*o.worst), num("first request s", o.first),
			num(allCPU, o.all), num(oneMore, more))...)
		b.say("  %4d × %-40s gap error p99 %s ms, %s µs/token, %s in all, %s for one more (%.0f s)", long.streams, c.name(),
			figure(referee.Percentile(o.report.gapErrors, 0.99)), figure(o.cpu), figure(o.all), figure(more), o.took.Seconds())
		return nil
	})
	for _, column := range []string{allCPU, oneMore} {
		var theirs []float64
		for _, p := range rivals {
			theirs = append(theirs, t.median(p.name(), column))
		}
		measured, _ := referee.Known(theirs)
		best, ours, floor := referee.Percentile(measured, 0), t.median(full.label, column), t.median(bare.label, column)
		text, most := reachable(column+": at least 10× less than the best Python peer's", best/10, floor)
		t.aim(text+" (ours, the peer's, the floor's)", ours <= most, ours, best, floor)
	}
	return nil
}

// tokens is the length of a streamed reply: at 50 tokens/s, a third longer than a dispatch run.
func (b *bench) tokens() int { return max(20, int(50*b.lasts.Seconds()*4/3)) }

// turns runs the clients in turn. A peer that failed is not run again for this table; if a run of moonloop fails, the bench fails.
func (b *bench) turns(ctx context.Context, t *table, clients []client, once func(c client, round int) error) {
	gone := map[string]bool{}
	for round := range b.rounds {
		for _, c := range clients {
			_, theirs := c.(peer)
			if gone[c.name()] || ctx.Err() != nil || theirs && round >= b.slow {
				continue
			}
			err := once(c, round)
			if err == nil {
				continue
			}
			t.note("%s: %v", c.name(), err)
			if !theirs {
				b.fail("%s: %v", c.name(), err)
				continue
			}
			gone[c.name()] = true
			b.say("  %s is left out: %v", c.name(), err)
		}
	}
}

// pythonPeers returns the installed streaming peers.
func (b *bench) pythonPeers() (there []client) {
	for _, p := range peers {
		if p.report != nil && b.installed(p) != "" {
			there = append(there, p)
		}
	}
	return there
}
