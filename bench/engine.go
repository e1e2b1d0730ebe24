// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/moonloop/moonloop/internal/simulator"
)

// engine is a simulator process, a new one for each measured run, whose record is the truth about the run.
type engine struct {
	*process
	url    string
	record string
}

var listening = regexp.MustCompile(`listening on (\S+)`)

// startEngine starts a simulator on the engine's core.
func (b *bench) startEngine(ctx context.Context, dir string, args ...string) (*engine, error) {
	e := &engine{record: filepath.Join(dir, "truth.jsonl")}
	args = append([]string{
		"simulate", "--listen", "127.0.0.1:0", "--record", e.record, "--grace", "1s",
		"--record-header", "X-Vegeta-Seq",
	}, args...)
	var err error
	if e.process, err = start(ctx, how{dir: dir, name: "engine", core: b.engineCore}, b.moonloop, args...); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if match := listening.FindStringSubmatch(content(e.log)); match != nil {
			e.url = match[1]
			return e, nil
		}
		select {
		case <-e.done:
			return nil, fmt.Errorf("the engine ended at once: %s", e.tail())
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = e.stop()
	return nil, fmt.Errorf("the engine does not listen: %s", e.tail())
}

// truth is what an engine saw and did.
type truth struct {
	records []simulator.Record // by sequence number
	zero    time.Time          // the wall clock at the zero of the engine's clock
}

// finish ends the engine and reads its record.
func (e *engine) finish() (*truth, error) {
	if err := e.stop(); err != nil {
		return nil, fmt.Errorf("engine: %w: %s", err, e.tail())
	}
	return readTruth(e.record)
}

func readTruth(name string) (*truth, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	t := &truth{}
	for d := json.NewDecoder(bufio.NewReaderSize(file, 1<<20)); d.More(); {
		var r simulator.Record
		if err := d.Decode(&r); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		t.records = append(t.records, r)
	}
	if len(t.records) == 0 {
		return nil, fmt.Errorf("%s: the engine saw no request", name)
	}
	slices.SortFunc(t.records, func(a, b simulator.Record) int { return int(a.Seq) - int(b.Seq) })
	first := t.records[0]
	t.zero = first.Time.Add(-first.Headers)
	return t, nil
}

// first is when the first request had arrived.
func (t *truth) first() time.Time { return t.zero.Add(t.records[0].Headers) }

// last is when the engine had written the last byte.
func (t *truth) last() time.Time {
	var end time.Duration
	for i := range t.records {
		end = max(end, t.records[i].Ended)
	}
	return t.zero.Add(end)
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
			at = append(at, millis(w.At))
		}
	}
	return at
}

// ttft is the engine's own time to the first token, in ms: from its receipt of the request's last byte to its first
// write with a token. NaN without one.
func ttft(r *simulator.Record) float64 {
	if at := written(r); len(at) > 0 {
		return at[0] - millis(r.Arrived())
	}
	return nan
}

// ttfts and gaps are the engine's figures of all its requests, in ms; itls, the mean gap of each request.
func (t *truth) ttfts() (v []float64) {
	for i := range t.records {
		if len(t.records[i].Writes) > 0 {
			v = append(v, ttft(&t.records[i]))
		}
	}
	return v
}

func (t *truth) gaps() (v []float64) {
	for i := range t.records {
		v = append(v, differences(written(&t.records[i]))...)
	}
	return v
}

func (t *truth) itls() (v []float64) {
	for i := range t.records {
		if at := written(&t.records[i]); len(at) > 1 {
			v = append(v, (at[len(at)-1]-at[0])/float64(len(at)-1))
		}
	}
	return v
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

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
