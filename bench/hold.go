// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/moonloop/moonloop/study/referee"
)

// hold keeps 5,000 streams open. It checks the verdict, and that all stay open.
func hold(ctx context.Context, b *bench) error {
	for _, busy := range []bool{false, true} {
		if err := holdBeside(ctx, b, busy); err != nil {
			return err
		}
	}
	return nil
}

func holdBeside(ctx context.Context, b *bench, busy bool) error {
	const n = 5000
	seconds, beside := int(10*b.lasts.Seconds()), "" // half a minute at the default length
	if busy {
		beside = ", a busy loop on each core"
	}
	b.rounds = 1
	t := b.table("5,000 streams of 10 tokens/s"+beside, fmt.Sprintf("Held for %d s, with kernel stamps. All telemetry: see above.", seconds))
	engine := []string{"--prefill", "200ms", "--prefill-per-token", "0", "--decode", "100ms", "--decode-per-sequence", "0"}
	for _, agent := range []*moonloop{{label: "moonloop"}, {label: "moonloop, all telemetry", sink: true}} {
		err := b.beside(ctx, busy, func() error {
			return b.measure(ctx, []any{"hold", busy, agent.label}, engine, func(dir, url string) (*process, error) {
				return agent.replayRows(ctx, b, dir, url, referee.Even(n, n/5), 10*seconds, 5*time.Minute)
			}, func(m *measured) error { return held(t, agent, m, n, busy) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// held enters a run into the table.
func held(t *table, agent *moonloop, m *measured, n int, busy bool) error {
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
		num("RSS MiB", mebi(m.peak)), num("KiB/stream", float64(m.peak)/1024/float64(n)), word("verdict", s.Verdict.Class))
	why := 0.0 // reasons
	if r.why != "" && (r.why != "hiccup_share" || !busy) {
		why = float64(1 + strings.Count(r.why, ","))
	}
	t.aim(agent.label+": all 5,000 streams are held and served", s.Rows.Served == n, float64(s.Rows.Served))
	t.aim(agent.label+": no reason but hiccups makes the verdict worse than valid", why == 0, why)
	if !agent.sink {
		t.aim("at most 100 MiB beyond 45 KiB per open stream", mebi(m.peak) <= 100+45.0*float64(n)/1024, mebi(m.peak))
	}
	if reasons := s.why(true); reasons != "" {
		t.note("%s: the verdict's reasons: %s.", agent.label, reasons)
	}
	gaps := m.truth.gaps()
	t.note("%s: the engine itself wrote gaps of p50 %s and p99 %s ms where 100 were meant.", agent.label, figure(referee.Percentile(gaps, 0.5)), figure(referee.Percentile(gaps, 0.99)))
	return nil
}
