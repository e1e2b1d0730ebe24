// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// pythonColumns explains what the table has beyond streamColumns. Python clients put off what they can until a stream is
// over, so CPU while streaming flatters them.
const pythonColumns = "`TTFT, ITL off`: by how much the worst of TTFT p50 and p99, ITL p50 and p99 (ITL as the mean gap of a request, which every one\n" +
	"of them reports) leaves the engine's own. `first request`: from the start of the program to its first request at the engine.\n" +
	"`all CPU`: of the whole run, start and end of the program included. `one token more`: what a token adds to all CPU after the first\n" +
	"request, from this run and one with a tenth of the tokens: it knows neither the start nor when work is done."

// peersScenario compares the agent with the Python peers at rates that they can hold.
func peersScenario(ctx context.Context, b *bench) error {
	peers := b.pythonPeers()
	if len(peers) == 0 {
		b.say("  no Python peer is installed; run: make peers")
		return nil
	}
	full := &moonloop{label: "moonloop, all telemetry", sink: true}
	long := work{streams: 50, tokens: 3 * b.tokens(), within: time.Second / 2}
	t := b.table(fmt.Sprintf("%d streams of 50 tokens/s, beside the Python peers", long.streams), streamColumns+pythonColumns)
	gone := map[string]bool{}
	for round := range b.rounds {
		for _, c := range append([]client{full, floor{}}, peers...) {
			if gone[c.name()] || ctx.Err() != nil {
				continue
			}
			if err := b.besidePeers(ctx, t, c, long, round); err != nil {
				b.trouble(t, c, gone, err)
			}
		}
	}
	for _, column := range []string{"all CPU µs/token", "CPU µs for one token more"} {
		best := nan
		for _, p := range peers {
			if v := t.median(p.name(), column); !isUnknown(v) && !(v >= best) {
				best = v
			}
		}
		ours := t.median(full.label, column)
		t.aim(column+": at least 10× less than the best Python peer's", best >= 10*ours, ours, best)
	}
	return nil
}

// besidePeers runs a load with one client, and a tenth of it.
func (b *bench) besidePeers(ctx context.Context, t *table, c client, long work, round int) error {
	short := long
	short.tokens /= 10
	less, err := b.streamOnce(ctx, c, short, tokenPace, "peers", "short", round)
	if err != nil {
		return err
	}
	o, err := b.streamOnce(ctx, c, long, tokenPace, "peers", round)
	if err != nil {
		return err
	}
	more := (o.since - less.since) / (o.tokens - less.tokens)
	t.add(c.name(), append(o.cells(),
		num("TTFT, ITL off %", 100*o.leaves), num("first request s", o.first), num("all CPU µs/token", o.all), num("CPU µs for one token more", more))...)
	b.say("  %4d × %-40s gap error p99 %s ms, %s µs/token, %s in all, %s for one more (%.0f s)", long.streams, c.name(),
		figure(percentile(o.report.gapErrors, 0.99)), figure(o.cpu), figure(o.all), figure(more), o.took.Seconds())
	return nil
}
