// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command bench measures the agent and its peers, end to end, and writes the results to bench/RESULTS.md.
//
// Each measured run has a simulated engine of its own: a new process that records what it received and wrote, and when. This record is the
// reference. The agent, a minimal client (the floor) and the peers take turns, so that other load on the machine affects all alike. Peers
// that bench/peers.sh did not install are skipped with a message.
//
//	make bench-peers                        # everything
//	go run ./bench -scenarios dispatch -rounds 1 -lasts 1s
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bench is one run of the harness.
type bench struct {
	moonloop   string        // the command under test
	self       string        // this program, for the floor and the sink
	dir        string        // for raw results and files left by runs
	peers      string        // where peers.sh installed the peers
	trace      string        // the public trace; empty = none
	rounds     int           // of the scenario that runs
	slow       int           // rounds of slow scenarios, and of peers that are slow to start
	sizes      []int         // numbers of streams of the scenarios streams and readers; nil: each scenario's default
	lasts      time.Duration // duration of a dispatch run; other durations are in proportion
	engineCore int
	clientCore int
	results    results
	scenario   string            // the scenario that runs
	failed     bool              // one of our own runs failed
	copies     map[string]string // of the programs that are measured, by their paths
}

// scenario is a part of the bench.
type scenario struct {
	name  string
	run   func(context.Context, *bench) error
	peers bool // whether it runs peers
	slow  bool // it takes minutes a round
	about string
}

var scenarios = []scenario{
	{"dispatch", dispatch, true, false, "lateness of requests for one output token, compared with vegeta and k6, on a quiet machine and next to busy loops"},
	{"streams", streams, false, false, "what 300 and 1,000 streams of 50 tokens/s do to TTFT, gaps, CPU and memory, on a quiet machine and next to busy loops"},
	{"readers", compareReaders, false, true, "the floor below net/http: bare connections and one loop for all streams, 100 to 5,000 streams"},
	{"peers", pythonStreams, true, false, "the same as streams, at rates that Python peers can hold"},
	{"start", startUp, false, true, "time to the first request, and memory, on the public trace and on ten million rows"},
	{"hold", hold, false, true, "5,000 streams of 10 tokens/s, on a quiet machine and next to busy loops"},
	{"honesty", honesty, true, true, "the rate at which the verdict is no longer valid, or a peer's figures are wrong"},
	{"outages", outages, true, true, "the latency that tools report for a server that stalls, collects garbage or slows down, next to the truth"},
	{"collector", collectorScenario, false, true, "the Collector next to the stock receiver and file exporter"},
	{"compile", compileScenario, false, true, "compiling a million requests: rate, CPU and memory"},
	{"go", goBenchmarks, false, true, "Go benchmarks of the hot paths"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "bench: error: %v\n", err)
		os.Exit(1)
	}
}

// command reads the command line and does what it asks for.
func command(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	b := new(bench)
	chosen := scenarios
	fs.StringVar(&b.moonloop, "moonloop", "bin/moonloop", "the command to measure")
	fs.StringVar(&b.dir, "dir", "build/bench", "folder for raw results and artefacts")
	fs.StringVar(&b.peers, "peers", "build/peers", "folder that peers.sh installed the peers into")
	fs.StringVar(&b.trace, "trace", "", "the public conversation trace; without it a generated trace stands in")
	fs.IntVar(&b.rounds, "rounds", 5, "rounds of each comparison")
	fs.IntVar(&b.slow, "slow", 0, "rounds of scenarios and peers that take minutes a round (default: -rounds)")
	fs.DurationVar(&b.lasts, "lasts", 3*time.Second, "length of a dispatch run; the others are in proportion")
	fs.Func("sizes", "numbers of streams of the scenarios streams (default 300,1000) and readers (default 100,1000,5000)", func(list string) error {
		b.sizes = nil
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return errors.New("want numbers above 0, with commas between them")
			}
			b.sizes = append(b.sizes, n)
		}
		return nil
	})
	fs.Func("scenarios", "what to run (default all of "+scenarioNames()+")", func(list string) error {
		chosen = nil
		for _, name := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
			i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
			if i < 0 {
				return errors.New("want some of " + scenarioNames())
			}
			chosen = append(chosen, scenarios[i])
		}
		return nil
	})
	page := fs.String("out", "bench/RESULTS.md", "page to write")
	shown := fs.String("command", "go run ./bench "+strings.Join(args, " "), "how the reader starts this, for the page")
	floorURL := fs.String("floor", "", "be the floor client against this engine")
	reader := fs.String("reader", "http", "how the floor reads: http, conn, epoll, batches, uring or sends")
	stamps := fs.String("stamps", "", "file for the instants at which the floor's tokens came; empty = they are not noted")
	at := fs.String("at", "", "file with the instants of the floor's requests in ms, for the reader sends")
	beSink := fs.Bool("sink", false, "be the OTLP sink")
	beBusy := fs.Bool("busy", false, "be a busy loop")
	var w work
	fs.IntVar(&w.streams, "streams", 1, "streams of the floor")
	fs.IntVar(&w.tokens, "tokens", 1, "tokens of each of its streams")
	fs.DurationVar(&w.within, "within", 0, "time within which its streams start")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case *floorURL != "":
		if *at != "" {
			if err := json.Unmarshal([]byte(content(*at)), &w.at); err != nil {
				return fmt.Errorf("%s: %w", *at, err)
			}
		}
		return runFloor(ctx, os.Stdout, *floorURL, w, *reader, *stamps)
	case *beSink:
		return runSink(ctx, os.Stdout)
	case *beBusy:
		return runBusy(ctx)
	case b.rounds < 1 || b.slow < 0 || b.lasts <= 0:
		return errors.New("-rounds and -lasts must be above 0, -slow not below")
	}
	b.slow = cmp.Or(b.slow, b.rounds)
	return b.all(ctx, chosen, *page, *shown)
}

