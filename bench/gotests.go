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
	t := b.table("Collector: receiver and exporter beside the stock pipeline", "`TestAcceptanceThroughput` of test/collector: spans as fast as two senders make them, on all cores.")
	out, err := goTest(ctx, b, "collector", []string{"MOONLOOP_OUT=" + b.dir, "MOONLOOP_BIN=" + b.moonloop},
		"-count=1", "-run", "^TestAcceptanceThroughput$", "-v", "-timeout", "15m", "./test/collector")
	t.Block = tables(out)
	if err != nil {
		return err
	}
	if strings.Contains(out, "--- SKIP") || t.Block == "" {
		return errors.New("TestAcceptanceThroughput printed no table")
	}
	for _, ratio := range ratios(t.Block) {
		t.aim("fast.yaml at least 0.7× the stock pipeline's spans/s", ratio >= 0.7, ratio)
	}
	return nil
}

var (
	logLine   = regexp.MustCompile(`^    \w+\.go:\d+: `)
	spansRate = regexp.MustCompile(`(?m)^\s*(otlp, file \(stock\)|fast\.yaml)\s+(\d+)`)
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

// ratios returns the rate of fast.yaml divided by that of the stock Collector, for each table.
func ratios(block string) (r []float64) {
	stock := nan
	for _, m := range spansRate.FindAllStringSubmatch(block, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			continue
		}
		if m[1] != "fast.yaml" {
			stock = v
			continue
		}
		r = append(r, v/stock)
	}
	return r
}

// hotPaths are the benchmarks of code that runs for each token, block or request.
var hotPaths = strings.Fields("./agent/prompt ./agent/send ./agent/schedule ./agent/telemetry ./blockhash ./genai/... ./mooncake/...")

// goBenchmarks runs the Go benchmarks and summarizes them with benchstat.
func goBenchmarks(ctx context.Context, b *bench) error {
	count := max(b.rounds, 6) // from 6 samples on, benchstat gives a confidence interval
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
