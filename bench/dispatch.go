// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/study/referee"
)

// dispatcher is a program that sends requests for one output token, on a schedule.
type dispatcher struct {
	name string
	at   []float64 // the ideal instants in ms
	send func(dir, url string) (*process, error)
	// Request i names itself in a header, after a prefix.
	header, prefix string
	// says returns what the program itself measured; nil if it measures nothing.
	says func(dir string) ([]cell, error)
	own  bool // it is ours
}

// The schedules of a load.
const (
	asEven   = ", even"
	asBursts = ", the trace's bursts"
)

// dispatch compares when requests arrive with when they should.
func dispatch(ctx context.Context, b *bench) error {
	for _, load := range []struct {
		rate   float64
		beside string // added to the title
		busy   bool   // busy loops use all that is left of the engine's and the client's core
	}{{1000, "", false}, {5000, "", false}, {5000, besideBusy, true}} {
		rate := load.rate
		t := b.table(fmt.Sprintf("Dispatch at %.0f requests/s%s", rate, load.beside), fmt.Sprintf(
			"One-block prompts, one output token, %.0f s. Lateness, ms, measured at the engine: arrival minus the scheduled time, the zero set\n"+
				"so that the earliest request of a run is not late (for each program alike, so a delay that all its requests share does not count).\n"+
				"`own`: by the program's own time of sending a request (vegeta's zero is set as above; k6 reports none).\n"+
				"CPU is the program's, start and end included, per request. The floors are a bare net/http client on Go's timers,\n"+
				"and one thread with bare system calls. They record nothing. Where the best floor misses a target too, the target is %v times that floor.", b.lasts.Seconds(), ofFloor))
		dispatchers, err := b.dispatchers(ctx, rate)
		if err != nil {
			return err
		}
		for round := range b.rounds {
			for _, d := range dispatchers {
				if err := b.beside(ctx, load.busy, func() error { return b.dispatchOnce(ctx, t, d, rate, round) }); err != nil {
					if d.own {
						b.fail("%s: %v", d.name, err)
					}
					t.note("%s, round %d: %v", d.name, round+1, err)
				}
			}
		}
		ours := t.median("moonloop"+asEven, "p50")
		own, most, text := t.median("moonloop"+asBursts, "own p50"), 0.1, "own lateness p50 ≤ 0.1 ms on the trace's timestamps"
		if floor := t.median(bareSends.name()+asBursts, "p50"); floor > most {
			own, most, text = t.median("moonloop"+asBursts, "p50"), ofFloor*floor, text+fmt.Sprintf(", which the floor misses: at the engine at most %v times the floor's", ofFloor)
		}
		t.aim(text, own <= most, own, most)
		even := t.median("moonloop"+asEven, "own p50")
		t.aim("p50 by its own account at least 5× better than vegeta's", t.median("vegeta", "own p50") >= 5*even, even, t.median("vegeta", "own p50"))
		theirs := t.median("k6", "p50")
		t.aim("p50 at the engine at least 5× better than k6's", theirs >= 5*ours, ours, theirs)
		goals(t, "moonloop"+asEven, bare.name(), bareSends.name()+asEven)
		goals(t, "moonloop"+asBursts, bareSends.name()+asBursts)
	}
	return nil
}

// goals compares a row with vegeta's. If the best of its floors misses a goal, no client on this machine could meet it; the row must then be at
// most ofFloor times that floor.
func goals(t *table, name string, floors ...string) {
	for _, g := range []struct {
		column, text string
		most         float64 // of vegeta's
	}{
		{"p50", "p50 at the engine at most a tenth of vegeta's", 0.1},
		{"p99", "p99 at the engine at most half of vegeta's", 0.5},
		{"CPU µs/request", "CPU per request at most vegeta's", 1},
		{"RSS MiB", "memory at most twice vegeta's", 2},
	} {
		ours, theirs := t.median(name, g.column), t.median("vegeta", g.column)
		floor := math.Inf(1)
		for _, f := range floors {
			floor = min(floor, t.median(f, g.column))
		}
		text, most := reachable(name+": "+g.text, g.most*theirs, floor)
		t.aim(text+" (ours, vegeta's, the floor's)", ours <= most, ours, theirs, floor)
	}
}

// ofFloor is how many times the floor's figure a figure may be where no client could meet a goal.
const ofFloor = 1.1

// reachable returns a goal and its limit. If the floor misses the goal, the limit is ofFloor times the floor's figure.
func reachable(text string, most, floor float64) (string, float64) {
	if floor > most {
		return fmt.Sprintf("%s, which the floor misses: at most %v times the floor's", text, ofFloor), ofFloor * floor
	}
	return text, most
}

// besideBusy is added to the title of a table whose measurements ran beside busy loops.
const besideBusy = ", busy loops on the engine's and the client's core"

// beside runs a measurement. If busy is set, a busy loop runs on the engine's core and one on the client's meanwhile.
func (b *bench) beside(ctx context.Context, busy bool, measure func() error) error {
	if !busy {
		return measure()
	}
	ctx, end := context.WithCancel(ctx)
	var loops []*process
	defer func() {
		end()
		for _, p := range loops {
			<-p.done
		}
	}()
	for _, core := range []int{b.engineCore, b.clientCore} {
		p, err := start(ctx, how{dir: b.dir, name: "busy", core: core}, b.self, "-busy")
		if err != nil {
			return err
		}
		loops = append(loops, p)
	}
	return measure()
}

// runBusy is the main function of a busy loop's process.
func runBusy(ctx context.Context) error {
	for ctx.Err() == nil {
	}
	return nil
}

