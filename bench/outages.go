// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moonloop/moonloop/study/referee"
)

// outage is a way in which a server does not answer for a time. A signal stops the engine's process: the kernel still accepts connections
// and timestamps what arrives, so the truth is known.
type outage struct {
	name, about string
	// pause stops the engine, from a third of the run on. third is a third of the run.
	pause func(ctx context.Context, engine *process, third time.Duration)
}

var outageKinds = []outage{
	{"well", "The engine always answers, so each tool's lateness is its own.", func(context.Context, *process, time.Duration) {}},
	{"stalled", "The engine is stopped during the middle third of the run, as at a failover.", func(ctx context.Context, engine *process, third time.Duration) {
		engine.halt(ctx, third)
	}},
	{"collecting", "The engine is stopped six times, each time for a ninetieth of the run, as for a garbage collector that stops the world.", func(ctx context.Context, engine *process, third time.Duration) {
		for range 6 {
			engine.halt(ctx, third/30)
			sleep(ctx, third/3-third/30)
		}
	}},
	{"browned out", "The engine runs for 1 of each 50 ms during the middle third of the run, as under a quota of processor time.", func(ctx context.Context, engine *process, third time.Duration) {
		for end := time.Now().Add(third); time.Now().Before(end) && ctx.Err() == nil; {
			engine.halt(ctx, 49*time.Millisecond)
			sleep(ctx, time.Millisecond)
		}
	}},
}

