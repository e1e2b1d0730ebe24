// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// manyRows is the length of the long trace; made once, and kept.
const manyRows = 10_000_000

// startUp measures how soon the first request is on the wire, and how much memory a replay takes.
func startUp(ctx context.Context, b *bench) error {
	t := b.table("Start and memory", fmt.Sprintf("The first %.0f s of each trace. `first request`: from the start of the process to the first request at the engine. The long trace has\n"+
		"%d million rows. Telemetry: spans with an event per token, and metrics, to a sink. Beyond the limits 45 KiB per open stream are allowed.",
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
		few, many := t.row("public trace, "+speed), t.row("ten million rows, "+speed)
		a, _ := spreadOf(few.Cells["first request s"])
		z, _ := spreadOf(many.Cells["first request s"])
		t.aim(speed+": ten million rows start as fast, within the rounds' spread or 20 ms", z.Median <= max(a.Max, a.Median+0.02), a.Median, z.Median)
		c, _ := spreadOf(few.Cells["RSS MiB"])
		y, _ := spreadOf(many.Cells["RSS MiB"])
		t.aim(speed+": ten million rows grow no larger, within the rounds' spread or 10 %", y.Median <= max(c.Max, 1.1*c.Median), c.Median, y.Median)
	}
	return nil
}

// startOnce runs the window of a trace. The whole trace ends with the window; another is ended with it, since the agent
// reads the rows after the window, to record them as skipped, and ten million take longer than a round.
func (b *bench) startOnce(ctx context.Context, t *table, name, trace, speedup string, agent *moonloop, whole bool, round int) error {
	dir, err := b.folder("start", name, round)
	if err != nil {
		return err
	}
	e, err := b.startEngine(ctx, dir, "--prefill", "100ms", "--prefill-per-token", "0", "--decode", "10ms", "--record-writes=false")
	if err != nil {
		return err
	}
	window := 2 * b.lasts
	var p *process
	if whole {
		p, err = agent.replay(ctx, b, dir, e.url, trace, time.Minute, "--speedup", speedup, "--max-duration", window.String(), "--grace", "1s")
	} else {
		p, err = agent.replayFor(ctx, b, dir, e.url, trace, window, "--speedup", speedup)
	}
	saw, truthErr := e.finish()
	if err != nil {
		return err
	}
	if truthErr != nil {
		return truthErr
	}
	t.add(name, num("first request s", saw.first().Sub(p.began).Seconds()), num("RSS MiB", mebi(p.peak)),
		num("most open", float64(saw.mostOpen())), num("requests", float64(len(saw.records))), num("CPU s", p.total().Seconds()))
	b.say("  %-30s first request %s s, %s MiB", name, figure(saw.first().Sub(p.began).Seconds()), figure(mebi(p.peak)))
	return os.RemoveAll(dir)
}

// generate makes a trace of the public one's rate, unless it is there.
func (b *bench) generate(ctx context.Context, name string, rows int) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	_, err := run(ctx, 5*time.Minute, how{dir: b.dir, name: "generate", core: -1}, b.moonloop,
		"generate", "--rows", strconv.Itoa(rows), "--rate", "3.4", "--out", name)
	return err
}

// mostOpen is the greatest number of requests that were open at once.
func (t *truth) mostOpen() int {
	var at []step
	for i := range t.records {
		at = append(at, step{t.records[i].Headers, 1}, step{t.records[i].Ended, -1})
	}
	return highest(at)
}
