// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/study"
)

// TestRounds: each side runs once a round, in a varying order, each time with a different seed; existing runs are kept.
func TestRounds(t *testing.T) {
	var ran []string
	seeds := map[string]bool{}
	r := study.Rounds{A: "a {out} {seed}", B: "b {out} {seed}", Between: "clean {round}", Calibrate: true, N: 8, Dir: t.TempDir()}
	r.Exec = func(_ context.Context, command string, _ io.Writer) error {
		words := strings.Fields(command)
		if ran = append(ran, words[0]); words[0] == "clean" {
			return nil
		}
		seeds[words[2]] = true
		put(t, filepath.Join(words[1], "summary.json"), summary{ttft: 100, throughput: 1}.json())
		return errors.New("exit status 3") // as a replay whose measurement is invalid
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(ran) != 48 || len(seeds) != 24 {
		t.Fatalf("%d commands, %d seeds: %v", len(ran), len(seeds), ran)
	}
	first := map[string]bool{}
	for i := 0; i < len(ran); i += 6 {
		if ran[i] != "clean" {
			t.Fatalf("%v", ran)
		}
		first[ran[i+1]] = true
	}
	if !first["a"] || !first["b"] {
		t.Errorf("the same side begins each round: %v", ran)
	}
	ran = nil
	if r.N = 9; r.Run(t.Context()) != nil || len(ran) != 6 {
		t.Errorf("one more round: %v", ran)
	}
}

func TestRoundsRefuse(t *testing.T) {
	nothing := func(context.Context, string, io.Writer) error { return nil }
	for want, r := range map[string]study.Rounds{
		"does not contain {out}":    {A: "x {out}", B: "x", N: 1, Exec: nothing},
		"wrote no run to":           {A: "x {out}", B: "x {out}", N: 1, Exec: nothing},
		"0 rounds: must be from":    {A: "x {out}", B: "x {out}", Exec: nothing},
		"1001 rounds: must be from": {A: "x {out}", B: "x {out}", N: 1001, Exec: nothing},
		"command between runs failed: no": {
			A: "x {out}", B: "x {out}", Between: "clean", N: 1,
			Exec: func(context.Context, string, io.Writer) error { return errors.New("no") },
		},
	} {
		r.Dir = t.TempDir()
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestRoundsOfASmallTrace: if a trace has too few requests for a verdict, no run can count, so the rounds end after the first.
func TestRoundsOfASmallTrace(t *testing.T) {
	ran := 0
	r := study.Rounds{A: "a {out}", B: "b {out}", N: 6, Dir: t.TempDir()}
	r.Exec = func(_ context.Context, command string, _ io.Writer) error {
		ran++
		put(t, filepath.Join(strings.Fields(command)[1], "summary.json"), summary{ttft: 100, throughput: 1, verdict: "undecided"}.json())
		return nil
	}
	if err := r.Run(t.Context()); !errors.Is(err, study.ErrTooSmall) || ran != 2 {
		t.Errorf("%v, %d runs", err, ran)
	}
}

// rows writes requests.jsonl of a run: every other row has 2,000 uncached tokens, and every third is turn 1.
func rows(t *testing.T, dir string, ttft func(i int) float64) {
	t.Helper()
	var b strings.Builder
	for i := range 120 {
		fmt.Fprintf(&b, `{"input_length": 2000, "output_length": 1, "result": {"outcome": "served", "row": %d, "turn": %d, "intended": %d, "ttft_ms": %g, "usage": {"prompt_tokens": 2000, "cached_tokens": %d}}}`+"\n",
			i, i%3/2, i/4*1000+i%4*10, ttft(i), i%2*1900)
	}
	put(t, filepath.Join(dir, "requests.jsonl"), b.String())
}

// TestMoved: only rows with a long prefill became slower, and the table shows it. A single pair shows its own difference, but decides
// nothing.
func TestMoved(t *testing.T) {
	ten := func(ttft float64) string {
		return write(t, append(side(ttft, 1000), side(ttft, 1000)[:4]...)...)
	}
	a, b := ten(100), ten(106)
	for i := range 10 {
		noise := func(row int) float64 { return 1 + 0.002*float64((row*7+i*3)%5) }
		rows(t, filepath.Join(a, fmt.Sprint("run", i)), func(row int) float64 { return 100 * noise(row) })
		rows(t, filepath.Join(b, fmt.Sprint("run", i)), func(row int) float64 { return (100 + 20*float64(1-row%2)) * noise(row+1) })
	}
	c, err := compare(t, a, b, "ttft.p50")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]study.Moved{}
	for _, m := range c.Moved {
		got[m.By+" "+m.Class] = m
	}
	cold, cached := got["uncached tokens 1024 to 4095"], got["uncached tokens 0 to 255"]
	if cold.Answer != study.Slower || math.Abs(cold.Ratio-1.2) > 0.02 || cold.Rows != 60 || cached.Answer != study.NoDifference {
		t.Errorf("cold %+v, cached %+v", cold, cached)
	}
	if got["place in a burst 1"].Rows != 30 || got["place in a burst 2 to 3"].Rows != 60 || got["turn 1 to 3"].Rows != 40 || len(c.Within) != 0 {
		t.Errorf("%+v, %+v", got, c.Within)
	}
	one, err := compare(t, filepath.Join(a, "run0"), filepath.Join(b, "run0"), "ttft.p50")
	if err != nil || one.Primary.Answer != study.CannotTell || len(one.Within) != 1 {
		t.Fatalf("%+v, %v", one, err)
	}
	if w := one.Within[0]; w.Rows != 120 || w.Block != 10 || w.Low > w.Ratio || w.High < w.Ratio || w.Ratio < 1 || w.Ratio > 1.25 {
		t.Errorf("%+v", w)
	}
}

// TestFloor: the noise floor grows with the scatter of A, and an A that differs from itself is reported.
func TestFloor(t *testing.T) {
	read := func(dir string) []*study.Run {
		runs, err := study.ReadRuns(dir)
		if err != nil {
			t.Fatal(err)
		}
		return runs
	}
	m, _ := study.ParseMetric("ttft.p50")
	a, b := read(write(t, side(100, 1000)...)), read(write(t, side(100, 1000)...))
	again := func(ttft float64) *study.Comparison {
		c, err := study.Compare(a, b, read(write(t, side(ttft, 1000)...)), m, 0.02)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	alike, other := again(100.1), again(104)
	if alike.Again.Answer != study.NoDifference || other.Again.Answer != study.Slower || !(alike.Primary.Floor < 0.002) || !(other.Primary.Floor > 0.03) {
		t.Errorf("%+v %v, %+v %v", alike.Again, alike.Primary.Floor, other.Again, other.Primary.Floor)
	}
	worse := side(100.1, 1000)
	worse[3].verdict = "degraded"
	c, err := study.Compare(a, b, read(write(t, worse...)), m, 0.02)
	if err != nil || c.Primary.Pairs != 6 || len(c.LeftOut) != 1 || !strings.HasPrefix(c.LeftOut[0].Reason, "from the noise floor only: its verdict is degraded; its pair ") {
		t.Errorf("a further run of A does not count: %+v, %v", c, err)
	}
	if c, err := study.Compare(a, b, nil, m, 0.02); err != nil || c.Again != nil || !(c.Primary.Floor > 0.1) {
		t.Errorf("successive runs of A differ by 30 %%: %+v, %v", c, err)
	}
}
