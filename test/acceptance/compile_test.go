// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// This file compiles a day of generated traffic, of three sizes, by one process and in two shards on this machine, and compares the two:
// the same bytes, for about the same work. `make acceptance-compile`, ROWS=1000000, MEMORY=2GiB, SHAPE=day, SINGLE=1000000.

// compiled is the cost of one compile, over all its processes.
type compiled struct {
	cpu, wall time.Duration
	peak      float64 // bytes of the largest process
	disk      float64 // bytes in addition to those before, the trace included
	trace     float64 // bytes, with its sidecar
	sum       [sha256.Size]byte
}

// compileDay compiles journals in this many shards, or without shards if the number is 0, into a trace of this name.
func compileDay(t *testing.T, dir, name, ending, memory string, shards int) (out string, c compiled) {
	t.Helper()
	moonloop, out := setting(t, "MOONLOOP_BIN"), filepath.Join(dir, name+ending)
	args := []string{"compile", filepath.Join(dir, "journals"), "--out", out, "--memory", memory, "--temp-dir", dir, "--progress", "none", "--force"}
	before, left := used(t, dir), filepath.Join(dir, name+".shards")
	var all []*process
	for i := range max(shards, 1) {
		own := args
		if shards > 0 {
			own = append(slices.Clip(args), "--shard", fmt.Sprintf("%d/%d", i, shards), "--shard-dir", left)
		}
		all = append(all, start(t, dir, fmt.Sprint(name, i), nil, moonloop, own...))
	}
	for _, p := range all {
		for running := true; running; {
			select {
			case <-p.done:
				running = false
			case <-time.After(100 * time.Millisecond):
			}
			c.disk = max(c.disk, used(t, dir)-before)
		}
		if p.code != 0 {
			t.Fatalf("%s ended with status %d\n%s", name, p.code, p.tail())
		}
		c.cpu += p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
		c.wall, c.peak = max(c.wall, p.lasted), max(c.peak, float64(p.peak.Load()))
	}
	if err := os.RemoveAll(left); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, part := range []string{out, mooncake.MetaName(out)} {
		f, err := os.Open(part)
		if err == nil {
			var n int64
			n, err = io.Copy(h, f)
			c.trace += float64(n)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.sum = [sha256.Size]byte(h.Sum(nil))
	return out, c
}

// used returns the bytes in use on a file system.
func used(t *testing.T, dir string) float64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return float64(s.Blocks-s.Bfree) * float64(s.Bsize)
}

// bytesOf reads a size such as 512MiB.
func bytesOf(t *testing.T, size string) float64 {
	t.Helper()
	for unit, bytes := range map[string]float64{"MiB": 1 << 20, "GiB": 1 << 30} {
		if number, ok := strings.CutSuffix(size, unit); ok {
			if n, err := strconv.ParseFloat(number, 64); err == nil {
				return n * bytes
			}
		}
	}
	t.Fatalf("MEMORY=%s: want a number of MiB or GiB", size)
	return 0
}

// TestAcceptanceCompile compiles a hundredth, a tenth and all of ROWS requests, where those are 100,000 or more. One process compiles at most
// SINGLE of them.
func TestAcceptanceCompile(t *testing.T) {
	number := func(name string) int64 {
		n, err := strconv.ParseInt(setting(t, name), 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	all, single := number("MOONLOOP_ROWS"), int64(math.MaxInt64)
	if os.Getenv("MOONLOOP_SINGLE") != "" {
		single = number("MOONLOOP_SINGLE")
	}
	kind, ok := shapes[setting(t, "MOONLOOP_SHAPE")]
	if !ok {
		t.Fatalf("SHAPE=%s: want one of %s", os.Getenv("MOONLOOP_SHAPE"), slices.Sorted(maps.Keys(shapes)))
	}
	report := func(what, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		t.Logf("%s: %s", what, text) // at once: the largest size takes long
		note(t, what, text)
	}
	memory, home := setting(t, "MOONLOOP_MEMORY"), artefacts(t)
	limit := 1.2 * bytesOf(t, memory)
	report("shape", "%s; --memory %s", &kind, memory)
	before := map[string]float64{} // µs for a request of the size before
	for _, rows := range []int64{all / 100, all / 10, all} {
		if rows < 100_000 {
			continue // the cost of starting a process says nothing about requests
		}
		dir := filepath.Join(home, fmt.Sprint(rows))
		journals := filepath.Join(dir, "journals")
		if err := os.MkdirAll(journals, 0o755); err != nil {
			t.Fatal(err)
		}
		of, each := fmt.Sprintf("%d requests", rows), func(n float64) float64 { return n / float64(rows) }
		began := time.Now()
		day := makeDay(t, journals, &kind, rows)
		report(of, "%.1f tokens of prompt each, %.0f B of journals each, made in %.1f s", each(float64(day.prompt)), each(float64(day.bytes)), time.Since(began).Seconds())
		compile := func(name string, shards int) (out string, c compiled, cost float64) {
			out, c = compileDay(t, dir, strings.ReplaceAll(name, " ", "-"), kind.ending, memory, shards)
			cost = each(float64(c.cpu.Microseconds()))
			what := of + ", " + name
			report(what, "%.1f s (%.0f requests/s), %.2f µs of CPU, %.0f B of temporary files and trace, %.0f B of trace each; with the journals %.0f B on disk at most",
				c.wall.Seconds(), float64(rows)/c.wall.Seconds(), cost, each(c.disk), each(c.trace), each(c.disk+float64(day.bytes)))
			goal(t, what+": memory of the largest process, MiB", c.peak/(1<<20), limit/(1<<20))
			if smaller := before[name]; smaller > 0 && cost > 0 {
				goal(t, what+": work for a request, as a multiple of that with a tenth of the requests", cost/smaller, 1.15)
			}
			before[name] = cost
			return out, c, cost
		}
		var one compiled
		var alone float64
		if rows <= single {
			var out string
			out, one, alone = compile("one process", 0)
			if err := os.Remove(out); err != nil {
				t.Fatal(err)
			}
		}
		out, two, cost := compile("two shards", 2)
		if rows <= single {
			equal(t, of+": bytes of trace and sidecar are the same", one.sum == two.sum, true)
			goal(t, of+": work of two shards, as a multiple of that of one process", cost/alone, 1.1)
		} else {
			report(of+", one process", "not run (SINGLE=%d), so shards are not compared with it", single)
		}
		if err := os.RemoveAll(journals); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		day.recount(t, dir, out, &kind)
		report(of, "counted in %.1f s", time.Since(began).Seconds())
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// goal adds a figure with a limit to the table, and reports at once whether it holds.
func goal(t *testing.T, what string, got, most float64) {
	t.Helper()
	holds := "holds"
	if got > most {
		holds = "does not hold"
	}
	t.Logf("%s: %.3g ≤ %.3g %s", what, got, most, holds)
	judge(t, what, fmt.Sprintf("%.3g, %s", got, holds), fmt.Sprintf("≤ %.3g", most), got <= most)
}

// countedByID is the maximum number of rows for which DuckDB counts by looking up each id in all earlier rows. For more rows, it counts a
// row's ids above all earlier ones as new.
const countedByID = 20_000_000

// recount has DuckDB count the content of a trace, if it is installed.
func (d *made) recount(t *testing.T, dir, trace string, kind *shape) {
	t.Helper()
	python := filepath.Join(setting(t, "MOONLOOP_DUCKDB"), "bin", "python")
	if _, err := os.Stat(python); err != nil {
		note(t, "DuckDB", "not installed")
		return
	}
	var counted struct{ Rows, Prompt, Output, Hit int64 }
	run := func(into any, program string, args ...string) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		b, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, stderr.Bytes())
		}
	}
	way := "by id"
	if d.rows > countedByID {
		way = "by order"
	}
	run(&counted, python, "compile/recount.py", trace, filepath.Join(dir, "rows.parquet"), way)
	of := fmt.Sprintf("%d requests, by DuckDB: ", d.rows)
	same := func(what string, got, want int64) {
		t.Helper()
		t.Logf("%s%s: %d, must be %d", of, what, got, want)
		equal(t, of+what, got, want)
	}
	same("rows", counted.Rows, d.rows)
	same("prompt tokens", counted.Prompt, d.prompt)
	same("output tokens", counted.Output, d.output)
	if kind.prefixesAreMade {
		same("tokens that an infinite cache has, "+way+", as made", counted.Hit, d.hit)
	}
	if d.rows > countedByID {
		note(t, of+"tokens that an infinite cache has", "not compared with moonloop inspect, which would take too long")
		return
	}
	var inspected struct {
		Traces []struct {
			Caches []struct {
				HitTokens int64 `json:"hit_tokens"`
				Unknown   int64 `json:"unknown_requests"`
			} `json:"caches"`
		} `json:"traces"`
	}
	run(&inspected, setting(t, "MOONLOOP_BIN"), "inspect", "--json", trace)
	caches := inspected.Traces[0].Caches
	infinite := caches[len(caches)-1]
	if infinite.Unknown > 0 {
		note(t, of+"tokens that an infinite cache has", counted.Hit)
		return
	}
	same("tokens that an infinite cache has, as inspected", counted.Hit, infinite.HitTokens)
}
