// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/moonloop/moonloop/internal/simulator"
)

// dispatcher is a program that sends one-token requests on a schedule.
type dispatcher struct {
	name string
	// send runs the program and returns the ideal instants in ms; request i names itself in the way that id reads.
	send func(ctx context.Context, dir, url string, rate float64) (*process, []float64, error)
	id   func(*simulator.Record) (int, bool)
	own  bool // it is ours: its records say more
	// says returns the instants, in ms, at which the program says that it let each request go; nil: it does not.
	says func(ctx context.Context, dir string) ([]float64, error)
}

// dispatch compares when requests arrive with when they should.
func dispatch(ctx context.Context, b *bench) error {
	for _, rate := range []float64{1000, 5000} {
		t := b.table(fmt.Sprintf("Dispatch at %.0f requests/s", rate), fmt.Sprintf(
			"One-block prompts, one output token, %.0f s. Lateness, ms, as the engine sees it: arrival less the ideal instant, the zero laid\nwhere the earliest request of a run is not late (for each program alike, so a delay that all its requests share counts for nobody).\n"+
				"`own`: by what the program itself says of the instant at which it let a request go (vegeta's zero is laid as above; k6 does not say).\nCPU is the program's, start included, per request.", b.lasts.Seconds()))
		for round := range b.rounds {
			for _, d := range b.dispatchers() {
				if err := b.dispatchOnce(ctx, t, d, rate, round); err != nil {
					if d.own {
						b.fail("%s: %v", d.name, err)
					}
					t.note("%s, round %d: %v", d.name, round+1, err)
				}
			}
		}
		ours := t.median("moonloop, even", "p50")
		own := t.median("moonloop, the trace's bursts", "own p50")
		t.aim("own lateness p50 ≤ 0.1 ms on the trace's timestamps", own <= 0.1, own)
		even := t.median("moonloop, even", "own p50")
		t.aim("p50 by its own word at least 5× better than vegeta's", t.median("vegeta", "own p50") >= 5*even, even, t.median("vegeta", "own p50"))
		for _, peer := range []string{"vegeta", "k6"} {
			theirs := t.median(peer, "p50")
			t.aim("p50 at the engine at least 5× better than "+peer+"'s", theirs >= 5*ours, ours, theirs)
		}
	}
	return nil
}

func (b *bench) dispatchOnce(ctx context.Context, t *table, d dispatcher, rate float64, round int) error {
	dir, err := b.folder("dispatch", rate, d.name, round)
	if err != nil {
		return err
	}
	e, err := b.startEngine(ctx, dir, "--fast", "--record-writes=false")
	if err != nil {
		return err
	}
	p, ideal, err := d.send(ctx, dir, e.url, rate)
	saw, truthErr := e.finish()
	if err != nil {
		return err
	}
	if truthErr != nil {
		return truthErr
	}
	arrived := make([]float64, len(ideal))
	for i := range arrived {
		arrived[i] = nan
	}
	for i := range saw.records {
		if n, ok := d.id(&saw.records[i]); ok && n >= 0 && n < len(arrived) {
			arrived[n] = millis(saw.records[i].Arrived())
		}
	}
	late, missing := known(align(ideal, arrived))
	if len(late) == 0 {
		return fmt.Errorf("none of its requests arrived: %s", p.tail())
	}
	cells := []cell{
		num("p50", percentile(late, 0.5)), num("p90", percentile(late, 0.9)), num("p99", percentile(late, 0.99)), num("not sent", float64(missing)),
		num("CPU µs/request", 1e3*millis(p.total())/float64(len(late))), num("RSS MiB", mebi(p.peak)),
		num("engine core %", 100*float64(e.cpu(saw.first(), saw.last()))/float64(saw.last().Sub(saw.first()))),
	}
	if d.own {
		more, err := ownLateness(dir)
		if err != nil {
			return err
		}
		cells = append(cells, more...)
	}
	if d.says != nil {
		said, err := d.says(ctx, dir)
		if err != nil {
			return err
		}
		own, _ := known(align(ideal, said[:min(len(said), len(ideal))]))
		cells = append(cells, num("own p50", percentile(own, 0.5)), num("own p99", percentile(own, 0.99)))
	}
	t.add(d.name, cells...)
	b.say("  %.0f/s %-28s p50 %s p99 %s ms", rate, d.name, figure(percentile(late, 0.5)), figure(percentile(late, 0.99)))
	return os.RemoveAll(dir)
}

