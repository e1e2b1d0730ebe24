// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonloop/moonloop/internal/testport"
)

// settings are a way to run the Collector, with its promises.
type settings struct {
	name   string
	config string // from the repository's root
	more   string // what is set in addition
	keeps  bool   // whether every acknowledged span is in the compiled trace
}

// smallSegments makes some segments end, and their traces be compiled, during a short test.
const smallSegments = `exporters: {mooncake: {rotation: {max_size_mib: 1}, grace: 1s}}`

var killSettings = []settings{
	{"documented", "otelcol-config.yaml", smallSegments, true},
	{"no queue", "examples/capture/laptop.yaml", smallSegments, true},
	{"fast", "examples/capture/fast.yaml", smallSegments, false},
}

// TestKill kills the Collector twice in each way to run it, under load.
func TestKill(t *testing.T) {
	t.Parallel()
	for _, s := range killSettings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			killed(t, s, 2, 200*time.Millisecond)
		})
	}
}

// TestAcceptanceKill kills each of these Collectors twenty times.
func TestAcceptanceKill(t *testing.T) {
	if !acceptance() {
		t.Skip("run this with make acceptance")
	}
	for _, s := range killSettings {
		t.Run(s.name, func(t *testing.T) { killed(t, s, 20, time.Second) })
	}
}

// killed runs a Collector under load, ends it this many times with kill -9 at a random moment within the longest time and starts it again,
// then compiles all journals. What was acknowledged, before or after a kill, must be one row each; only settings
// that do not promise to keep it may lose some.
func killed(t *testing.T, s settings, kills int, longest time.Duration) {
	t.Helper()
	dir := t.TempDir()
	c := configure(t, dir, s)
	clients := startClients(t, c.address, production(t, 20, 2048), 4)
	for kill := range kills {
		p := c.launch(t)
		if kill%4 != 3 { // otherwise most probably while it starts, and reads what the previous one left
			p.ready(t)
		}
		time.Sleep(rand.N(longest))
		p.kill()
	}
	p := c.start(t)
	clients.wait(t, 100*kills, time.Minute) // on a slow disk the kills came early
	acknowledged, resent := clients.stop()
	c.drain(t)
	p.stop(t)

	got := compile(t, dir)
	lost, twice := 0, 0
	for n := range acknowledged {
		switch got.rows[spanOf(n)] {
		case 0:
			lost++
		case 1:
		default:
			twice++
		}
	}
	rows, text := 0, int64(0)
	for _, n := range got.rows {
		rows += n
	}
	for _, trace := range got.result.Traces {
		text += trace.Meta.Identity["text"]
	}
	t.Logf("%s: %d kills, %d spans acknowledged, %d requests sent again; %d journals with %d records, %d of them torn; %d rows; lost %d (%.1f for each kill), twice %d",
		s.name, kills, len(acknowledged), resent, got.files, got.result.Inferences, got.result.Torn.Records, rows,
		lost, float64(lost)/float64(kills), twice)
	if resent == 0 {
		t.Error("no request was in flight at any kill: nothing was tested")
	}
	if s.keeps && lost > 0 {
		t.Errorf("%d of %d acknowledged spans are in no journal", lost, len(acknowledged))
	}
	if twice > 0 || got.result.DamageCount > 0 {
		t.Errorf("%d spans are two rows, %d places of journals are damaged", twice, got.result.DamageCount)
	}
	if text != int64(rows) {
		t.Errorf("%d of %d rows have block ids of their prompts", text, rows)
	}
	// Every span is sent until it is acknowledged, so there is nothing else.
	if rows+lost != len(acknowledged) {
		t.Errorf("%d rows and %d lost, of %d acknowledged", rows, lost, len(acknowledged))
	}
}

// noJaeger turns the documented configuration into one that only captures.
const noJaeger = `
exporters: {nop: }
service: {pipelines: {traces/jaeger: {processors: [memory_limiter], exporters: [nop]}}}
`

// collector is a configured Collector that can be started several times.
type collector struct {
	dir                    string // for its data
	address, http, metrics string // OTLP over gRPC and HTTP, and its own metrics
	configs, environment   []string
}