// dispatchers returns ours, the floors and the installed peers.
func (b *bench) dispatchers(ctx context.Context, rate float64) ([]dispatcher, error) {
	regular := referee.Even(int(rate*b.lasts.Seconds()), rate)
	bursts, err := b.bursts(len(regular), rate)
	if err != nil {
		return nil, err
	}
	floorPrefix := strings.TrimSuffix(streamID(0), "0")
	var ours []dispatcher
	floors := []dispatcher{{
		name: bare.name(), at: regular, header: "X-Request-Id", prefix: floorPrefix,
		send: func(dir, url string) (*process, error) {
			return bare.stream(ctx, b, dir, url, work{streams: len(regular), tokens: 1, within: b.lasts})
		},
	}}
	for _, of := range []struct {
		name string
		at   []float64
	}{{asEven, regular}, {asBursts, bursts}} {
		ours = append(ours, dispatcher{
			name: "moonloop" + of.name, at: of.at, header: "X-Request-Id", prefix: runID + "-", says: ownLateness, own: true,
			send: func(dir, url string) (*process, error) {
				return (&moonloop{}).replayRows(ctx, b, dir, url, of.at, 1, time.Minute)
			},
		})
		floors = append(floors, dispatcher{
			name: bareSends.name() + of.name, at: of.at, header: "X-Request-Id", prefix: floorPrefix,
			send: func(dir, url string) (*process, error) {
				return bareSends.stream(ctx, b, dir, url, work{streams: len(of.at), tokens: 1, at: of.at})
			},
		})
	}
	all := slices.Concat(ours, floors)
	for _, p := range peers {
		program := b.installed(p)
		if p.header == "" || program == "" {
			continue
		}
		d := dispatcher{name: p.label, at: regular, header: p.header, prefix: p.prefix}
		d.send = func(dir, url string) (*process, error) {
			return p.run(ctx, b, dir, url, "{rate}", strconv.Itoa(int(rate)), "{lasts}", strconv.FormatInt(b.lasts.Milliseconds(), 10))
		}
		if p.says != nil {
			d.says = func(dir string) ([]cell, error) {
				said, err := p.says(ctx, b, program, dir)
				own, _ := referee.Known(referee.Align(regular, said[:min(len(said), len(regular))]))
				return []cell{num("own p50", referee.Percentile(own, 0.5)), num("own p99", referee.Percentile(own, 0.99))}, err
			}
		}
		all = append(all, d)
	}
	return all, nil
}

func (b *bench) dispatchOnce(ctx context.Context, t *table, d dispatcher, rate float64, round int) error {
	return b.measure(ctx, []any{"dispatch", rate, d.name, round}, []string{"--fast", "--record-writes=false"}, d.send, func(m *measured) error {
		arrived := make([]float64, len(d.at))
		for i := range arrived {
			arrived[i] = nan
		}
		for _, r := range m.truth.records {
			number, named := strings.CutPrefix(r.Header.Get(d.header), d.prefix)
			if n, err := strconv.Atoi(number); named && err == nil && n >= 0 && n < len(arrived) {
				arrived[n] = clock.Millis(r.Arrived())
			}
		}
		late, missing := referee.Known(referee.Align(d.at, arrived))
		if len(late) == 0 {
			return fmt.Errorf("none of its requests arrived: %s", m.tail())
		}
		cells := []cell{
			num("p50", referee.Percentile(late, 0.5)), num("p90", referee.Percentile(late, 0.9)), num("p99", referee.Percentile(late, 0.99)), num("not sent", float64(missing)),
			num("CPU µs/request", 1e3*clock.Millis(m.total())/float64(len(late))), num("RSS MiB", mebi(m.peak)), num("engine core %", m.engineCore()),
		}
		if d.says != nil {
			own, err := d.says(m.dir)
			if err != nil {
				return err
			}
			cells = append(cells, own...)
		}
		t.add(d.name, cells...)
		b.say("  %.0f/s %-28s p50 %s p99 %s ms", rate, d.name, figure(referee.Percentile(late, 0.5)), figure(referee.Percentile(late, 0.99)))
		return nil
	})
}

// ownLateness returns what the agent itself measured.
func ownLateness(dir string) ([]cell, error) {
	s, lines, err := readOut(dir)
	if err != nil {
		return nil, err
	}
	var own []float64
	for _, l := range lines {
		own = append(own, l.Result.Lateness)
	}
	m := s.Fid.Machine
	return []cell{
		num("own p50", referee.Percentile(own, 0.5)), num("own p99", referee.Percentile(own, 0.99)),
		num("hiccups % of time", 100*m.HiccupTime/m.Elapsed), num("worst hiccup ms", m.HiccupMax), word("verdict", s.Verdict.Class),
	}, nil
}

// bursts returns the first n timestamps of the public trace, sped up to a rate: about ten requests at each instant.
// Without that trace it returns bursts of ten.
func (b *bench) bursts(n int, rate float64) ([]float64, error) {
	at := make([]float64, n)
	if b.trace == "" {
		for i := range at {
			at[i] = 1e3 * float64(i/10*10) / rate
		}
		return at, nil
	}
	rows, err := readLines[struct{ Timestamp float64 }](b.trace)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: no rows; give -trace the file of a trace, or leave it out", b.trace)
	}
	whole := rows[len(rows)-1].Timestamp + 3000 // 3 s is the grid of the public trace; a trace that is too short is repeated from its beginning
	for i := range at {
		at[i] = rows[i%len(rows)].Timestamp + whole*float64(i/len(rows))
	}
	speedup := (at[n-1] - at[0]) / (1e3 * float64(n) / rate)
	for i := range at {
		at[i] = math.Round(1e3*at[i]/speedup) / 1e3
	}
	return at, nil
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }
