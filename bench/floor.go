// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/observe"
)

// floor is a minimal client: it reads and scans each line with the agent's own scanner, and stores nothing. The difference in cost between
// an agent and the floor is the cost of measuring.
type floor struct {
	label  string
	reader string // one of readers; "": http
	stamps bool   // records when each token arrived
}

// bare is the floor for the agent, which uses net/http.
var bare = floor{label: "floor: bare net/http and the scanner"}

// stampedBare is the same with a record of when each token arrived.
var stampedBare = floor{label: bare.label + ", with stamps", stamps: true}

func (f floor) name() string { return f.label }

func (f floor) stream(ctx context.Context, b *bench, dir, url string, w work) (*process, error) {
	args := []string{
		"-floor", url, "-reader", cmp.Or(f.reader, "http"), "-streams", strconv.Itoa(w.streams), "-tokens", strconv.Itoa(w.tokens),
		"-within", w.within.String(),
	}
	if w.at != nil {
		name := filepath.Join(dir, "at.json")
		text, err := json.Marshal(w.at)
		if err = errors.Join(err, os.WriteFile(name, text, 0o600)); err != nil {
			return nil, err
		}
		args = append(args, "-at", name)
	}
	if f.stamps {
		args = append(args, "-stamps", filepath.Join(dir, "stamps.json"))
	}
	return run(ctx, 2*time.Minute, how{dir: dir, name: "floor", core: b.clientCore}, b.self, args...)
}

// read checks that all tokens arrived, and computes figures from their timestamps; without stamps there are none.
func (f floor) read(dir string, t *truth) (*report, error) {
	var n int
	if _, err := fmt.Sscanf(content(filepath.Join(dir, "floor.log")), "%d tokens", &n); err != nil {
		return nil, fmt.Errorf("floor.log does not say how many tokens the floor read: %w", err)
	}
	if n != t.tokens() {
		return nil, fmt.Errorf("the floor read %d tokens, the engine wrote %d", n, t.tokens())
	}
	r := &report{coalesced: nan, verdict: "–"}
	if !f.stamps {
		return r, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "stamps.json"))
	if err != nil {
		return nil, err
	}
	var noted notes
	if err := json.Unmarshal(text, &noted); err != nil {
		return nil, fmt.Errorf("stamps.json: %w", err)
	}
	streams := noted.Streams
	r.longestPause = noted.LongestPause
	by, together, gaps := t.byID(), 0, 0
	for i, s := range streams {
		is := by[streamID(i)].Gaps()
		for g := range min(len(is), len(s.Kernel)-1) {
			kernel := float64(s.Kernel[g+1]-s.Kernel[g]) / 1e6
			r.gapErrors = append(r.gapErrors, kernel-is[g])
			r.readErrors = append(r.readErrors, float64(s.Read[g+1]-s.Read[g])/1e6-is[g])
			if gaps++; kernel == 0 {
				together++
			}
		}
		r.wireLags = append(r.wireLags, s.WireLag)
		for g := range s.Read {
			r.waited = append(r.waited, float64(s.Read[g]-s.Kernel[g])/1e6)
		}
	}
	r.coalesced = float64(together) / float64(gaps)
	return r, nil
}

// streamID is the X-Request-Id of a stream of the floor.
func streamID(i int) string { return "floor-" + strconv.Itoa(i) }

// promptBody is a request for a reply of this many tokens, with a prompt of one block of token ids.
func promptBody(tokens int) string {
	return `{"model":"m","stream":true,"ignore_eos":true,"max_tokens":` + strconv.Itoa(tokens) +
		`,"prompt":[1` + strings.Repeat(",12345", 511) + `]}`
}

// notes are what a floor with stamps writes.
type notes struct {
	Streams      []tally
	LongestPause float64 // of the garbage collector, in ms
}

// tally has the records of a stream.
type tally struct {
	Tokens int
	// WireLag is the time in ms from the request's turn until it was written; only net/http has it.
	WireLag float64
	// For each token, if recorded: the kernel's timestamp, and when the reader had the token, in ns of the wall clock.
	Kernel, Read []int64
	keep         bool
}

// add counts tokens of one read.
func (t *tally) add(tokens int, kernel int64) {
	if tokens == 0 {
		return
	}
	t.Tokens += tokens
	if !t.keep {
		return
	}
	now := time.Now().UnixNano()
	for range tokens {
		t.Kernel, t.Read = append(t.Kernel, kernel), append(t.Read, now)
	}
}

// readers are the ways to read streams. A reader opens each stream of the work at its start time, and reads all to their ends.
var readers = map[string]func(ctx context.Context, url string, w work, streams []tally) error{
	"http": readHTTP, "conn": readConns, "epoll": readEpoll, "batches": readBatches, "uring": readRing, "sends": readSends,
}

// runFloor is the main function of the floor's process. If a file for stamps is named, it records when each token arrived.
func runFloor(ctx context.Context, out io.Writer, url string, w work, reader, stamps string) error {
	read, ok := readers[reader]
	if !ok {
		return fmt.Errorf("no reader %q", reader)
	}
	streams := make([]tally, w.streams)
	for i := range streams {
		if streams[i].keep = stamps != ""; streams[i].keep {
			streams[i].Kernel, streams[i].Read = make([]int64, 0, w.tokens), make([]int64, 0, w.tokens)
		}
	}
	watch := observe.Start(clock.New(), nil)
	err := read(ctx, url, w, streams)
	machine := watch.Stop()
	if err != nil {
		return err
	}
	total := 0
	for i := range streams {
		total += streams[i].Tokens
	}
	fmt.Fprintf(out, "%d tokens\n", total)
	if stamps == "" {
		return nil
	}
	text, err := json.Marshal(notes{streams, clock.Millis(machine.GCPauseMax)})
	if err != nil {
		return err
	}
	return os.WriteFile(stamps, text, 0o600)
}

// inTurn calls a function for each stream at the stream's start time.
func inTurn(ctx context.Context, w work, open func(i int)) {
	began := time.Now()
	for i := range w.streams {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(began.Add(w.within * time.Duration(i) / time.Duration(w.streams)))):
		}
		open(i)
	}
}