// streamsOf returns the numbers of streams of a scenario: from the command line, or the scenario's default.
func (b *bench) streamsOf(own ...int) []int {
	if b.sizes != nil {
		return b.sizes
	}
	return own
}

func scenarioNames() string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
	}
	return strings.Join(names, ", ")
}

// all runs the scenarios, and writes the page after each, so that an interrupted run leaves its results.
func (b *bench) all(ctx context.Context, chosen []scenario, page, shown string) (err error) {
	for _, path := range []*string{&b.moonloop, &b.dir, &b.peers} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if _, err := os.Stat(b.moonloop); err != nil {
		return fmt.Errorf("no command to measure: %w; run: make moonloop", err)
	}
	if b.trace != "" {
		if _, err := os.Stat(b.trace); err != nil {
			b.trace = "" // so that the page says that a generated trace was used
		}
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	b.moonloop, b.self = b.copied(b.moonloop), b.copied(b.self)
	b.pin()
	b.results.Command = shown
	b.results.describe()
	raw := filepath.Join(b.dir, "results.json")
	b.results.keep(page)
	b.findPrograms(ctx, chosen)
	rounds := b.rounds
	for _, s := range chosen {
		if b.rounds = rounds; s.slow {
			b.rounds = min(rounds, b.slow)
		}
		began := time.Now()
		b.say("%s: %s", s.name, s.about)
		b.scenario = s.name
		if err := s.run(ctx, b); err != nil {
			b.fail("%s: %v", s.name, err)
		}
		if err := b.results.write(page, raw); err != nil {
			return err
		}
		b.say("%s: %.0f s", s.name, time.Since(began).Seconds())
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if b.failed {
		return errors.New("one of our own runs failed; the messages are above")
	}
	return nil
}

// pin chooses a core for the engine and one for the client: the last two. With fewer than two cores, nothing is pinned.
func (b *bench) pin() {
	b.engineCore, b.clientCore = -1, -1
	if n := runtime.NumCPU(); n > 1 {
		b.engineCore, b.clientCore = n-2, n-1
	}
}

// say shows progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// fail reports a failed run of moonloop itself; the other runs continue.
func (b *bench) fail(format string, args ...any) {
	b.failed = true
	b.say("error: "+format, args...)
}

// table starts a table of the results.
func (b *bench) table(title, about string) *table {
	t := &table{Scenario: b.scenario, Measured: fmt.Sprintf("%s, rounds: %d%s", stamp(), b.rounds, circumstances()), Title: title, About: about}
	b.results.Tables = append(b.results.Tables, t)
	return t
}

// folder returns an empty folder for one run. It is kept until the next run of the same name.
func (b *bench) folder(parts ...any) (string, error) {
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune("/:,; '", r) {
			return '-'
		}
		return r
	}, strings.Trim(fmt.Sprintln(parts...), "\n"))
	dir := filepath.Join(b.dir, "runs", name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}
