// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/moonloop/moonloop/study/referee"
)

// hold keeps 5,000 streams open for a minute, once. It checks that all stay open, and the verdict.
func hold(ctx context.Context, b *bench) error {
	const n = 5000
	seconds := int(20 * b.lasts.Seconds()) // a minute at the default length
	t := b.table("5,000 streams of 10 tokens/s", fmt.Sprintf("Held for %d s, with kernel stamps and without telemetry, one run.", seconds))
	agent := &moonloop{label: "moonloop"}
	engine := []string{"--prefill", "200ms", "--prefill-per-token", "0", "--decode", "100ms", "--decode-per-sequence", "0"}
	return b.measure(ctx, []any{"hold"}, engine, func(dir, url string) (*process, error) {
		return agent.replayRows(ctx, b, dir, url, referee.Even(n, n/5), 10*seconds, 5*time.Minute)
	}, func(m *measured) error {
		s, _, err := readOut(m.dir)
		if err != nil {
			return err
		}
		r, err := agent.read(m.dir, m.truth)
		if err != nil {
			return err
		}
		took, cpu := m.last.Sub(m.first), m.cpu(m.first, m.last)
		t.add(agent.label,
			num("served", float64(s.Rows.Served)), num("failed", float64(s.Rows.Failed)), num("tokens/s", float64(m.truth.tokens())/took.Seconds()),
			num("gap error ms p1", referee.Percentile(r.gapErrors, 0.01)), num("gap error ms p99", referee.Percentile(r.gapErrors, 0.99)),
			num("coalesced %", 100*r.coalesced), num("CPU µs/token", m.perToken(cpu)),
			num("client core %", 100*float64(cpu)/float64(took)), num("engine core %", m.engineCore()),
			num("RSS MiB", mebi(m.peak)), num("KiB/stream", float64(m.peak)/1024/n), word("verdict", s.Verdict.Class))
		t.aim("all 5,000 streams are held and served", s.Rows.Served == n, float64(s.Rows.Served))
		t.aim("at most 100 MiB beyond 45 KiB per open stream", mebi(m.peak) <= 100+45.0*n/1024, mebi(m.peak))
		if why := s.why(); why != "" {
			t.note("The verdict's reasons: %s.", why)
		}
		gaps := m.truth.gaps()
		t.note("The engine itself wrote gaps of p50 %s and p99 %s ms where 100 were meant.", figure(referee.Percentile(gaps, 0.5)), figure(referee.Percentile(gaps, 0.99)))
		return nil
	})
}
