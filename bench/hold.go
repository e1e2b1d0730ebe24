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
	clients := []client{&moonloop{label: "moonloop"}, &moonloop{label: "moonloop, all telemetry", sink: true}}
	if busy {
		beside, clients = besideBusy, append(clients, stampedBare)
	}
	b.rounds = 1
	t := b.table("5,000 streams of 10 tokens/s"+beside, fmt.Sprintf("Held for %d s, with kernel stamps. All telemetry: see above.\n", seconds)+reasonsColumn)
	w := work{streams: n, tokens: 10 * seconds, within: 5 * time.Second, gap: 100 * time.Millisecond}
	for _, c := range clients {
		stream := func(dir, url string) (*process, error) { return c.stream(ctx, b, dir, url, w) }
		err := b.beside(ctx, busy, func() error {
			return b.measure(ctx, []any{"hold", busy, c.name()}, w.engine(), stream, func(m *measured) error { return held(t, c, m, w) })
		})
		if err != nil {
			return err
		}
	}
	if busy {
		for _, c := range clients[:len(clients)-1] { // without the floor
			aimCoalesced(t, c.name(), c.name())
		}
	}
	for _, c := range clients {
		if _, ours := c.(*moonloop); ours {
			aimOwnFault(t, c.name(), c.name(), busy)
		}
	}
	return nil
}

// held enters a run into the table.
func held(t *table, c client, m *measured, w work) error {
	r, err := c.read(m.dir, m.truth)
	if err != nil {
		return err
	}
	took, cpu := m.last.Sub(m.first), m.cpu(m.first, m.last)
	cells := []cell{
		num("tokens/s", float64(m.truth.tokens())/took.Seconds()),
		num("gap error ms p1", referee.Percentile(r.gapErrors, 0.01)), num("gap error ms p99", referee.Percentile(r.gapErrors, 0.99)),
		num("coalesced %", 100*r.coalesced), num("CPU µs/token", m.perToken(cpu)),
		num("client core %", 100*float64(cpu)/float64(took)), num("engine core %", m.engineCore()),
		num("RSS MiB", mebi(m.peak)), num("KiB/stream", float64(m.peak)/1024/float64(w.streams)), word("verdict", r.verdict),
	}
	gaps := m.truth.gaps()
	t.note("%s: the engine itself wrote gaps of p50 %s and p99 %s ms where 100 were meant.", c.name(), figure(referee.Percentile(gaps, 0.5)), figure(referee.Percentile(gaps, 0.99)))
	cells = append(cells, r.reasons()...)
	agent, ok := c.(*moonloop)
	if !ok {
		t.add(c.name(), cells...)
		return nil
	}
	s, _, err := readOut(m.dir)
	if err != nil {
		return err
	}
	t.add(c.name(), append([]cell{num("served", float64(s.Rows.Served)), num("failed", float64(s.Rows.Failed))}, cells...)...)
	t.aim(agent.label+": all 5,000 streams are held and served", s.Rows.Served == w.streams, float64(s.Rows.Served))
	if !agent.sink {
		t.aim("at most 100 MiB beyond 45 KiB per open stream", mebi(m.peak) <= 100+45.0*float64(w.streams)/1024, mebi(m.peak))
	}
	if reasons := s.why(true); reasons != "" {
		t.note("%s: the verdict's reasons: %s.", agent.label, reasons)
	}
	return nil
}
