// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// stock is what a Collector does without us: it takes spans and writes them, prompts and all, into a file as JSON.
const stock = `
receivers: {otlp: {protocols: {grpc: {endpoint: %q}}}}
exporters: {file: {path: spans.jsonl}}
extensions: {health_check: }
service:
  extensions: [health_check]
  telemetry:
    metrics: {level: basic, readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]}
  pipelines: {traces: {receivers: [otlp], exporters: [file]}}
`

// contender is a way to run the distribution, and what it showed in each round.
type contender struct {
	name     string
	settings settings // stock where they name no configuration
	rounds   []figures
}

type figures struct {
	rate  float64 // spans/s
	cpu   float64 // µs of the Collector's processors per span
	peak  float64 // MiB
	load  float64 // µs of the load generator's processors per span
	spans int64
}

// TestThroughput runs one short round of each contender, so that what measures is itself tested.
func TestThroughput(t *testing.T) {
	throughput(t, 1, 200*time.Millisecond)
}

// TestAcceptanceThroughput compares the documented settings with the stock receiver and file exporter, in turns, so that
// whatever else the machine does meets all alike.
func TestAcceptanceThroughput(t *testing.T) {
	if !acceptance() {
		t.Skip("run this with make acceptance")
	}
	throughput(t, 5, 2*time.Second)
}

func throughput(t *testing.T, rounds int, lasts time.Duration) {
	t.Helper()
	for _, l := range []struct {
		name string
		load *load
	}{
		{"replay: request and three phases, 24 block ids", replay(t, 25)},
		{"production: ever new prompts of 8 kB", production(t, 25, 8192)},
	} {
		contenders := []*contender{
			{name: "otlp, file (stock)"},
			{name: "laptop.yaml", settings: settings{config: "examples/capture/laptop.yaml"}},
			{name: "otelcol-config.yaml", settings: settings{config: "otelcol-config.yaml", more: noJaeger}},
			{name: "fast.yaml", settings: settings{config: "examples/capture/fast.yaml"}},
		}
		for range rounds {
			for _, c := range contenders {
				c.rounds = append(c.rounds, c.round(t, l.load, lasts))
			}
		}
		t.Logf("%s; medians of %d rounds (least to most)\n%s", l.name, rounds, table(contenders))
		// Orders only: on a busy machine a figure may be off by much.
		ours, theirs := contenders[3].median(func(f figures) float64 { return f.cpu }), contenders[0].median(func(f figures) float64 { return f.cpu })
		if ours > 20*theirs {
			t.Errorf("%s: %.1f µs per span, and %.1f in the stock pipeline", l.name, ours, theirs)
		}
	}
}

// round runs the contender under as much load as two senders make, and lets it work off its queue.
func (c *contender) round(t *testing.T, l *load, lasts time.Duration) figures {
	t.Helper()
	dir := t.TempDir()
	var otelcol *collector
	if c.settings.config != "" {
		otelcol = configure(t, dir, c.settings)
	} else {
		otelcol = &collector{dir: dir, address: freeAddress(t), metrics: freeAddress(t)}
		host, port := split(t, otelcol.metrics)
		otelcol.configs = []string{write(t, dir, "stock.yaml", fmt.Sprintf(stock, otelcol.address, host, port))}
	}
	p := otelcol.start(t)
	to := dial(t, otelcol.address)
	var numbers atomic.Uint64
	send := func(until time.Time) {
		var senders sync.WaitGroup
		for range 2 {
			senders.Go(func() {
				for time.Now().Before(until) {
					if err := to.export(context.Background(), l.next(numbers.Add(1000), time.Now())); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		senders.Wait()
		otelcol.drain(t)
	}
	send(time.Now().Add(lasts / 10)) // connections, buffers, first files

	before, began, cpu, own := to.sent.Load(), time.Now(), p.cpu(t), selfCPU(t)
	send(began.Add(lasts))
	took := time.Since(began)
	f := figures{spans: (to.sent.Load() - before) * int64(l.spans), peak: float64(p.memory(t, "VmHWM")) / (1 << 20)}
	f.rate = float64(f.spans) / took.Seconds()
	f.cpu = float64((p.cpu(t) - cpu).Microseconds()) / float64(f.spans)
	f.load = float64((selfCPU(t) - own).Microseconds()) / float64(f.spans)
	p.stop(t)

	// A pipeline that drops is fast. The stock file's lines are not counted, but it has no queue that could lose.
	if c.settings.config != "" {
		result := compile(t, dir).result
		if got, want := result.Inferences+result.Links, to.sent.Load()*int64(l.spans); got != want {
			t.Errorf("%s: %d records of %d spans", c.name, got, want)
		}
	} else if info, err := os.Stat(filepath.Join(dir, "spans.jsonl")); err != nil || info.Size() < to.sent.Load()*int64(len(l.encoded))/2 {
		t.Errorf("the stock file is too short: %v", err)
	}
	_ = os.RemoveAll(dir)
	syscall.Sync() // what this one wrote is not to keep the disk busy for the next
	return f
}

func (c *contender) median(of func(figures) float64) float64 {
	return c.sorted(of)[len(c.rounds)/2]
}

func (c *contender) sorted(of func(figures) float64) []float64 {
	values := make([]float64, len(c.rounds))
	for i, f := range c.rounds {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values
}

func table(contenders []*contender) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %26s %26s %22s %16s\n", "", "spans/s", "CPU µs/span", "peak RSS MiB", "load µs/span")
	for _, c := range contenders {
		fmt.Fprintf(&b, "%-22s", c.name)
		for i, of := range []func(figures) float64{
			func(f figures) float64 { return f.rate }, func(f figures) float64 { return f.cpu },
			func(f figures) float64 { return f.peak }, func(f figures) float64 { return f.load },
		} {
			v, digits := c.sorted(of), []int{0, 1, 0, 1}[i]
			fmt.Fprintf(&b, " %*s", []int{26, 26, 22, 16}[i], fmt.Sprintf("%.*f (%.*f to %.*f)", digits, v[len(v)/2], digits, v[0], digits, v[len(v)-1]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// selfCPU returns the processor time of this process, which makes the load.
func selfCPU(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
