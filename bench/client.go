// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/moonloop/moonloop/study/referee"
)

// work is a load of streams: their number, the tokens of each, and the time within which they start.
type work struct {
	streams, tokens int
	within          time.Duration
	at              []float64     // instants in ms at which bareSends sends, instead of the time within
	gap             time.Duration // between two tokens of a stream; 0: usualGap
}

// usualGap makes 50 tokens/s.
const usualGap = 20 * time.Millisecond

// engine returns the simulated engine's flags for the work: the first token after 200 ms, then one token per gap.
func (w work) engine() []string {
	return []string{"--prefill", "200ms", "--prefill-per-token", "0", "--decode", cmp.Or(w.gap, usualGap).String(), "--decode-per-sequence", "0"}
}

// report has the figures that a client measured in its run, in ms.
type report struct {
	ttft []float64 // time to the first token, of each request
	itl  []float64 // mean gap, of each request
	gaps []float64 // every gap; nil if the client does not store them

	// ttftErrors and gapErrors are the client's figures minus the engine's record, request by request and gap by gap, if the client sends
	// request ids. Otherwise nil.
	ttftErrors, gapErrors []float64
	// Only for the floor with stamps: the errors of the gaps between its own timestamps after the read, and the time from the kernel's
	// timestamp until the floor had the token.
	readErrors, waited []float64

	// The time from when a request was sent until the kernel had all of it, and the longest pause of the garbage collector. Only of moonloop,
	// and of the floor with stamps.
	wireLags     []float64
	longestPause float64

	coalesced float64 // share; NaN if the client does not report it
	verdict   string
	why       string // the metrics that made it worse than valid
}

// client is a program that can run a load of streams. read reads its report afterwards.
type client interface {
	name() string
	// stream runs the load to its end.
	stream(ctx context.Context, b *bench, dir, url string, w work) (*process, error)
	read(dir string, t *truth) (*report, error)
}

// one is a client's report of one request.
type one struct {
	ttft, itl float64
	gaps      []float64 // nil: not stored
}

// add adds a request, and its errors if the engine's record of it is known.
func (r *report) add(o one, rec *referee.Request) {
	r.ttft = append(r.ttft, o.ttft)
	r.itl = append(r.itl, o.itl)
	r.gaps = append(r.gaps, o.gaps...)
	if rec == nil {
		return
	}
	r.ttftErrors = append(r.ttftErrors, o.ttft-rec.TTFT())
	if is := rec.Gaps(); len(is) == len(o.gaps) { // otherwise gaps cannot be matched
		for i := range is {
			r.gapErrors = append(r.gapErrors, o.gaps[i]-is[i])
		}
	}
}

// worstError returns the largest of the relative errors of TTFT and ITL, p50 and p99.
func (r *report) worstError(t *truth) float64 {
	worst := 0.0
	for _, pair := range [][2][]float64{{r.ttft, t.ttfts()}, {r.itl, t.itls()}} {
		for _, q := range []float64{0.5, 0.99} {
			if d := off(referee.Percentile(pair[0], q), referee.Percentile(pair[1], q)); !(d <= worst) { // also NaN
				worst = d
			}
		}
	}
	return worst
}

// readLines reads a file with a JSON value on each line.
func readLines[T any](name string) ([]T, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	lines, err := decodeLines[T](file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return lines, nil
}

func decodeLines[T any](from io.Reader) (lines []T, err error) {
	for d := json.NewDecoder(bufio.NewReaderSize(from, 1<<20)); d.More(); {
		var line T
		if err := d.Decode(&line); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}