// halt stops a process for a time.
func (p *process) halt(ctx context.Context, d time.Duration) {
	_ = p.signal(syscall.SIGSTOP) // it may have ended
	sleep(ctx, d)
	_ = p.signal(syscall.SIGCONT)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// outageRate is the number of requests per second: what the slowest of the tools can send.
const outageRate = 100

// outages lets each tool send evenly spaced requests to an engine that does not answer for a time, and compares the latency that the tool
// reports with the engine's record. A tool that reports less has coordinated omission: while it waits, it does not send what it should, or
// it counts only from the time at which it sent.
func outages(ctx context.Context, b *bench) error {
	for _, o := range outageKinds {
		t := b.table("Latency at a server that is "+o.name, fmt.Sprintf("%s %d requests/s, evenly, for %.0f s; 20 tokens each, the first after 20 ms, then one each 10 ms.\n"+
			"`truth`: from when a request was due until the engine wrote its last token, ms. `says`: the latency that the tool reports. `says/truth`: below 1,\n"+
			"the tool hides how long its users would have waited. `not sent`: requests that were due and never came: their truth is taken from their neighbours. `late`: arrival at the engine less the instant at which it was\n"+
			"due; `own late`: the same by the tool's own account. `tells`: what it reports about its own run.", o.about, outageRate, 3*b.lasts.Seconds()))
		gone := map[string]bool{}
		for round := range b.rounds {
			for _, c := range tools {
				if ctx.Err() != nil || gone[c.label] || !c.installed(b) {
					continue
				}
				if err := b.outageOnce(ctx, t, c, o, round); err != nil {
					t.note("%s: %v", c.label, err)
					if gone[c.label] = c.program != ""; !gone[c.label] {
						b.fail("%s: %v", c.label, err)
						continue
					}
					b.say("  %s is left out: %v", c.label, err)
				}
			}
		}
		p90, p99 := t.median(tools[0].label, "p90 says/truth"), t.median(tools[0].label, "p99 says/truth")
		t.aim("moonloop says at least 0.95 of the truth, at p90 and p99", min(p90, p99) >= 0.95, p90, p99)
	}
	return nil
}

func (b *bench) outageOnce(ctx context.Context, t *table, c tool, o outage, round int) error {
	count := int(3 * b.lasts.Seconds() * outageRate)
	engine := []string{"--prefill", "20ms", "--prefill-per-token", "0", "--decode", "10ms", "--decode-per-sequence", "0"}
	dir, err := b.folder("outages", o.name, c.label, round)
	if err != nil {
		return err
	}
	record := filepath.Join(dir, "truth.jsonl")
	e, err := b.serve(ctx, dir, "engine", b.moonloop, append([]string{
		"simulate", "--listen", "127.0.0.1:0", "--record", record, "--grace", "10s", "--record-header", "X-Vegeta-Seq",
	}, engine...)...)
	if err != nil {
		return err
	}
	paused := make(chan struct{})
	during, stop := context.WithCancel(ctx)
	go func() {
		defer close(paused)
		if began(during, record, int(c.warm.Seconds()*outageRate)+20) {
			sleep(during, b.lasts)
			o.pause(during, e.process, b.lasts)
		}
	}()
	p, err := c.run(ctx, b, dir, e.url, count)
	stop()
	<-paused
	if ended := e.stop(); err == nil && ended != nil {
		err = fmt.Errorf("engine: %w: %s", ended, e.tail())
	}
	if err != nil {
		return err
	}
	saw, err := readTruth(record)
	if err != nil {
		return fmt.Errorf("%w; %s", err, p.tail())
	}
	if err := c.compare(t, dir, saw, count); err != nil {
		return err
	}
	b.say("  %-12s %-28s says %s of the truth's p90, %s of its p99 (%.0f s)", o.name, c.label,
		figure(t.median(c.label, "p90 says/truth")), figure(t.median(c.label, "p99 says/truth")), time.Since(p.began).Seconds())
	return os.RemoveAll(dir)
}

// began waits until the record has the lines of this many requests. It returns false if ctx ended first.
func began(ctx context.Context, record string, lines int) bool {
	for ctx.Err() == nil {
		if text, err := os.ReadFile(record); err == nil && bytes.Count(text, []byte("\n")) >= lines {
			return true
		}
		sleep(ctx, 5*time.Millisecond)
	}
	return false
}

// compare enters a run into the table.
func (c tool) compare(t *table, dir string, saw *truth, count int) error {
	asked, err := referee.ParseAsked(fmt.Sprintf("rate=%d,count=%d", outageRate, count))
	if err != nil {
		return err
	}
	var records []referee.Request
	for _, r := range saw.records { // a tool's own probes are not load
		if r.Output == outageTokens {
			records = append(records, r)
		}
	}
	j, err := referee.Judge(asked.Rate, records, int(c.warm.Seconds()*outageRate))
	if err != nil {
		return err
	}
	says, own, tells := c.says, nan, "–"
	var said referee.Percentiles
	if says != nil {
		said, err = says(content(filepath.Join(dir, c.export)))
	} else {
		said, own, err = c.claims(dir, j, records)
	}
	if err != nil {
		return err
	}
	if c.tells != nil {
		tells = c.tells(dir)
	}
	truth := j.FromSchedule
	t.add(c.label, num("p90 truth", truth.P90), num("p90 says", said.P90), num("p90 says/truth", said.P90/truth.P90),
		num("p99 truth", truth.P99), num("p99 says", said.P99), num("p99 says/truth", said.P99/truth.P99), num("not sent", float64(j.Missing)),
		num("late p99", j.Lateness.P99), num("own late p99", own), word("tells", tells))
	return nil
}

// claims reads what a tool reports about each request.
func (c tool) claims(dir string, j *referee.Judgement, records []referee.Request) (said referee.Percentiles, own float64, err error) {
	file, err := os.Open(filepath.Join(dir, c.export))
	if err != nil {
		return said, nan, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	export, err := referee.ReadExport(file)
	if err != nil {
		return said, nan, fmt.Errorf("%s: %w", c.export, err)
	}
	own = nan
	if j.Against(export, records, int(c.warm.Seconds()*outageRate)); j.Client.Lateness != nil {
		own = j.Client.Lateness.P99
	}
	for _, e := range j.Client.Errors {
		if e.Name == "latency" {
			return *e.Claimed, own, nil
		}
	}
	return said, own, errors.New(c.export + " has no latency")
}

// wrk2Calibrates is the time at the start for which wrk2 discards its measurements.
const wrk2Calibrates = 11 * time.Second

// outageTokens is the length of each reply.
const outageTokens = 20

// tool is a program that sends requests at a rate, and reports how long they took.
type tool struct {
	label   string
	program string // of peers.sh; "": ours
	files   map[string]string
	env     []string
	command string // for a shell, in the run's folder
	export  string // the file with its report of the requests
	// says reads the latency from a file that does not list single requests; nil: the file does, and the referee reads it.
	says  func(text string) (referee.Percentiles, error)
	tells func(dir string) string // what it reports about its own run; nil: nothing
	warm  time.Duration           // how long it sends requests before those that it counts
}

func (c tool) installed(b *bench) bool {
	return c.program == "" || b.installed(peer{program: c.program}) != ""
}

// run runs a tool to its end.
func (c tool) run(ctx context.Context, b *bench, dir, url string, count int) (*process, error) {
	lasts := time.Duration(count) * time.Second / outageRate
	fill := strings.NewReplacer("{url}", url, "{dir}", dir, "{peers}", b.peers, "{moonloop}", b.moonloop, "{model}", tokenizer, "{rate}", strconv.Itoa(outageRate),
		"{count}", strconv.Itoa(count), "{lasts}", strconv.Itoa(int(lasts.Seconds())), "{warm}", strconv.Itoa(int((c.warm + lasts).Seconds())), "{body}", promptBody(outageTokens))
	for name, text := range c.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(fill.Replace(text)), 0o600); err != nil {
			return nil, err
		}
	}
	if err := writeEven(filepath.Join(dir, "trace.jsonl"), count); err != nil {
		return nil, err
	}
	var env []string
	for _, e := range c.env {
		env = append(env, fill.Replace(e))
	}
	return run(ctx, 4*time.Minute, how{dir: dir, name: "tool", core: b.clientCore, env: env}, "sh", "-c", "cd '"+dir+"' && "+fill.Replace(c.command))
}
