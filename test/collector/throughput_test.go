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

	"github.com/moonloop/moonloop/internal/testport"
)

// stock is a Collector without our components: it receives spans and writes them, prompts included, into a file as JSON. They are
// acknowledged when they are in memory; the file has them within a second.
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

// stockQueue shows what otelcol-config.yaml would cost at least: the same receiver, limiter and queue on disk, with an exporter that sends
// everything to a Collector that drops it. The file exporter can have no queue.
const stockQueue = `
receivers: {otlp: {protocols: {grpc: {endpoint: %q, max_recv_msg_size_mib: 64}}}}
processors: {memory_limiter: {check_interval: 1s, limit_mib: 768, spike_limit_mib: 192}}
exporters:
  otlp_grpc: {endpoint: "${env:SINK}", tls: {insecure: true}, sending_queue: {storage: file_storage, block_on_overflow: true}}
extensions: {health_check: , file_storage: {directory: queue, create_directory: true}}
service:
  extensions: [health_check, file_storage]
  telemetry:
    metrics: {level: basic, readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]}
  pipelines: {traces: {receivers: [otlp], processors: [memory_limiter], exporters: [otlp_grpc]}}
`

// dropper receives spans and drops them: the cost of receiving alone.
const dropper = `
receivers: {otlp: {protocols: {grpc: {endpoint: %q, max_recv_msg_size_mib: 64}}}}
exporters: {nop: }
extensions: {health_check: }
service:
  extensions: [health_check]
  telemetry:
    metrics: {level: basic, readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]}
  pipelines: {traces: {receivers: [otlp], exporters: [nop]}}
`

// noSync lets the operating system decide when the journal is written to disk, as the file exporter does with its file.
const noSync = `exporters: {mooncake: {fsync: false}}`

// contender is a way to run the distribution, and its results in each round.
type contender struct {
	name     string
	stock    string // a configuration without our components; if it is empty, settings apply
	settings settings
	rounds   []figures
}

type figures struct {
	rate  float64 // spans/s
	cpu   float64 // µs of the Collector's processors per span
	bytes float64 // per span, in the file or the journals; 0 if nothing is stored
	peak  float64 // MiB
	load  float64 // µs of the load generator's processors per span
	spans int64
}

// TestThroughput runs one short round of each contender, to test the measurement.
func TestThroughput(t *testing.T) {
	throughput(t, 1, 200*time.Millisecond)
}

// TestAcceptanceThroughput compares the documented settings with the stock receiver and file exporter, alternately, so that other work of the
// machine affects all equally.
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
			{name: "otlp, file (stock)", stock: stock},
			{name: "otlp, dropped", stock: dropper},
			{name: "laptop.yaml, fsync: false", settings: settings{config: "examples/capture/laptop.yaml", more: noSync}},
			{name: "laptop.yaml", settings: settings{config: "examples/capture/laptop.yaml"}},
			{name: "otelcol-config.yaml", settings: settings{config: "otelcol-config.yaml", more: noJaeger}},
			{name: "otlp, disk queue, otlp", stock: stockQueue},
			{name: "fast.yaml", settings: settings{config: "examples/capture/fast.yaml"}},
		}
		for range rounds {
			for _, c := range contenders {
				c.rounds = append(c.rounds, c.round(t, l.load, lasts))
			}
		}
		t.Logf("%s; medians of %d rounds (least to most)\n%s", l.name, rounds, table(contenders))
		// Only the order of magnitude is checked: on a busy machine, a figure can be far off.
		ours, theirs := contenders[2].median(func(f figures) float64 { return f.cpu }), contenders[0].median(func(f figures) float64 { return f.cpu })
		if ours > 20*theirs {
			t.Errorf("%s: %.1f µs per span, and %.1f in the stock pipeline", l.name, ours, theirs)
		}
	}
}

// round runs the contender under as much load as two senders make, and waits until its queue is empty.
func (c *contender) round(t *testing.T, l *load, lasts time.Duration) figures {
	t.Helper()
	dir := t.TempDir()
	var otelcol *collector
	switch c.stock {
	case "":
		otelcol = configure(t, dir, c.settings)
	case stockQueue:
		to := plain(t, t.TempDir(), dropper)
		defer to.start(t).stop(t)
		otelcol = plain(t, dir, c.stock)
		otelcol.environment = []string{"SINK=" + to.address}
	default:
		otelcol = plain(t, dir, c.stock)
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
	f.cpu = float64(max(p.cpu(t)-cpu, cpuTick).Microseconds()) / float64(f.spans) // at least a tick: the kernel reports less as 0
	f.load = float64((selfCPU(t) - own).Microseconds()) / float64(f.spans)
	p.stop(t)

	// A pipeline that drops spans is fast, so what was written is checked. The stock file's lines are not counted, but it has no queue
	// that could lose spans.
	all := to.sent.Load() * int64(l.spans)
	written := size(t, filepath.Join(dir, "spans.jsonl")) + size(t, filepath.Join(dir, "traces", "*.journal"))
	f.bytes = float64(written) / float64(all)
	switch c.stock {
	case "":
		result := compile(t, dir).result
		if got := result.Inferences + result.Links; got != all {
			t.Errorf("%s: %d records of %d spans", c.name, got, all)
		}
	case stock:
		if written < to.sent.Load()*int64(len(l.encoded))/2 {
			t.Errorf("the stock file is too short: %d bytes", written)
		}
	}
	_ = os.RemoveAll(dir)
	syscall.Sync() // writing this one's data must not keep the disk busy for the next
	return f
}

// plain configures a Collector without our components.
func plain(t *testing.T, dir, config string) *collector {
	t.Helper()
	c := &collector{dir: dir, address: testport.Address(t), metrics: testport.Address(t)}
	host, port := split(t, c.metrics)
	c.configs = []string{write(t, dir, "stock.yaml", fmt.Sprintf(config, c.address, host, port))}
	return c
}

// size returns the size of the files that match a pattern, in bytes.
func size(t *testing.T, pattern string) (sum int64) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	return sum
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
	columns := []struct {
		name          string
		width, digits int
		of            func(figures) float64
	}{
		{"spans/s", 26, 0, func(f figures) float64 { return f.rate }},
		{"CPU µs/span", 22, 1, func(f figures) float64 { return f.cpu }},
		{"bytes/span", 22, 0, func(f figures) float64 { return f.bytes }},
		{"peak RSS MiB", 18, 0, func(f figures) float64 { return f.peak }},
		{"load µs/span", 18, 1, func(f figures) float64 { return f.load }},
	}
	fmt.Fprintf(&b, "%-26s", "")
	for _, column := range columns {
		fmt.Fprintf(&b, " %*s", column.width, column.name)
	}
	b.WriteByte('\n')
	for _, c := range contenders {
		fmt.Fprintf(&b, "%-26s", c.name)
		for _, column := range columns {
			v, d := c.sorted(column.of), column.digits
			fmt.Fprintf(&b, " %*s", column.width, fmt.Sprintf("%.*f (%.*f to %.*f)", d, v[len(v)/2], d, v[0], d, v[len(v)-1]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// selfCPU returns the processor time of this process, which makes the load.
func selfCPU(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
