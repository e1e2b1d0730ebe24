// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// hold keeps 5,000 streams open for a minute, once: what counts is whether it holds, and what the verdict says.
func hold(ctx context.Context, b *bench) error {
	const n = 5000
	seconds := int(20 * b.lasts.Seconds()) // a minute at the usual length
	t := b.table("5,000 streams of 10 tokens/s", fmt.Sprintf("Held for %d s, with kernel stamps and without telemetry, one run.", seconds))
	dir, err := b.folder("hold")
	if err != nil {
		return err
	}
	agent := &moonloop{label: "moonloop"}
	e, err := b.startEngine(ctx, dir, "--prefill", "200ms", "--prefill-per-token", "0", "--decode", "100ms", "--decode-per-sequence", "0")
	if err != nil {
		return err
	}
	trace := filepath.Join(dir, "trace.jsonl")
	if err := writeTrace(trace, even(n, n/5), 10*seconds); err != nil {
		return err
	}
	p, err := agent.replay(ctx, b, dir, e.url, trace, 5*time.Minute)
	saw, truthErr := e.finish()
	if err != nil {
		return err
	}
	if truthErr != nil {
		return truthErr
	}
	s, err := readSummary(dir)
	if err != nil {
		return err
	}
	r, err := agent.read(dir, saw)
	if err != nil {
		return err
	}
	first, last := saw.first(), saw.last()
	tokens, took := float64(saw.tokens()), last.Sub(first)
	t.add(agent.label,
		num("served", float64(s.Rows.Served)), num("failed", float64(s.Rows.Failed)), num("tokens/s", tokens/took.Seconds()),
		num("gap error ms p1", percentile(r.gapErrors, 0.01)), num("gap error ms p99", percentile(r.gapErrors, 0.99)),
		num("coalesced %", 100*r.coalesced), num("CPU µs/token", 1e3*millis(p.cpu(first, last))/tokens),
		num("client core %", 100*float64(p.cpu(first, last))/float64(took)), num("engine core %", 100*float64(e.cpu(first, last))/float64(took)),
		num("RSS MiB", mebi(p.peak)), num("KiB/stream", float64(p.peak)/1024/n), word("verdict", s.Verdict.Class))
	t.aim("all 5,000 streams are held and served", s.Rows.Served == n, float64(s.Rows.Served))
	t.aim("at most 100 MiB beyond 45 KiB per open stream", mebi(p.peak) <= 100+45.0*n/1024, mebi(p.peak))
	if why := s.why(); why != "" {
		t.note("The verdict's reasons: %s.", why)
	}
	pace := percentile(saw.gaps(), 0.99)
	t.note("The engine itself wrote gaps of p50 %s and p99 %s ms where 100 were meant.", figure(percentile(saw.gaps(), 0.5)), figure(pace))
	return nil
}
