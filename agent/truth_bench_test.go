// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/simulator"
)

// BenchmarkTruth prints how far the replay's TTFT and inter-chunk gaps are from those of the engine, at 1 to 1,000 concurrent streams of 50
// tokens a second: with the kernel's timestamps, without them, and with them under TLS. The TTFT error is the replay's TTFT from the wire
// minus (the engine's first write − its receipt of the request's last byte). The error of a gap is the replay's gap minus that between two
// writes. Both are in µs.
//
//	go test ./agent -run '^$' -bench Truth -benchtime 1x
func BenchmarkTruth(b *testing.B) {
	for _, c := range []struct {
		streams   int
		readTimes bool
		tls       bool
	}{
		{1, false, false},
		{300, false, false},
		{300, true, false},
		{300, false, true},
		{1000, false, false},
		{1000, true, false},
		{1000, false, true},
	} {
		stamps, scheme := "kernel", "http"
		if c.readTimes {
			stamps = "read"
		}
		if c.tls {
			scheme = "https"
		}
		b.Run(fmt.Sprintf("streams=%d/stamps=%s/%s", c.streams, stamps, scheme), func(b *testing.B) {
			for b.Loop() {
				ttft, gaps, coalesced := measureTruth(b, c.streams, c.readTimes, c.tls)
				for name, errs := range map[string][]float64{"ttft": ttft, "gap": gaps} {
					slices.Sort(errs)
					for q, at := range map[string]float64{"p1": 0.01, "p50": 0.5, "p99": 0.99} {
						b.ReportMetric(errs[int(at*float64(len(errs)-1))], name+"-"+q+"-µs")
					}
				}
				b.ReportMetric(100*coalesced, "coalesced-%")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

func measureTruth(b *testing.B, streams int, readTimes, overTLS bool) (ttft, gaps []float64, coalesced float64) {
	b.Helper()
	dir := b.TempDir()
	truth := filepath.Join(dir, "truth.jsonl")
	url, stop := serving{
		Latency: simulator.Latency{Prefill: 200 * time.Millisecond, Decode: 20 * time.Millisecond},
		Record:  truth, TLS: overTLS,
	}.start(b)

	// Enough requests for a distribution; they start one by one over two seconds, as traffic does.
	rows := max(20, streams)
	trace := filepath.Join(dir, "trace.jsonl")
	var lines strings.Builder
	for i := range rows {
		at := i * 2000 / streams
		if streams == 1 {
			at = i * 2500
		}
		fmt.Fprintf(&lines, `{"timestamp": %d, "input_length": 1000, "output_length": 100, "hash_ids": [%d, %d]}`+"\n", at, 2*i, 2*i+1)
	}
	if err := os.WriteFile(trace, []byte(lines.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	rep, err := Run(b.Context(), Config{
		Trace: Trace{Name: trace}, Target: Target{
			URL: url, Model: "m", ReadStamps: readTimes,
			TLS: &tls.Config{InsecureSkipVerify: true},
		},
		Prompt: Prompt{Endpoint: prompt.Completions}, Out: filepath.Join(dir, "out"), RunID: "run",
	})
	if err != nil {
		b.Fatal(err)
	}
	if share, ok := rep.Figures().Chunks.CoalescedShare(); ok {
		coalesced = share
	}
	stop()

	written := make(map[string]simulator.Record)
	readLines(b, truth, func(line []byte) {
		var rec simulator.Record
		if err := json.Unmarshal(line, &rec); err != nil {
			b.Fatal(err)
		}
		written[rec.Header.Get("X-Request-Id")] = rec
	})
	readLines(b, filepath.Join(dir, "out", "requests.jsonl"), func(line []byte) {
		var res struct {
			Result struct {
				Row         int64
				Outcome     string
				Wire, First float64
				Gaps        []float64 `json:"gaps_ms"`
			}
		}
		if err := json.Unmarshal(line, &res); err != nil {
			b.Fatal(err)
		}
		rec, found := written[fmt.Sprintf("run-%d", res.Result.Row)]
		if !found || res.Result.Outcome != "served" {
			b.Fatalf("row %d: %s, in the engine's record: %v", res.Result.Row, res.Result.Outcome, found)
		}
		var tokens []time.Duration
		for _, w := range rec.Writes {
			if w.Tokens > 0 {
				tokens = append(tokens, w.At)
			}
		}
		if len(tokens) != len(res.Result.Gaps)+1 {
			b.Fatalf("row %d: %d writes, %d gaps", res.Result.Row, len(tokens), len(res.Result.Gaps))
		}
		ttft = append(ttft, 1e3*(res.Result.First-res.Result.Wire)-micros(tokens[0]-rec.Arrived()))
		for i, gap := range res.Result.Gaps {
			gaps = append(gaps, 1e3*gap-micros(tokens[i+1]-tokens[i]))
		}
	})
	return ttft, gaps, coalesced
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func readLines(b *testing.B, path string, f func([]byte)) {
	b.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if strings.HasSuffix(line, "\n") { // the last one may be cut
			f([]byte(line))
		}
	}
}