// configure gives a Collector separate ports, and puts its data into dir.
func configure(t *testing.T, dir string, s settings) *collector {
	t.Helper()
	c := &collector{
		dir: dir, address: testport.Address(t), http: testport.Address(t), metrics: testport.Address(t),
		environment: []string{
			testKey, "MOONLOOP_DIR=" + dir, "JAEGER_ENDPOINT=" + testport.Address(t), "PROMETHEUS_ENDPOINT=http://" + testport.Address(t),
			"BACKEND=http://" + testport.Address(t), // where nobody listens
		},
	}
	config, err := filepath.Abs(filepath.Join(root, s.config))
	if err != nil {
		t.Fatal(err)
	}
	metricsHost, metricsPort := split(t, c.metrics)
	c.configs = []string{config, write(t, dir, "ports.yaml", fmt.Sprintf(`
receivers: {%s: {protocols: {grpc: {endpoint: %q}, http: {endpoint: %q}}}}
service:
  telemetry:
    metrics: {level: basic, readers: [{pull: {exporter: {prometheus: {host: %s, port: %s, without_type_suffix: false, without_units: false}}}}]}
`, receiverOf(t, config), c.address, c.http, metricsHost, metricsPort))}
	if s.more != "" {
		c.configs = append(c.configs, write(t, dir, "more.yaml", s.more))
	}
	return c
}

// receiverOf returns the name of the only receiver of a configuration.
func receiverOf(t *testing.T, config string) string {
	t.Helper()
	content, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	_, receivers, _ := strings.Cut(string(content), "\nreceivers:\n")
	match := regexp.MustCompile(`(?m)^  (\w+):$`).FindStringSubmatch(receivers)
	if match == nil {
		t.Fatalf("%s has no receiver", config)
	}
	return match[1]
}

func split(t *testing.T, address string) (host, port string) {
	t.Helper()
	match := regexp.MustCompile(`^(.*):(\d+)$`).FindStringSubmatch(address)
	if match == nil {
		t.Fatalf("%q is not an address", address)
	}
	return match[1], match[2]
}

func (c *collector) launch(t *testing.T) *process {
	t.Helper()
	return launch(t, c.dir, c.environment, c.configs...)
}

// start starts the Collector and waits until it accepts spans.
func (c *collector) start(t *testing.T) *process {
	t.Helper()
	p := c.launch(t)
	p.ready(t)
	return p
}

var queued = regexp.MustCompile(`(?m)^otelcol_exporter_queue_size\{[^}]*\} (\S+)$`)

// drain waits until all exporters' queues are empty.
func (c *collector) drain(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left := 0.0
		for _, match := range queued.FindAllStringSubmatch(c.scrape(t), -1) {
			n, err := strconv.ParseFloat(match[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			left += n
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute %v requests are in the queue", left)
		}
	}
}

// scrape returns the Collector's own metrics.
func (c *collector) scrape(t *testing.T) string {
	t.Helper()
	return get(t, "http://"+c.metrics+"/metrics")
}

// clients send new requests, each until it is acknowledged, like a patient SDK.
type clients struct {
	running sync.WaitGroup
	ended   atomic.Bool // no new requests
	failed  atomic.Bool // those in flight are given up, too
	resent  atomic.Int64

	mu           sync.Mutex
	acknowledged map[uint64]struct{} // numbers of model requests
}

func startClients(t *testing.T, address string, l *load, count int) *clients {
	t.Helper()
	c := &clients{acknowledged: map[uint64]struct{}{}}
	var numbers atomic.Uint64
	to := dial(t, address)
	for range count {
		c.running.Go(func() {
			for !c.ended.Load() {
				last := numbers.Add(uint64(l.spans))
				first := last - uint64(l.spans) + 1
				body := l.next(first, time.Now())
				if err := c.deliver(func(ctx context.Context) error { return to.export(ctx, body) }); err != nil {
					t.Error(err)
					return
				}
				c.mu.Lock()
				for n := first; n <= last; n++ {
					c.acknowledged[n] = struct{}{}
				}
				c.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		c.failed.Store(true)
		_, _ = c.stop()
	})
	return c
}

// deliver sends a request until it is acknowledged. A refusal that tells an SDK not to retry is an error.
func (c *clients) deliver(export func(context.Context) error) error {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := export(ctx)
		cancel()
		if err == nil {
			return nil
		}
		switch status.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted:
		default:
			return fmt.Errorf("an export was refused for good: %w", err)
		}
		if c.failed.Load() || time.Now().After(deadline) {
			return fmt.Errorf("an export does not get through: %w", err)
		}
		c.resent.Add(1)
		time.Sleep(5 * time.Millisecond)
	}
}

// wait waits until this many model requests are acknowledged, and at most this long.
func (c *clients) wait(t *testing.T, requests int, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); c.count() < requests; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d spans were acknowledged in %v", c.count(), requests, limit)
		}
	}
}

// stop ends the load, once everything in flight is acknowledged.
func (c *clients) stop() (acknowledged map[uint64]struct{}, resent int64) {
	c.ended.Store(true)
	c.running.Wait()
	return c.acknowledged, c.resent.Load()
}

func get(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", url, response.Status, err)
	}
	return string(body)
}
