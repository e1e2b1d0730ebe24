// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/moonloop/moonloop/study/referee"
)

// truth is an engine's own record of a run.
type truth struct {
	records []referee.Request // by sequence number
	zero    time.Time         // the wall clock at the zero of the engine's clock
}

func readTruth(name string) (*truth, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	records, err := referee.ReadRecord(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &truth{records, records[0].Time.Add(-records[0].Headers)}, nil
}

// first is the time at which the first request had arrived.
func (t *truth) first() time.Time { return t.zero.Add(t.records[0].Headers) }

// last is the time at which the engine had written the last byte.
func (t *truth) last() time.Time {
	return t.zero.Add(slices.MaxFunc(t.records, func(a, b referee.Request) int { return cmp.Compare(a.Ended, b.Ended) }).Ended)
}

// tokens is the number of tokens written.
func (t *truth) tokens() (n int) {
	for i := range t.records {
		n += int(t.records[i].Output)
	}
	return n
}

// allOpen returns the period during which all requests stream tokens: from the latest first token to the earliest last token. Requests with
// fewer tokens than others, such as an agent's calibration, do not count.
func (t *truth) allOpen() (from, to time.Time) {
	most := slices.MaxFunc(t.records, func(a, b referee.Request) int { return cmp.Compare(a.Output, b.Output) }).Output
	for i := range t.records {
		w := t.records[i].Written()
		if t.records[i].Output < most || len(w) == 0 {
			continue
		}
		first, last := t.wall(w[0]), t.wall(w[len(w)-1])
		if first.After(from) {
			from = first
		}
		if to.IsZero() || last.Before(to) {
			to = last
		}
	}
	return from, to
}

// wall converts a time in ms of the engine's clock to the wall clock.
func (t *truth) wall(ms float64) time.Time {
	return t.zero.Add(time.Duration(ms * float64(time.Millisecond)))
}

// written is the number of tokens written between two times.
func (t *truth) written(from, to time.Time) (n int) {
	since, until := from.Sub(t.zero), to.Sub(t.zero)
	for i := range t.records {
		for _, w := range t.records[i].Writes {
			if since <= w.At && w.At < until {
				n += int(w.Tokens)
			}
		}
	}
	return n
}

// figures returns the figures of the requests that have tokens, without unknown values.
func (t *truth) figures(of func(r *referee.Request) []float64) (v []float64) {
	for i := range t.records {
		v = append(v, of(&t.records[i])...)
	}
	v, _ = referee.Known(v)
	return v
}

// ttfts and gaps are the engine's figures of all its requests, in ms; itls are the mean gaps of the requests.
func (t *truth) ttfts() []float64 {
	return t.figures(func(r *referee.Request) []float64 { return []float64{r.TTFT()} })
}

func (t *truth) gaps() []float64 { return t.figures((*referee.Request).Gaps) }

func (t *truth) itls() []float64 {
	return t.figures(func(r *referee.Request) []float64 { return []float64{r.ITL()} })
}

// byID returns the records keyed by their X-Request-Id.
func (t *truth) byID() map[string]*referee.Request {
	m := make(map[string]*referee.Request, len(t.records))
	for i := range t.records {
		m[t.records[i].Header.Get("X-Request-Id")] = &t.records[i]
	}
	return m
}

// peakRate is the greatest number of tokens written within one second.
func (t *truth) peakRate() float64 {
	quarters := map[int64]int{}
	for i := range t.records {
		for _, w := range t.records[i].Writes {
			quarters[int64(w.At/(250*time.Millisecond))] += int(w.Tokens)
		}
	}
	most := 0
	for at := range quarters {
		most = max(most, quarters[at]+quarters[at+1]+quarters[at+2]+quarters[at+3])
	}
	return float64(most)
}

// mostOpen is the greatest number of requests open at the same time.
func (t *truth) mostOpen() int {
	var steps []step
	for i := range t.records {
		steps = append(steps, step{t.records[i].Headers, 1}, step{t.records[i].Ended, -1})
	}
	return highest(steps)
}

// step is a change of a number at a time.
type step struct {
	at   time.Duration
	plus int
}

// highest returns the greatest sum that the steps reach; of steps at the same time, ends come before beginnings.
func highest(steps []step) (most int) {
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.plus, b.plus)) })
	sum := 0
	for _, s := range steps {
		sum += s.plus
		most = max(most, sum)
	}
	return most
}
