// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/internal/simulator"
)

// BenchmarkToken prints the processor time of one streamed token for the whole process: of the agent with kernel timestamps, span events
// for each token, metrics, and export to an OTLP receiver in a separate process; of the agent without telemetry; and of a bare net/http
// client with the agent's scanner, which sends the same requests at the same instants and records nothing. The ratios are those of one
// run.
//
//	go test ./agent -run '^$' -bench Token -benchtime 1x -count 5
func BenchmarkToken(b *testing.B) {
	const tokens = 500
	for _, streams := range []int{100, 300, 1000} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			url, stop := serving{Latency: simulator.Latency{Prefill: 200 * time.Millisecond, Decode: 20 * time.Millisecond}}.start(b)
			defer stop()
			sink, stopSink := serving{Sink: true}.start(b)
			defer stopSink()
			perToken := func(run func()) float64 {
				began := processorTime(b)
				run()
				return float64(processorTime(b)-began) / float64(time.Microsecond) / float64(streams*tokens)
			}
			for b.Loop() {
				bare := perToken(func() { readBare(b, url, streams, tokens) })
				plain := perToken(func() { readAgent(b, url, "", streams, tokens) })
				told := perToken(func() { readAgent(b, url, sink, streams, tokens) })
				b.ReportMetric(bare, "bare-µs")
				b.ReportMetric(plain, "agent-µs")
				b.ReportMetric(told, "telemetry-µs")
				b.ReportMetric(plain/bare, "agent-ratio")
				b.ReportMetric(told/bare, "telemetry-ratio")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// apart is the time between two requests: all streams are open within two seconds.
func apart(streams int) time.Duration { return 2 * time.Second / time.Duration(streams) }

// readAgent lets the agent read the streams.
func readAgent(b *testing.B, url, sink string, streams, tokens int) {
	b.Helper()
	var lines strings.Builder
	for i := range streams {
		fmt.Fprintf(&lines, `{"timestamp": %g, "input_length": 512, "output_length": %d, "hash_ids": [%d]}`+"\n",
			float64(i)*float64(apart(streams))/float64(time.Millisecond), tokens, i)
	}
	trace := filepath.Join(b.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(lines.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	rep, err := Run(b.Context(), Config{
		Trace: Trace{Name: trace}, Target: Target{URL: url, Model: "m"},
		Prompt:    Prompt{Endpoint: prompt.Completions},
		Telemetry: telemetry.Config{Endpoint: sink},
	})
	if err != nil {
		b.Fatal(err)
	}
	f := rep.Figures()
	if got := f.Chunks.Gaps + f.Chunks.Streams; got != int64(streams*tokens) {
		b.Fatalf("%d tokens of %d", got, streams*tokens)
	}
	if t := rep.Telemetry; t.Enabled != (sink != "") || t.SpansAccepted != t.SpansEnded {
		b.Fatalf("telemetry: %+v", t)
	}
}

// readBare reads the same streams with as little as Go allows.
func readBare(b *testing.B, url string, streams, tokens int) {
	b.Helper()
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: streams}
	defer t.CloseIdleConnections()
	var read atomic.Int64
	var reading sync.WaitGroup
	for range streams {
		time.Sleep(apart(streams))
		reading.Go(func() {
			body := fmt.Sprintf(`{"model": "m", "stream": true, "max_tokens": %d, "ignore_eos": true, "prompt": "%s"}`,
				tokens, strings.Repeat(" word", 512))
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url+"/v1/completions", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			resp, err := t.RoundTrip(r)
			if err != nil {
				b.Error(err)
				return
			}
			defer func() { _ = resp.Body.Close() }()
			in := bufio.NewReader(resp.Body)
			var scan send.TokenScanner
			for {
				line, err := in.ReadSlice('\n')
				if err != nil {
					return
				}
				if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && scan.Token(data) {
					read.Add(1)
				}
			}
		})
	}
	reading.Wait()
	if n := read.Load(); n != int64(streams*tokens) {
		b.Fatalf("%d tokens of %d", n, streams*tokens)
	}
}
