// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// TestLimitsAtTheirMaximum replays with each numeric limit at its maximum: the limit costs only what the run uses of it, the run behaves
// as without the limit, and it ends.
func TestLimitsAtTheirMaximum(t *testing.T) {
	const n = 5
	e := newEngine(t, simulator.Config{})
	for name, set := range map[string]func(*Config){
		"no limit":                 func(*Config) {},
		"concurrency":              func(c *Config) { c.Schedule.Concurrency = math.MaxInt },
		"concurrency, closed loop": func(c *Config) { c.Schedule.Concurrency, c.Schedule.FileOrder = math.MaxInt, true },
		"concurrency of warm-up": func(c *Config) {
			c.Schedule.Concurrency, c.Schedule.Warmup = math.MaxInt, 20
		},
		"look-ahead":          func(c *Config) { c.Trace.Lookahead = math.MaxInt },
		"prepare":             func(c *Config) { c.Schedule.Prepare = time.Second },
		"retries":             func(c *Config) { c.Target.Retries = math.MaxInt },
		"shards":              func(c *Config) { c.Trace.Shards = math.MaxInt },
		"block size":          func(c *Config) { c.Trace.BlockSize = mooncake.MaxBlockSize },
		"max requests":        func(c *Config) { c.Trace.MaxRows = math.MaxInt64 },
		"end":                 func(c *Config) { c.Trace.End = math.MaxInt64 },
		"max duration":        func(c *Config) { c.Schedule.MaxDuration = math.MaxInt64 },
		"grace":               func(c *Config) { c.Schedule.MaxDuration, c.Schedule.Grace = time.Hour, math.MaxInt64 },
		"connect timeout":     func(c *Config) { c.Target.ConnectTimeout = math.MaxInt64 },
		"first-token timeout": func(c *Config) { c.Target.FirstTokenTimeout = math.MaxInt64 },
		"idle timeout":        func(c *Config) { c.Target.IdleTimeout = math.MaxInt64 },
		"request timeout":     func(c *Config) { c.Target.TotalTimeout = math.MaxInt64 },
		"overhead":            func(c *Config) { c.Prompt.Overhead = math.MaxInt },
		"output length":       func(c *Config) { c.Prompt.Output = math.MaxInt64 },
		"max output length":   func(c *Config) { c.Prompt.OutputCap = math.MaxInt64 },
		"queue of spans":      func(c *Config) { c.Telemetry.QueueBytes = math.MaxInt },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Prompt: ids}
			set(&cfg)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r := e.replayContext(ctx, t, cfg, rows(n, 10)...)
			runtime.ReadMemStats(&after)
			if r.err != nil || ctx.Err() != nil {
				t.Fatalf("error %v, time %v", r.err, ctx.Err())
			}
			if cfg.Trace.Shards == 0 && r.report.Figures().Rows.Served != n {
				t.Errorf("%+v of %d rows; %v", r.report.Figures().Rows, n, r.report.Figures().Errors)
			}
			// The total of all allocations bounds the memory in use at any time.
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d MiB were allocated for %d rows", grown>>20, n)
			}
		})
	}
}

// TestWarmUpEndsWithTheRun: an interrupt does not wait for warm-up requests that have not been sent.
func TestWarmUpEndsWithTheRun(t *testing.T) {
	e := newEngine(t, simulator.Config{Latency: simulator.Latency{Prefill: 5 * time.Millisecond}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stopped time.Time
	go func() {
		for ctx.Err() == nil && len(e.Records()) < 5 {
			time.Sleep(time.Millisecond)
		}
		stopped = time.Now()
		cancel()
	}()
	r := e.replayContext(ctx, t, Config{Prompt: ids, Schedule: Schedule{Warmup: math.MaxInt}}, rows(3, 1)...)
	if r.err != nil || r.report.ExitStatus != judge.ExitInterrupted || len(r.results) != 3 || len(r.warmups) == 0 {
		t.Errorf("error %v, %d records, %d warm-ups", r.err, len(r.results), len(r.warmups))
	}
	if took := time.Since(stopped); took > 20*time.Second { // stopped was set before cancel, so before the run ended
		t.Errorf("the end took %v", took)
	}
	for _, w := range r.report.Warnings {
		if strings.Contains(w, "warm-up") {
			t.Errorf("the interrupt is reported as a failure of the engine: %s", w)
		}
	}
}
