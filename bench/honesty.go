// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// bearable is the largest acceptable error of a figure.
const bearable = 0.05

// honesty raises the token rate until a client's figures are wrong: for moonloop until the verdict is not valid, for all clients until the
// error of TTFT or ITL reaches 5 %.
func honesty(ctx context.Context, b *bench) error {
	t := b.table("Where honesty ends", fmt.Sprintf("Rising numbers of streams of 50 tokens/s. `right up to`: the last rate, in tokens/s that the engine wrote, before p50 or p99 of\n"+
		"TTFT or ITL (mean gap of a request) differs from the engine's own by %.0f %%. `valid up to`: the last rate before the verdict is not valid.\n"+
		"`ends at`: the first rate after that, or “–” where the ladder ended, or the engine's core was full, before that. `engine core`, `CPU`: at the\n"+
		"greatest rate. %d ladders for us, one for each peer, whose start takes the longest.", 100*bearable, min(b.rounds, 3)))
	ours := &moonloop{label: "moonloop"}
	rivals := b.pythonPeers()
	for round := range min(b.rounds, 3) {
		for _, c := range append([]client{ours}, rivals...) {
			steps := []int{250, 500, 1000, 1500, 2000, 2500}
			if c != client(ours) {
				if round > 0 {
					continue
				}
				steps = []int{10, 50, 100, 200, 400}
			}
			b.climb(ctx, t, c, steps, round)
		}
	}
	for _, p := range rivals {
		we, they := t.median(ours.label, "valid up to"), t.median(p.name(), "right up to")
		if isUnknown(they) && !isUnknown(t.median(p.name(), "ends at")) {
			they = 0 // wrong at the first rate already
		}
		t.aim("our verdict stays valid beyond the rate at which "+p.name()+" is right", we > they, we, they)
	}
	return nil
}

// climb raises the rate for one client, step by step.
func (b *bench) climb(ctx context.Context, t *table, c client, steps []int, round int) {
	const unknown = "–"
	right, wrong, valid, turned, core, cpu := nan, nan, nan, nan, nan, nan
	verdict, first := unknown, nan
	for _, n := range steps {
		w := work{streams: n, tokens: b.tokens(), within: time.Second}
		o, err := b.streamOnce(ctx, c, w, "honesty", round)
		if err != nil {
			t.note("%s with %d streams: %v", c.name(), n, err)
			wrong = float64(n * 50)
			break
		}
		core, cpu = o.engine, o.cpu
		b.say("  %4d × %-10s off %s %%, %s, %.0f tokens/s, engine %.0f %% (%.0f s)", n, c.name(), figure(100*o.worst), o.report.verdict, o.rate, o.engine, o.took.Seconds())
		if o.worst <= bearable && isUnknown(wrong) {
			right = o.rate
		} else if isUnknown(wrong) {
			wrong = o.rate
			first = 100 * o.worst
		}
		if o.report.verdict == "valid" && isUnknown(turned) {
			valid = o.rate
		} else if isUnknown(turned) && slices.Contains([]string{"degraded", "invalid"}, o.report.verdict) {
			turned, verdict = o.rate, o.report.verdict
		}
		_, ours := c.(*moonloop)
		if !isUnknown(wrong) && (!ours || !isUnknown(turned)) || o.engine > 97 {
			break
		}
	}
	t.add(c.name(), num("right up to", right), num("ends at", wrong), num("off by %", first),
		num("valid up to", valid), num("turns at", turned), word("to", verdict), num("engine core %", core), num("CPU µs/token", cpu))
}

func isUnknown(v float64) bool { return v != v }
