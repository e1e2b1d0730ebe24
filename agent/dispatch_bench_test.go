// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
)

// BenchmarkDispatch prints how late one-block requests are sent at 1,000 and 5,000 a second: one at a time at equal intervals, and in
// bursts of ten at one instant, as in traces with a coarse clock. Lateness is measured when the request is released, wire when the kernel
// has its last byte. hiccup-% is the share of the time in which nothing of this process could run.
//
//	go test ./agent -run '^$' -bench Dispatch -benchtime 1x -count 5
func BenchmarkDispatch(b *testing.B) {
	for _, rate := range []int{1000, 5000} {
		for _, burst := range []int{1, 10} {
			b.Run(fmt.Sprintf("rate=%d/burst=%d", rate, burst), func(b *testing.B) {
				url, stop := serving{}.start(b)
				defer stop()
				rows := 3 * rate
				var lines strings.Builder
				for i := range rows {
					at := float64(i/burst*burst) * 1000 / float64(rate)
					fmt.Fprintf(&lines, `{"timestamp": %g, "input_length": 512, "output_length": 1, "hash_ids": [%d]}`+"\n", at, i)
				}
				trace := filepath.Join(b.TempDir(), "trace.jsonl")
				if err := os.WriteFile(trace, []byte(lines.String()), 0o600); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					began := processorTime(b)
					rep, err := Run(b.Context(), Config{
						Trace: Trace{Name: trace}, Target: Target{URL: url, Model: "m"},
						Prompt: Prompt{Endpoint: prompt.Completions}, Schedule: Schedule{Spread: load.SpreadNone},
					})
					if err != nil {
						b.Fatal(err)
					}
					used := processorTime(b) - began
					f := rep.Figures()
					if f.Rows.Served != int64(rows) {
						b.Fatalf("%d of %d rows served", f.Rows.Served, rows)
					}
					for name, id := range map[string]measure.ID{"late": measure.Lateness, "wire": measure.SendGap} {
						s, _ := f.Stat(id)
						b.ReportMetric(1e3*s.P50, name+"-p50-µs")
						b.ReportMetric(1e3*s.P99, name+"-p99-µs")
					}
					b.ReportMetric(float64(used)/float64(time.Microsecond)/float64(rows), "cpu-µs/request")
					b.ReportMetric(100*rep.Machine.HiccupTime/rep.Machine.Elapsed, "hiccup-%")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}