// ownLateness is what the agent says of itself.
func ownLateness(dir string) ([]cell, error) {
	lines, err := readLines(dir)
	if err != nil {
		return nil, err
	}
	s, err := readSummary(dir)
	if err != nil {
		return nil, err
	}
	var own []float64
	for _, l := range lines {
		own = append(own, l.Result.Lateness)
	}
	m := s.Fid.Machine
	return []cell{
		num("own p50", percentile(own, 0.5)), num("own p99", percentile(own, 0.99)),
		num("hiccups % of time", 100*m.HiccupTime/m.Elapsed), num("worst hiccup ms", m.HiccupMax), word("verdict", s.Verdict.Class),
	}, nil
}

// dispatchers are the contenders that are there.
func (b *bench) dispatchers() []dispatcher {
	agent := &moonloop{}
	replay := func(ctx context.Context, dir, url string, at []float64) (*process, []float64, error) {
		trace := filepath.Join(dir, "trace.jsonl")
		if err := writeTrace(trace, at, 1); err != nil {
			return nil, nil, err
		}
		p, err := agent.replay(ctx, b, dir, url, trace, time.Minute)
		return p, at, err
	}
	byRow := func(r *simulator.Record) (int, bool) { return number(r, "X-Request-Id", runID+"-") }
	all := []dispatcher{
		{name: "moonloop, even", own: true, id: byRow, send: func(ctx context.Context, dir, url string, rate float64) (*process, []float64, error) {
			return replay(ctx, dir, url, even(b.count(rate), rate))
		}},
		{name: "moonloop, the trace's bursts", own: true, id: byRow, send: func(ctx context.Context, dir, url string, rate float64) (*process, []float64, error) {
			at, err := b.bursts(b.count(rate), rate)
			if err != nil {
				return nil, nil, err
			}
			return replay(ctx, dir, url, at)
		}},
	}
	if vegeta := b.peer("vegeta"); vegeta != "" {
		all = append(all, dispatcher{
			name: "vegeta", id: func(r *simulator.Record) (int, bool) { return number(r, "X-Vegeta-Seq", "") },
			send: func(ctx context.Context, dir, url string, rate float64) (*process, []float64, error) {
				p, err := b.runVegeta(ctx, vegeta, dir, url, rate)
				return p, even(b.count(rate), rate), err
			},
			says: func(ctx context.Context, dir string) ([]float64, error) { return b.vegetaSays(ctx, vegeta, dir) },
		})
	}
	if k6 := b.peer("k6"); k6 != "" {
		all = append(all, dispatcher{
			name: "k6", id: func(r *simulator.Record) (int, bool) { return number(r, "X-Request-Id", "k6-") },
			send: func(ctx context.Context, dir, url string, rate float64) (*process, []float64, error) {
				p, err := b.runK6(ctx, k6, dir, url, rate)
				return p, even(b.count(rate), rate), err
			},
		})
	}
	return all
}

// count is the number of requests of a dispatch run.
func (b *bench) count(rate float64) int { return int(rate * b.lasts.Seconds()) }

// number reads the number of a request from a header.
func number(r *simulator.Record, header, prefix string) (int, bool) {
	value := r.Header.Get(header)
	if len(value) < len(prefix) || value[:len(prefix)] != prefix {
		return 0, false
	}
	n, err := strconv.Atoi(value[len(prefix):])
	return n, err == nil
}

// bursts returns the first n timestamps of the public trace, sped up to a rate: some ten requests at one instant. Without
// that trace, bursts of ten.
func (b *bench) bursts(n int, rate float64) ([]float64, error) {
	at := make([]float64, 0, n)
	if b.trace == "" {
		for i := range n {
			at = append(at, 1e3*float64(i/10*10)/rate)
		}
		return at, nil
	}
	file, err := os.Open(b.trace)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	var around float64 // a trace that is too short goes on from its beginning
	for len(at) < n {
		var last float64
		if _, err := file.Seek(0, 0); err != nil {
			return nil, err
		}
		for d := json.NewDecoder(file); d.More() && len(at) < n; {
			var row struct{ Timestamp float64 }
			if err := d.Decode(&row); err != nil {
				return nil, fmt.Errorf("%s: %w", b.trace, err)
			}
			last = around + row.Timestamp
			at = append(at, last)
		}
		around = last + 3000 // the grid of the public trace
	}
	speedup := (at[n-1] - at[0]) / (1e3 * float64(n) / rate)
	for i := range at {
		at[i] = math.Round(1e3*at[i]/speedup) / 1e3
	}
	return at, nil
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }
