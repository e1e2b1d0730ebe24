// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/internal/testprogram"
	"github.com/moonloop/moonloop/mooncake"
)

// soak is one run of agent, engine and Collector.
type soak struct {
	lasts time.Duration // of the traffic
	rate  float64       // rows of the replay a second; production sends shopPerRow times as many requests
	decode, output,
	rotation string // of the engine, of the trace, of the Collector
}

// shopPerRow is how many requests of production there are for each row of the replay.
const shopPerRow = 10

// TestSoak runs everything at once for some seconds, or for as long as MOONLOOP_SOAK says (make soak). The agent replays a long trace with
// all telemetry on, against an engine that fails from time to time, into the documented Collector. That Collector also receives the spans
// and logs of an application in production, over connections that come and go, and compiles traces meanwhile. Memory, descriptors and
// goroutines must be the same at the end as after warming up, and every request must be accounted for.
func TestSoak(t *testing.T) {
	t.Parallel()
	said := os.Getenv("MOONLOOP_SOAK")
	if said == "" {
		short := soak{lasts: 8 * time.Second, rate: 10, decode: "5ms", output: "50,0.5,200", rotation: "{max_age: 2s}, grace: 500ms"}
		run := short.run(t, t.TempDir())
		run.account(t)
		for _, g := range run.growth(t) {
			// In a few seconds, memory shows nothing, and the number of requests in flight varies; but a leak for each request would show.
			if g.figure != flat[0].name && g.after > 2*g.before+50 {
				t.Errorf("%s of the %s grew from %.0f to %.0f", g.figure, g.process, g.before, g.after)
			}
		}
		return
	}
	lasts, err := time.ParseDuration(said)
	if err != nil || lasts < time.Minute {
		t.Fatalf("MOONLOOP_SOAK=%s: want a duration of at least a minute, such as 20m: %v", said, err)
	}
	long := soak{lasts: lasts, decode: "30ms", output: "200,0.5,600", rotation: "{max_age: 1m}, grace: 10s"}
	if rate := os.Getenv("MOONLOOP_SOAK_RATE"); rate != "" {
		if long.rate, err = strconv.ParseFloat(rate, 64); err != nil || long.rate <= 0 {
			t.Fatalf("MOONLOOP_SOAK_RATE=%s: want rows a second, such as 20", rate)
		}
	} else {
		long.rate = sustainable(t, long)
	}
	dir := os.Getenv("MOONLOOP_OUT")
	if dir == "" {
		dir = t.TempDir()
	}
	dir = filepath.Join(dir, time.Now().UTC().Format("20060102T150405Z"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run := long.run(t, dir)
	accounted := run.account(t)
	for _, g := range run.growth(t) {
		if g.share() > 0.05 || g.share() < -0.05 {
			t.Errorf("%s of the %s went from %.4g to %.4g, by more than 5 %%", g.figure, g.process, g.before, g.after)
		}
	}
	run.report(t, accounted, filepath.Join(dir, "report.md"))
}

// soakShare is the part of the machine's processors that a soak uses: the rest is for others.
const soakShare = 0.5

// sustainable returns the rate at which all processes together use soakShare of the machine, from their use at the end of a trial, when as
// many conversations end as begin.
func sustainable(t *testing.T, s soak) float64 {
	t.Helper()
	s.lasts, s.rate = 45*time.Second, 10
	run := s.run(t, t.TempDir())
	busy := run.own.Seconds() / s.lasts.Seconds()
	for _, w := range run.all {
		busy += w.cores(s.lasts*2/3, s.lasts)
	}
	rate := s.rate * soakShare * float64(runtime.NumCPU()) / busy
	t.Logf("trial: %.0f rows/s of a replay next to %.0f requests/s of production kept %.2f of %d processors busy, this program included; %.0f %% are %.1f rows/s",
		s.rate, shopPerRow*s.rate, busy, runtime.NumCPU(), 100*soakShare, rate)
	return rate
}

// soaked are the results of a soak.
type soaked struct {
	soak
	dir     string
	rows    int64         // of the trace
	exit    int           // status of the agent
	own     time.Duration // processor time of this program
	shop    *shop
	dropped int64 // connections
	all     []*watched
	idle    [2]sample // the Collector before the traffic, and after it
	metrics string    // of the Collector, after the traffic
}

func (s soak) run(t *testing.T, dir string) *soaked {
	t.Helper()
	r := &soaked{soak: s, dir: dir}
	trace := filepath.Join(dir, "trace.jsonl")
	r.rows = s.generate(t, dir, trace)

	engine := spawn(t, dir, "simulate", nil, testprogram.File(t, "moonloop"), "simulate", "--listen", "127.0.0.1:0", "--prefill", "50ms",
		"--decode", s.decode, "--cache-blocks", "20000", "--fault", "rate-limit=0.002", "--fault", "unavailable=0.001",
		"--fault", "cut=0.002", "--fault", "stream-error=0.001", "--fault", "silent-end=0.001")
	url := engine.says(t, regexp.MustCompile(`listening on (http://\S+)`))

	profiles := testport.Address(t)
	c := configure(t, dir, settings{config: "otelcol-config.yaml", more: fmt.Sprintf(`
exporters: {mooncake: {rotation: %s}}
extensions: {pprof: {endpoint: %q}}
service: {extensions: [file_storage, health_check, pprof]}
`, s.rotation, profiles)})
	c.environment = append(c.environment, "JAEGER_ENDPOINT="+backend(t)) // overrides the one that configure has set
	otelcol := &watched{
		name: "Collector", process: c.start(t), goroutines: "http://" + profiles + "/debug/pprof/goroutine?debug=1",
		pattern: regexp.MustCompile(`^goroutine profile: total (\d+)`),
	}
	r.idle[0] = otelcol.look(t.Context(), t, 0)

	of := testport.Address(t)
	host, port := split(t, of)
	agent := &watched{
		name: "replay", goroutines: "http://" + of + "/metrics", pattern: regexp.MustCompile(`(?m)^go_goroutine_count\{[^}]*\} (\d+)$`),
		process: spawn(t, dir, "replay", []string{
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://" + c.address, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc",
			"OTEL_METRICS_EXPORTER=prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST=" + host, "OTEL_EXPORTER_PROMETHEUS_PORT=" + port,
		}, testprogram.File(t, "moonloop"), "replay", trace, "--session-mode", "full", "--url", url, "--model", "soak", "--run-id", "soak", "--progress", "none",
			"--endpoint", "completions", "--token-events", "all", "--max-error-rate", "0.05", "--out", filepath.Join(dir, "replay")),
	}
	r.all = []*watched{agent, otelcol, {name: "engine", process: engine}}

	ctx, cancel := context.WithTimeout(t.Context(), s.lasts)
	defer cancel()
	r.shop = newShop(t, c)
	var traffic sync.WaitGroup
	traffic.Go(func() {
		if err := r.shop.run(ctx, shopPerRow*s.rate); err != nil {
			t.Error(err)
		}
	})
	traffic.Go(func() { r.dropped = churn(ctx, c.address, c.http, strings.TrimPrefix(url, "http://")) })
	file, err := os.Create(filepath.Join(dir, "samples.csv"))
	if err != nil {
		t.Fatal(err)
	}
	before := selfCPU(t)
	record(ctx, t, file, s.lasts, r.all)
	r.own = selfCPU(t) - before
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	traffic.Wait()
	select {
	case <-agent.done:
	case <-time.After(5 * time.Minute):
		t.Fatalf("the replay still runs five minutes after its last row\n%s", agent.tail())
	}
	r.exit = agent.cmd.ProcessState.ExitCode()
	c.drain(t)
	r.metrics = c.scrape(t)
	r.idle[1] = otelcol.settle(t, r.idle[0])
	if s.lasts >= soakJudged {
		write(t, dir, "heap.pb.gz", get(t, "http://"+profiles+"/debug/pprof/heap"))
		write(t, dir, "goroutines.txt", get(t, "http://"+profiles+"/debug/pprof/goroutine?debug=1"))
	}
	http.DefaultClient.CloseIdleConnections()
	otelcol.stop(t)
	return r
}

// generate writes a trace of always new conversations and returns its number of rows. They arrive evenly: with random arrivals, the number
// in flight would vary, and descriptors and goroutines with it.
func (s soak) generate(t *testing.T, dir, trace string) (rows int64) {
	t.Helper()
	const warm = time.Minute // until as many conversations end as begin
	random := filepath.Join(dir, "generated.jsonl")
	made := spawn(t, dir, "generate", nil, testprogram.File(t, "moonloop"), "generate", "--sessions", "--out", random,
		"--rows", fmt.Sprint(int(s.rate*(2*warm+s.lasts+10*time.Second).Seconds())), "--rate", fmt.Sprint(s.rate),
		"--seed", fmt.Sprint(time.Now().UnixNano()), "--think", "2,0.5,10", "--user", "200,1,4000", "--max-input", "16000",
		"--output", s.output, "--token-time", s.decode, "--turns", "12")
	<-made.done
	from, err := os.Open(random)
	if err != nil {
		t.Fatalf("%v\n%s", err, made.tail())
	}
	to, err := os.OpenFile(trace, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	// Ids are numbered in order of appearance, as in compiled traces. Of other ids, the agent would remember those that it has seen, up to a
	// bound.
	var ids mooncake.Renumber
	reader, buffered := mooncake.NewReader(from, mooncake.ReaderOptions{}), bufio.NewWriter(to)
	// The trace is longer than the replay is watched, so that the replay is still running when the watching ends.
	for last := float64((s.lasts + 2*time.Second).Milliseconds()); ; {
		row, err := reader.Read()
		if err != nil {
			t.Fatalf("the generated trace is too short, or cannot be read: %v", err)
		}
		if row.Timestamp.V < float64(warm.Milliseconds()) {
			continue
		}
		row.Timestamp.V = math.Floor(float64(rows) * 1000 / s.rate)
		if row.Timestamp.V > last {
			break
		}
		rows++
		ids.Row(row)
		if _, err := buffered.Write(append(mooncake.AppendRow(nil, row), '\n')); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(buffered.Flush(), to.Close(), from.Close(), os.Remove(random)); err != nil {
		t.Fatal(err)
	}
	return rows
}

// settle waits until the process has no more descriptors and goroutines than without traffic, apart from the few that it opens with the
// first request; account checks the final numbers.
func (w *watched) settle(t *testing.T, before sample) sample {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		s := w.look(t.Context(), t, 0)
		if s.files <= before.files+idleSlack && s.goroutines <= before.goroutines+idleSlack || time.Now().After(deadline) {
			return s
		}
	}
}

// idleSlack is for what the Collector opens with the first request and keeps: the connection to its backend, to readers of its metrics,
// and their goroutines.
const idleSlack = 20

// growth returns the change of the figures of agent and Collector; the engine is not judged.
func (r *soaked) growth(t *testing.T) []growth {
	t.Helper()
	var all []growth
	for _, w := range r.all[:2] {
		all = append(all, grown(t, w, r.warm(), r.window(), r.lasts)...)
	}
	return all
}

// warm is the time after which nothing may grow: a fifth of the whole.
func (r *soaked) warm() time.Duration { return r.lasts / 5 }

// window is the length of the time for each median, after warm-up and at the end.
func (r *soaked) window() time.Duration { return min(2*time.Minute, r.lasts/5) }

// says waits until the program's output matches, and returns the first group.
func (p *process) says(t *testing.T, pattern *regexp.Regexp) string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if match := pattern.FindSubmatch(p.tail()); match != nil {
			return string(match[1])
		}
	}
	t.Fatalf("nothing of this matches %s:\n%s", pattern, p.tail())
	return ""
}
