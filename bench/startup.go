// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// manyRows is the length of the long trace, which is made once and kept.
const manyRows = 10_000_000

// startUp measures how soon the first request is on the wire, and how much memory a replay takes.
func startUp(ctx context.Context, b *bench) error {
	t := b.table("Start and memory", fmt.Sprintf("The first %.0f s of each trace. `first request`: from the start of the process to the first request at the engine. The long trace has\n"+
		"%d million rows. Telemetry: spans with an event per token, and metrics, to a sink. 45 KiB per open stream are allowed in addition to each limit.",
		2*b.lasts.Seconds(), manyRows/1_000_000))
	public := b.trace
	if public == "" {
		public = filepath.Join(b.dir, "conversation.jsonl")
		t.note("The public trace was not there; a generated one of 12,031 rows stands in.")
		if err := b.generate(ctx, public, 12_031); err != nil {
			return err
		}
	}
	long := filepath.Join(b.dir, "long.jsonl")
	if err := b.generate(ctx, long, manyRows); err != nil {
		return err
	}
	plain, told := &moonloop{label: ""}, &moonloop{label: ", telemetry", sink: true}
	for round := range b.rounds {
		for _, c := range []struct {
			name, trace, speedup string
			agent                *moonloop
		}{
			{"public trace, 1×", public, "1", plain},
			{"public trace, 1×, telemetry", public, "1", told},
			{"public trace, 30×", public, "30", plain},
			{"public trace, 30×, telemetry", public, "30", told},
			{"ten million rows, 1×", long, "1", plain},
			{"ten million rows, 30×", long, "30", plain},
		} {
			if err := b.startOnce(ctx, t, c.name, c.trace, c.speedup, c.agent, c.trace == public, round); err != nil {
				b.fail("%s: %v", c.name, err)
				t.note("%s, round %d: %v", c.name, round+1, err)
			}
		}
	}
	for _, name := range []string{"public trace, 1×", "public trace, 30×"} {
		t.aim(name+": first request within 0.3 s", t.median(name, "first request s") <= 0.3, t.median(name, "first request s"))
		for with, limit := range map[string]float64{"": 100, ", telemetry": 200} {
			beyond := t.median(name+with, "RSS MiB") - 45.0/1024*t.median(name+with, "most open")
			t.aim(fmt.Sprintf("%s%s: RSS at most %.0f MiB beyond 45 KiB per open stream", name, with, limit), beyond <= limit, beyond)
		}
	}
	for _, speed := range []string{"1×", "30×"} {
		few, many := "public trace, "+speed, "ten million rows, "+speed
		a, _ := t.spread(few, "first request s")
		z := t.median(many, "first request s")
		t.aim(speed+": ten million rows start as fast, within the rounds' spread or 20 ms", z <= max(a.Max, a.Median+0.02), a.Median, z)
		c, _ := t.spread(few, "RSS MiB")
		y := t.median(many, "RSS MiB")
		t.aim(speed+": ten million rows grow no larger, within the rounds' spread or 10 %", y <= max(c.Max, 1.1*c.Median), c.Median, y)
	}
	return nil
}

// startOnce runs a window of a trace. If whole is set, the run ends by itself: after the window, the agent reads the rest of the trace to
// record its rows as skipped. For ten million rows that would take longer than a round, so such a run is stopped at the end of the window.
func (b *bench) startOnce(ctx context.Context, t *table, name, trace, speedup string, agent *moonloop, whole bool, round int) error {
	engine := []string{"--prefill", "100ms", "--prefill-per-token", "0", "--decode", "10ms", "--record-writes=false"}
	return b.measure(ctx, []any{"start", name, round}, engine, func(dir, url string) (*process, error) {
		window := 2 * b.lasts
		if whole {
			return agent.replay(ctx, b, dir, url, trace, time.Minute, "--speedup", speedup, "--max-duration", window.String(), "--grace", "1s")
		}
		p, err := agent.replay(ctx, b, dir, url, trace, window, "--speedup", speedup)
		if errors.Is(err, errTooLong) {
			err = nil
		}
		return p, err
	}, func(m *measured) error {
		first := m.first.Sub(m.began).Seconds()
		t.add(name, num("first request s", first), num("RSS MiB", mebi(m.peak)), num("most open", float64(m.truth.mostOpen())),
			num("requests", float64(len(m.truth.records))), num("CPU s", m.total().Seconds()))
		b.say("  %-30s first request %s s, %s MiB", name, figure(first), figure(mebi(m.peak)))
		return nil
	})
}

// generate makes a trace with the rate of the public one, unless the file exists.
func (b *bench) generate(ctx context.Context, name string, rows int) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	_, err := run(ctx, 5*time.Minute, how{dir: b.dir, name: "generate", core: -1}, b.moonloop,
		"generate", "--rows", strconv.Itoa(rows), "--rate", "3.4", "--out", name)
	return err
}
