// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// collectorScenario runs the acceptance test of the Collector's throughput and copies its tables.
func collectorScenario(ctx context.Context, b *bench) error {
	t := b.table("Collector: receiver and exporter next to the stock pipeline", "`TestAcceptanceThroughput` of test/collector: spans as fast as two senders make them, on all cores.")
	out, err := goTest(ctx, b, "collector", []string{"MOONLOOP_OUT=" + b.dir, "MOONLOOP_BIN=" + b.moonloop},
		"-count=1", "-run", "^TestAcceptanceThroughput$", "-v", "-timeout", "15m", "./test/collector")
	t.Block = tables(out)
	if err != nil {
		return err
	}
	if strings.Contains(out, "--- SKIP") || t.Block == "" {
		return errors.New("TestAcceptanceThroughput printed no table")
	}
	for _, medians := range loads(t.Block) {
		stock, fast := medians["otlp, file (stock)"], medians["fast.yaml"]
		rate := fast.rate / stock.rate
		t.aim("fast.yaml at least 0.7× the stock pipeline's spans/s", rate >= 0.7, rate)
		queue, ours := medians["otlp, disk queue, otlp"], medians["otelcol-config.yaml"]
		rate, cpu := ours.rate/queue.rate, ours.cpu/queue.cpu
		t.aim("otelcol-config.yaml, with its queue on disk, at least 1.5× the spans/s of the stock Collector with its queue", rate >= 1.5, rate)
		t.aim("at most 0.8× its CPU per span", cpu <= 0.8, cpu)
	}
	return nil
}

var (
	logLine = regexp.MustCompile(`^    \w+\.go:\d+: `)
	// ofSpans is a line of a contender: its name, and the medians of spans/s and of CPU in µs a span.
	ofSpans = regexp.MustCompile(`^\s*(\S.*?)\s{2,}(\d+) \([^)]*\)\s+([\d.]+) \(`)
)

// tables returns the tables that a test logged.
func tables(out string) string {
	var kept []string
	inside := false
	for text := range strings.Lines(out) {
		text = strings.TrimRight(text, "\n")
		switch {
		case logLine.MatchString(text):
			inside = true
			kept = append(kept, logLine.ReplaceAllString(text, ""))
		case inside && strings.HasPrefix(text, "        "):
			kept = append(kept, "  "+strings.TrimSpace(text))
		default:
			inside = false
		}
	}
	return strings.Join(kept, "\n")
}

// spansMedian has medians of a contender: spans/s, and µs of CPU a span.
type spansMedian struct{ rate, cpu float64 }

// loads returns the medians of each table by contender.
func loads(block string) (all []map[string]spansMedian) {
	for text := range strings.Lines(block) {
		m := ofSpans.FindStringSubmatch(text)
		if m == nil {
			if len(all) == 0 || len(all[len(all)-1]) > 0 {
				all = append(all, map[string]spansMedian{}) // a title begins the next table
			}
			continue
		}
		rate, err := strconv.ParseFloat(m[2], 64)
		cpu, err2 := strconv.ParseFloat(m[3], 64)
		if errors.Join(err, err2) == nil && len(all) > 0 {
			all[len(all)-1][m[1]] = spansMedian{rate, cpu}
		}
	}
	return all
}

// compiled is the line in which TestAcceptanceCompileTenMillion says how fast it was.
var compiled = regexp.MustCompile(`compiled in [\d.]+ s, ([\d.]+) s of CPU \((\d+) records/s\); peak RSS (\d+) MiB`)

// compileScenario compiles a million requests in each round, by the acceptance test.
func compileScenario(ctx context.Context, b *bench) error {
	const requests = 1_000_000
	t := b.table("Compiling journals", "A million requests in 8 journals, with the memory that `compile` has by default, on all cores:\n"+
		"`TestAcceptanceCompileTenMillion` of capture.")
	name := "compile"
	for range b.rounds {
		out, err := goTest(ctx, b, "compile", []string{"MOONLOOP_OUT=" + b.dir, "MOONLOOP_RECORDS=" + strconv.Itoa(requests)},
			"-count=1", "-run", "^TestAcceptanceCompileTenMillion$", "-v", "-timeout", "10m", "./capture")
		if err != nil {
			return err
		}
		m := compiled.FindStringSubmatch(out)
		if m == nil {
			return errors.New("TestAcceptanceCompileTenMillion does not say how fast it was")
		}
		var figures [3]float64 // s of CPU, requests/s, MiB
		for i, text := range m[1:] {
			if figures[i], err = strconv.ParseFloat(text, 64); err != nil {
				return err
			}
		}
		t.add(name, num("requests/s", figures[1]), num("CPU µs/request", 1e6*figures[0]/requests), num("RSS MiB", figures[2]))
		b.say("  %s requests/s", figure(figures[1]))
	}
	rate := t.median(name, "requests/s")
	t.aim("at least 250,000 requests/s", rate >= 250_000, rate)
	return nil
}

// hotPaths are the benchmarks of code that runs for each token, block or request.
var hotPaths = strings.Fields("./agent/prompt ./agent/send ./agent/schedule ./agent/telemetry ./blockhash ./genai/... ./mooncake/...")

// goBenchmarks runs the Go benchmarks and summarizes them with benchstat.
func goBenchmarks(ctx context.Context, b *bench) error {
	count := max(b.rounds, 6) // with 6 samples or more, benchstat gives a confidence interval
	t := b.table("Go benchmarks", fmt.Sprintf("`go test -bench . -benchmem`, %d rounds, summed up by benchstat.", count))
	raw := filepath.Join(b.dir, "benchmarks.txt")
	var all strings.Builder
	for _, pkg := range hotPaths {
		out, err := goTest(ctx, b, "go", nil, "-run", "^$", "-bench", ".", "-benchmem", "-benchtime", "20ms", "-count", strconv.Itoa(count), pkg)
		if err != nil {
			b.fail("%s: %v", pkg, err)
		}
		all.WriteString(out)
	}
	if err := os.WriteFile(raw, []byte(all.String()), 0o644); err != nil {
		return err
	}
	p, err := run(ctx, 5*time.Minute, how{dir: b.dir, name: "benchstat", core: -1, env: []string{"GOWORK=off"}, tree: true}, "go", "tool", "-modfile=tools/go.mod", "benchstat", "this run="+raw)
	if err != nil {
		return err
	}
	t.Block = content(p.log)
	return nil
}

// goTest runs go test in the repository and returns its output.
func goTest(ctx context.Context, b *bench, name string, env []string, args ...string) (string, error) {
	p, err := run(ctx, 20*time.Minute, how{dir: b.dir, name: name, core: -1, env: env, tree: true}, "go", append([]string{"test"}, args...)...)
	if p == nil {
		return "", err
	}
	return content(p.log), err
}
