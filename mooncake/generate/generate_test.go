// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

func rows(t *testing.T, cfg Config) []*mooncake.Row {
	t.Helper()
	var out []*mooncake.Row
	if err := Generate(cfg, func(r *mooncake.Row) error { out = append(out, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func analysis(rows []*mooncake.Row, blockSize int) *stats.Analysis {
	a := stats.NewAnalyzer(stats.AnalyzeOptions{BlockSize: blockSize})
	for i, r := range rows {
		a.Add(r, int64(i+1))
	}
	return a.Analysis()
}

// bytesOf returns the trace as it would be written.
func bytesOf(t *testing.T, cfg Config) []byte {
	t.Helper()
	var b bytes.Buffer
	w := mooncake.NewWriter(&b)
	if err := Generate(cfg, w.Write); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSameBytesOnEveryMachine pins the bytes. A change of this sum is a change of every trace that was ever
// generated, and needs a reason and a line in the changelog.
func TestSameBytesOnEveryMachine(t *testing.T) {
	cfg := Default()
	sum := sha256.Sum256(bytesOf(t, cfg))
	const want = "1d89d87700bde10fd503aa4e7bdce284d00d3a03afb50d4d4664706bc8da1b1a"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("sha256 %s, want %s", got, want)
	}
	cfg.Seed++
	if other := sha256.Sum256(bytesOf(t, cfg)); other == sum {
		t.Error("another seed gives the same trace")
	}
}

func TestTracesKeepTheRules(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"default":                       func(*Config) {},
		"no system prompt":              func(c *Config) { c.SystemPromptTokens = 0 },
		"system prompt of whole blocks": func(c *Config) { c.SystemPromptTokens = 1024 },
		"small blocks":                  func(c *Config) { c.BlockSize = 16 },
		"one turn":                      func(c *Config) { c.Turns = 1 },
		"long conversations":            func(c *Config) { c.Turns = 40; c.Rate = 20; c.Think.Median = 1 },
		"coarse clock":                  func(c *Config) { c.Grid = 3 * time.Second; c.Rate = 5 },
		"context limit":                 func(c *Config) { c.MaxInput = 2048; c.Turns = 10 },
		"full last blocks": func(c *Config) {
			c.UserTokens = LogNormal{Median: 512}
			c.SystemPromptTokens = 512
			c.OutputTokens = LogNormal{Median: 512}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Default()
			change(&cfg)
			list := rows(t, cfg)
			a := analysis(list, cfg.BlockSize)
			if len(list) != 1000 || len(a.Violations) > 0 || !a.Digests.Defined() {
				t.Fatalf("%d rows, violations %v, digests %+v", len(list), a.Violations, a.Digests)
			}
			if cfg.MaxInput > 0 && a.Input.Max > cfg.MaxInput {
				t.Errorf("an input of %d tokens, limit %d", a.Input.Max, cfg.MaxInput)
			}
			shared := int(cfg.SystemPromptTokens) / cfg.BlockSize
			for i, r := range list {
				for b := range shared {
					if r.HashIDs[b] != uint64(b) {
						t.Fatalf("row %d does not begin with the %d blocks of the system prompt: %v", i, shared, r.HashIDs)
					}
				}
			}
			if g := a.Arrivals.Grid; cfg.Grid > 0 && (!g.Coarse || g.Quantum != 3000) {
				t.Errorf("grid %+v, want 3000 ms", g)
			}
		})
	}
}

func TestTurnsContinueTheirConversation(t *testing.T) {
	cfg := Default()
	cfg.SessionIDs, cfg.Rate = true, 5
	type turn struct {
		full   []uint64
		tokens int64 // prompt and reply
	}
	last := map[string]turn{}
	detector := stats.NewSessionDetector(0, 0)
	later := 0
	for i, r := range rows(t, cfg) {
		detector.Add(r)
		if before, ok := last[r.SessionID]; ok {
			later++
			if r.InputLength.V <= before.tokens {
				t.Errorf("row %d: %d tokens, the turn before and its reply have %d", i, r.InputLength.V, before.tokens)
			}
			for b, id := range before.full {
				if r.HashIDs[b] != id {
					t.Fatalf("row %d does not begin with the turn before", i)
				}
			}
		}
		last[r.SessionID] = turn{r.HashIDs[:r.InputLength.V/512], r.InputLength.V + r.OutputLength.V}
	}
	if later < 400 {
		t.Errorf("%d later turns, want about 667 of 1,000 rows at three turns each", later)
	}
	if mode, found := detector.Mode(); mode != mooncake.SessionFull {
		t.Errorf("mode %s: %s", mode, found)
	}
}

func TestDistributions(t *testing.T) {
	cfg := Default()
	cfg.Rows, cfg.Turns, cfg.Rate = 20000, 1, 10
	cfg.SystemPromptTokens = 0
	a := analysis(rows(t, cfg), 512)
	// Poisson arrivals: the mean gap is 1 / rate, and gaps vary as much as their mean.
	if got := a.Arrivals.GapMean; math.Abs(got-100) > 3 {
		t.Errorf("mean gap %.2f ms, want 100", got)
	}
	if got := a.Arrivals.GapCV; math.Abs(got-1) > .03 {
		t.Errorf("gap CV %.3f, want 1", got)
	}
	for name, pair := range map[string][2]float64{
		"user median":   {float64(a.Input.P50), 400},
		"user p90":      {float64(a.Input.P90), 400 * math.Exp(1.4*1.28155)},
		"output median": {float64(a.Output.P50), 250},
		"output p90":    {float64(a.Output.P90), 250 * math.Exp(.9*1.28155)},
	} {
		if got, want := pair[0], pair[1]; math.Abs(got/want-1) > .05 {
			t.Errorf("%s: %.0f, want about %.0f", name, got, want)
		}
	}
}

func TestDurationEndsTheTrace(t *testing.T) {
	cfg := Default()
	cfg.Rows, cfg.Duration, cfg.Rate = 0, time.Minute, 20
	list := rows(t, cfg)
	if len(list) < 300 || list[len(list)-1].Timestamp.V >= 60000 {
		t.Errorf("%d rows, the last at %.0f ms", len(list), list[len(list)-1].Timestamp.V)
	}
}

func TestTheCallersErrorStops(t *testing.T) {
	stop, n := errors.New("stop"), 0
	err := Generate(Default(), func(*mooncake.Row) error {
		if n++; n == 3 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 3 {
		t.Errorf("%d rows, error %v", n, err)
	}
}

func TestValidateReportsAllProblems(t *testing.T) {
	cfg := Config{UserTokens: LogNormal{Median: -1}, Grid: time.Microsecond, BlockSize: -3}
	err := cfg.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"rows or duration", "rate 0", "turns 0", "user tokens: median -1", "output tokens: median 0", "grid 1µs", "block size -3"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in the error:\n%v", want, err)
		}
	}
	if err := Generate(cfg, func(*mooncake.Row) error { return nil }); err == nil {
		t.Error("generated from an invalid configuration")
	}
}

func TestExactFunctions(t *testing.T) {
	for x := 1e-300; x < 1e300; x *= 7.3 {
		if got, want := ln(x), math.Log(x); math.Abs(got-want) > 1e-14*max(1, math.Abs(want)) {
			t.Errorf("ln(%g) = %v, want %v", x, got, want)
		}
	}
	for x := -600.; x < 600; x += .37 {
		if got, want := exp(x), math.Exp(x); math.Abs(got/want-1) > 1e-13 {
			t.Errorf("exp(%g) = %v, want %v", x, got, want)
		}
	}
}

// TestMemoryFollowsOpenConversations checks the number of open conversations while a long trace is generated: by Little's law it is the
// rate of new ones (10/3 a second) times their length (two waits of about 47 s), however long the trace is.
func TestMemoryFollowsOpenConversations(t *testing.T) {
	cfg := Default()
	cfg.Rate, cfg.MaxInput = 10, 0
	s, most := newSource(cfg), 0
	var latest int64
	const rows = 200000
	for range rows {
		c := s.turn()
		latest = c.at
		s.row(c)
		most = max(most, s.open.Len())
	}
	if got := rows / (float64(latest) / 1e6); math.Abs(got-cfg.Rate) > .05*cfg.Rate {
		t.Errorf("%.2f rows per second, want %.0f", got, cfg.Rate)
	}
	if most > 600 {
		t.Errorf("%d conversations were open at one time, want about 310", most)
	}
}

func BenchmarkGenerate(b *testing.B) {
	cfg := Default()
	cfg.Rows = int64(b.N)
	b.ReportAllocs()
	if err := Generate(cfg, func(*mooncake.Row) error { return nil }); err != nil {
		b.Fatal(err)
	}
}

// TestLimitsAtTheirMaximum: with a setting at its maximum, each row costs only the memory that it needs, or the setting is refused.
func TestLimitsAtTheirMaximum(t *testing.T) {
	enough := errors.New("enough")
	for name, tc := range map[string]struct {
		set  func(*Config)
		want string // in the error; empty = rows
	}{
		"rows":          {func(c *Config) { c.Rows = math.MaxInt64 }, ""},
		"duration":      {func(c *Config) { c.Rows, c.Duration = 0, maxSeconds*time.Second }, ""},
		"rate":          {func(c *Config) { c.Rate = 1e6 }, ""},
		"turns":         {func(c *Config) { c.Turns = 1e6 }, ""},
		"longest input": {func(c *Config) { c.MaxInput = maxTokens }, ""},
		"block size":    {func(c *Config) { c.BlockSize = 1 << 20 }, ""},
		"maximum of a distribution": {func(c *Config) {
			c.UserTokens.Max, c.OutputTokens.Max, c.Think.Max = math.MaxFloat64, math.MaxFloat64, math.MaxFloat64
		}, ""},
		"system prompt": {func(c *Config) { c.SystemPromptTokens, c.MaxInput = maxTokens, 0 }, "blocks of 512 tokens"},
		"prompts": {func(c *Config) {
			c.UserTokens, c.MaxInput, c.BlockSize = LogNormal{Median: maxTokens}, 0, 1
		}, "blocks of 1 tokens"},
	} {
		cfg := Default()
		tc.set(&cfg)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n := 0
		err := Generate(cfg, func(*mooncake.Row) error {
			if n++; n == 100 {
				return enough
			}
			return nil
		})
		runtime.ReadMemStats(&after)
		if tc.want == "" && !errors.Is(err, enough) || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: error %v after %d rows", name, err, n)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
			t.Errorf("%s: %d MiB were allocated for %d rows", name, grown>>20, n)
		}
	}
}
