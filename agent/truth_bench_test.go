// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/simulator"
)

// engineRecord is the environment variable that makes the test binary an engine which writes its records to the file
// that it names: a process of its own, so that it does not share a scheduler with the agent.
const engineRecord = "MOONLOOP_TEST_ENGINE_RECORD"

// serveEngine is the whole of the engine process.
func serveEngine(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	e, err := simulator.New(simulator.Config{
		Latency: simulator.Latency{Prefill: 200 * time.Millisecond, Decode: 20 * time.Millisecond},
		Record:  simulator.Recording{To: f},
	})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", ln.Addr())
	return e.NewServer().Serve(ln)
}

// BenchmarkTruth prints how far the agent's TTFT and inter-chunk gaps are from what the engine really did, at 1, 100
// and 1,000 concurrent streams of 50 tokens a second. TTFT error is ours, from the wire, minus (the engine's first
// write − its receipt of the request's last byte); a gap's error is ours minus that between two writes. Both in µs.
//
//	go test ./agent -run '^$' -bench Truth -benchtime 1x
func BenchmarkTruth(b *testing.B) {
	for _, streams := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			for b.Loop() {
				ttft, gaps, coalesced := measureTruth(b, streams)
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

func measureTruth(b *testing.B, streams int) (ttft, gaps []float64, coalesced float64) {
	b.Helper()
	dir := b.TempDir()
	truth := filepath.Join(dir, "truth.jsonl")
	engine := exec.CommandContext(b.Context(), os.Args[0])
	engine.Env = append(os.Environ(), engineRecord+"="+truth)
	out, err := engine.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := engine.Start(); err != nil {
		b.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}

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
		Trace: Trace{Name: trace}, Target: Target{URL: strings.TrimSpace(url), Model: "m"},
		Prompt: Prompt{Endpoint: prompt.Completions}, Out: filepath.Join(dir, "out"), RunID: "run",
	})
	if err != nil {
		b.Fatal(err)
	}
	if share, ok := rep.Figures().Chunks.CoalescedShare(); ok {
		coalesced = share
	}
	time.Sleep(100 * time.Millisecond) // the engine writes a record when its request has ended
	_ = engine.Process.Kill()
	_ = engine.Wait()

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
		ttft = append(ttft, 1e3*(res.Result.First-res.Result.Wire)-micros(tokens[0]-rec.BodyRead))
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
		if strings.HasSuffix(line, "\n") { // the last one may be cut: the engine is killed
			f([]byte(line))
		}
	}
}
