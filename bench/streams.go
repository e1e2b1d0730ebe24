// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"
)

// tokenPace is the engine of the streaming scenarios: the first token after 200 ms, then 50 a second.
var tokenPace = []string{"--prefill", "200ms", "--prefill-per-token", "0", "--decode", "20ms", "--decode-per-sequence", "0"}

// outcome is what came of one streaming run.
type outcome struct {
	report *report
	cpu    float64 // µs per token, between the first request and the last token
	all    float64 // µs per token, of the whole run, the program's start included
	since  float64 // µs, of all that came after the first request, the program's end included
	tokens float64
	rss    float64 // MiB
	first  float64 // s from the program's start to its first request
	rate   float64 // tokens/s while the most streams were open, as the engine wrote them
	engine float64 // share of the engine's core
	leaves float64 // see report.leaves
	served int
	took   time.Duration
}

// streamOnce runs one load with one client.
func (b *bench) streamOnce(ctx context.Context, c client, w work, pace []string, parts ...any) (*outcome, error) {
	dir, err := b.folder(append(parts, c.name(), w.streams)...)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	e, err := b.startEngine(ctx, dir, pace...)
	if err != nil {
		return nil, err
	}
	p, err := c.stream(ctx, b, dir, e.url, w)
	t, truthErr := e.finish()
	if err != nil {
		return nil, err
	}
	if truthErr != nil {
		return nil, fmt.Errorf("%w; %s", truthErr, p.tail())
	}
	r, err := c.read(dir, t)
	if err != nil {
		return nil, err
	}
	first, last := t.first(), t.last()
	tokens := float64(t.tokens())
	o := &outcome{
		report: r, rss: mebi(p.peak), first: first.Sub(p.began).Seconds(), served: len(t.records), took: time.Since(began),
		cpu:   1e3 * millis(p.cpu(first, last)) / tokens,
		all:   1e3 * millis(p.total()) / tokens,
		since: 1e3 * millis(p.total()-used(p.samples, first)), tokens: tokens,
		engine: float64(e.cpu(first, last)) / float64(last.Sub(first)),
		leaves: r.leaves(t), rate: t.peakRate(),
	}
	return o, os.RemoveAll(dir)
}

// peakRate is the greatest number of tokens that were written within one second.
func (t *truth) peakRate() float64 {
	seconds := map[int64]int{}
	for i := range t.records {
		for _, w := range t.records[i].Writes {
			seconds[int64(w.At/(250*time.Millisecond))] += w.Tokens
		}
	}
	most := 0
	for at := range seconds {
		most = max(most, seconds[at]+seconds[at+1]+seconds[at+2]+seconds[at+3])
	}
	return float64(most)
}

// errorsOf writes the p1, p50 and p99 of errors in ms.
func errorsOf(what string, errs []float64) []cell {
	return []cell{
		num(what+" p1", percentile(errs, 0.01)), num(what+" p50", percentile(errs, 0.5)), num(what+" p99", percentile(errs, 0.99)),
	}
}

// cells are an outcome's columns.
func (o *outcome) cells() []cell {
	cells := append(errorsOf("gap error ms", o.report.gapErrors), errorsOf("TTFT error ms", o.report.ttftErrors)...)
	cells = append(cells,
		num("coalesced %", 100*o.report.coalesced), num("CPU µs/token", o.cpu), num("RSS MiB", o.rss), num("engine core %", 100*o.engine))
	if o.report.verdict != "" {
		cells = append(cells, word("verdict", o.report.verdict))
	}
	return cells
}

const streamColumns = "`gap error`: what a client says of a gap between two chunks less what the engine's record says, gap by gap. `TTFT error`: ours,\n" +
	"from the wire (peers: from their call), less the engine's first write minus its receipt of the request's last byte. `coalesced`: gaps\n" +
	"that a client could not tell apart. CPU from the first request to the last token. A peer's RSS is summed over its processes.\n"

// streams compares the agent's settings with the floor.
func streams(ctx context.Context, b *bench) error {
	kernel, read := &moonloop{label: "moonloop, kernel stamps"}, &moonloop{label: "moonloop, stamps after the read", args: []string{"--arrival-stamps", "read"}}
	full := &moonloop{label: "moonloop, kernel stamps, all telemetry", sink: true}
	for _, n := range b.sizes {
		w := work{streams: n, tokens: b.tokens(), within: time.Second}
		t := b.table(fmt.Sprintf("%d streams of 50 tokens/s", n), streamColumns+
			"All telemetry: a span with an event per token for each request, and metrics, over OTLP to a sink on the engine's core.")
		b.compare(ctx, t, w, b.rounds, kernel, read, full, floor{})
		low, high := t.median(kernel.label, "gap error ms p1"), t.median(kernel.label, "gap error ms p99")
		t.aim("gap error within ±0.05 ms from p1 to p99 with kernel stamps", math.Abs(low) <= 0.05 && math.Abs(high) <= 0.05, low, high)
		ratio := t.median(full.label, "CPU µs/token") / t.median(floor{}.name(), "CPU µs/token")
		t.aim("CPU per token with events, metrics and kernel stamps within 1.5× of the floor", ratio <= 1.5, ratio)
	}
	return nil
}

// tokens is the length of a streamed reply: at 50 tokens/s a third longer than a dispatch run.
func (b *bench) tokens() int { return max(20, int(50*b.lasts.Seconds()*4/3)) }

// compare runs the clients in turns and enters what came of it.
func (b *bench) compare(ctx context.Context, t *table, w work, rounds int, clients ...client) {
	gone := map[string]bool{}
	for round := range rounds {
		for _, c := range clients {
			if gone[c.name()] || ctx.Err() != nil {
				continue
			}
			o, err := b.streamOnce(ctx, c, w, tokenPace, "streams", round)
			if err != nil {
				b.trouble(t, c, gone, err)
				continue
			}
			t.add(c.name(), o.cells()...)
			b.say("  %4d × %-40s gap error p99 %s ms, %s µs/token, %s (%.0f s)", w.streams, c.name(),
				figure(percentile(o.report.gapErrors, 0.99)), figure(o.cpu), o.report.verdict, o.took.Seconds())
		}
	}
}

// trouble notes a failed run. A peer that failed is not tried again in this table; one of ours is a failure of the bench.
func (b *bench) trouble(t *table, c client, gone map[string]bool, err error) {
	t.note("%s: %v", c.name(), err)
	switch c.(type) {
	case *moonloop, floor:
		b.fail("%s: %v", c.name(), err)
	default:
		gone[c.name()] = true
		b.say("  %s is left out: %v", c.name(), err)
	}
}

// pythonPeers are the streaming peers that are there.
func (b *bench) pythonPeers() (peers []client) {
	if p := b.peer("aiperf"); p != "" {
		peers = append(peers, aiperf{p})
	}
	if p := b.peer("guidellm"); p != "" {
		peers = append(peers, guidellm{p})
	}
	return peers
}
