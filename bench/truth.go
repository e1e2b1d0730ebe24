// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/internal/simulator"
)

// truth is what an engine saw and did: its own record of a run.
type truth struct {
	records []simulator.Record // by sequence number
	zero    time.Time          // the wall clock at the zero of the engine's clock
}

func readTruth(name string) (*truth, error) {
	records, err := readLines[simulator.Record](name)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("%s: the engine saw no request", name)
	}
	slices.SortFunc(records, func(a, b simulator.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	return &truth{records, records[0].Time.Add(-records[0].Headers)}, nil
}

// first is when the first request had arrived.
func (t *truth) first() time.Time { return t.zero.Add(t.records[0].Headers) }

// last is when the engine had written the last byte.
func (t *truth) last() time.Time {
	return t.zero.Add(slices.MaxFunc(t.records, func(a, b simulator.Record) int { return cmp.Compare(a.Ended, b.Ended) }).Ended)
}

// tokens is the number of tokens that went out.
func (t *truth) tokens() (n int) {
	for i := range t.records {
		n += t.records[i].OutputTokens
	}
	return n
}

// written returns the instants, in ms, at which the tokens of a reply were written.
func written(r *simulator.Record) (at []float64) {
	for _, w := range r.Writes {
		if w.Tokens > 0 {
			at = append(at, clock.Millis(w.At))
		}
	}
	return at
}

// ttft is the engine's own time to the first token, in ms: from its receipt of the request's last byte to its first
// write with a token. NaN without one.
func ttft(r *simulator.Record) float64 {
	if at := written(r); len(at) > 0 {
		return at[0] - clock.Millis(r.Arrived())
	}
	return nan
}

// figures returns the figures that the requests have.
func (t *truth) figures(of func(r *simulator.Record, at []float64) []float64) (v []float64) {
	for i := range t.records {
		if at := written(&t.records[i]); len(at) > 0 {
			v = append(v, of(&t.records[i], at)...)
		}
	}
	return v
}

// ttfts and gaps are the engine's figures of all its requests, in ms; itls, the mean gap of each request.
func (t *truth) ttfts() []float64 {
	return t.figures(func(r *simulator.Record, _ []float64) []float64 { return []float64{ttft(r)} })
}

func (t *truth) gaps() []float64 {
	return t.figures(func(_ *simulator.Record, at []float64) []float64 { return differences(at) })
}

func (t *truth) itls() []float64 {
	return t.figures(func(_ *simulator.Record, at []float64) []float64 {
		if len(at) == 1 {
			return nil
		}
		return []float64{(at[len(at)-1] - at[0]) / float64(len(at)-1)}
	})
}

// differences returns the gaps between neighbours.
func differences(at []float64) (gaps []float64) {
	for i := 1; i < len(at); i++ {
		gaps = append(gaps, at[i]-at[i-1])
	}
	return gaps
}

// byID returns the records by their X-Request-Id.
func (t *truth) byID() map[string]*simulator.Record {
	m := make(map[string]*simulator.Record, len(t.records))
	for i := range t.records {
		m[t.records[i].Header.Get("X-Request-Id")] = &t.records[i]
	}
	return m
}

// peakRate is the greatest number of tokens that were written within one second.
func (t *truth) peakRate() float64 {
	quarters := map[int64]int{}
	for i := range t.records {
		for _, w := range t.records[i].Writes {
			quarters[int64(w.At/(250*time.Millisecond))] += w.Tokens
		}
	}
	most := 0
	for at := range quarters {
		most = max(most, quarters[at]+quarters[at+1]+quarters[at+2]+quarters[at+3])
	}
	return float64(most)
}

// mostOpen is the greatest number of requests that were open at once.
func (t *truth) mostOpen() int {
	var steps []step
	for i := range t.records {
		steps = append(steps, step{t.records[i].Headers, 1}, step{t.records[i].Ended, -1})
	}
	return highest(steps)
}

// step is a change of a number at an instant.
type step struct {
	at   time.Duration
	plus int
}

// highest returns the greatest sum; at one instant ends come before beginnings.
func highest(steps []step) (most int) {
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.plus, b.plus)) })
	sum := 0
	for _, s := range steps {
		sum += s.plus
		most = max(most, sum)
	}
	return most
}
