// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package transform

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/generate"
)

// The environment of TestSpeed, which make bench-transform sets, and of the processes that it starts.
const (
	speedRows   = "MOONLOOP_SPEED_ROWS"
	speedRounds = "MOONLOOP_SPEED_ROUNDS"
	speedSteps  = "MOONLOOP_SPEED_STEPS"
	speedStep   = "MOONLOOP_SPEED_STEP"
	speedTrace  = "MOONLOOP_SPEED_TRACE"
)

// copying is the step that reads, parses and writes rows, and nothing else.
const copying = "read, parse and write"

// speed is a step to measure, and the number of its sources.
type speed struct {
	name    string
	c       Config
	sources int
}

// speeds are the steps with a promised speed. Those of two sources read the trace twice.
var speeds = []speed{
	{copying, Config{}, 1},
	{"--time-scale 0.5", Config{TimeScale: 0.5}, 1},
	{"--start 1s", Config{Start: time.Second}, 1},
	{"--max-input 8000", Config{MaxInput: 8000}, 1},
	{"--max-context 16000", Config{MaxContext: 16000}, 1},
	{"--first-conversations 1000000000", Config{Conversations: 1e9}, 1},
	{"--max-gap 10s", Config{MaxGap: 10 * time.Second}, 1},
	{"--spread uniform", Config{Spread: SpreadUniform}, 1},
	{"--input-scale 0.7", Config{InputScale: 0.7}, 1},
	{"--input-scale 1.5", Config{InputScale: 1.5}, 1},
	{"--output-scale 2", Config{OutputScale: 2}, 1},
	{"--prefix-scale 0.5", Config{PrefixScale: 0.5}, 1},
	{"--roots 8", Config{Roots: 8}, 1},
	{"--to-block-size 1024", Config{BlockSize: 1024}, 1},
	{"--turn-delay start", Config{Turns: TurnsFromStart}, 1},
	{"--to-model a", Config{ToModels: []string{"a"}}, 1},
	{"--append", Config{Join: JoinAppend}, 2},
	{"--merge", Config{Join: JoinMerge}, 2},
	{"--scale 0.1", Config{Scale: 0.1}, 1},
	{"--scale 2", Config{Scale: 2}, 1},
}

// spent is the time and memory of a step.
type spent struct {
	Read, Written int64
	Wall, CPU     float64 // s
	Memory        int64   // greatest resident size, bytes
}

// perSecond returns the number of rows that were read or written, whichever is larger, divided by the time.
func (s spent) perSecond(seconds float64) float64 { return float64(max(s.Read, s.Written)) / seconds }

// TestSpeed compares the speed of each step with that of reading, parsing and writing alone: processes take turns, and the median of the
// rounds counts.
func TestSpeed(t *testing.T) {
	if name := os.Getenv(speedStep); name != "" {
		if err := json.NewEncoder(os.Stderr).Encode(runStep(t, name, os.Getenv(speedTrace))); err != nil {
			t.Fatal(err)
		}
		return
	}
	rows, err := strconv.ParseInt(os.Getenv(speedRows), 10, 64)
	if err != nil {
		t.Skip("takes minutes: make bench-transform")
	}
	rounds, _ := strconv.Atoi(cmp.Or(os.Getenv(speedRounds), "3"))
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	bytes, ids := writeTrace(t, trace, rows)
	t.Logf("%d rows of %.0f bytes with %.1f block ids, on %d processors (%s)", rows, float64(bytes)/float64(rows), float64(ids)/float64(rows), runtime.NumCPU(), runtime.Version())
	took := map[string][]spent{}
	var names []string
	for _, s := range speeds {
		if only := os.Getenv(speedSteps); s.name == copying || only == "" || slices.Contains(strings.Split(only, ","), s.name) {
			names = append(names, s.name)
		}
	}
	for range rounds {
		for _, name := range names {
			took[name] = append(took[name], start(t, name, trace))
		}
	}
	base := medianOf(took[copying])
	var b strings.Builder
	for _, name := range names {
		m := medianOf(took[name])
		wall, cpu := m.perSecond(m.Wall)/base.perSecond(base.Wall), m.perSecond(m.CPU)/base.perSecond(base.CPU)
		fmt.Fprintf(&b, "| `%s` | %.2f µs | %.0f %% | %.2f µs | %.0f %% | %d MiB |\n", name, 1e6/m.perSecond(m.Wall), 100*wall, 1e6/m.perSecond(m.CPU), 100*cpu, m.Memory>>20)
		if cpu < 0.7 { // the time depends on what else runs
			t.Errorf("%s runs at %.0f %% of the speed of reading, parsing and writing, by CPU time", name, 100*cpu)
		}
		if bound := int64(256<<20) + 160*max(m.Read, m.Written); m.Memory > bound {
			t.Errorf("%s took %d MiB, more than %d", name, m.Memory>>20, bound>>20)
		}
	}
	t.Logf("medians of %d rounds, for each row that was read or written, whichever are more\n| step | time | share of the speed | CPU time | share by CPU time | memory |\n|---|---|---|---|---|---|\n%s", rounds, b.String())
}

// medianOf returns the median times, and the greatest memory.
func medianOf(rounds []spent) spent {
	m := rounds[0]
	for _, s := range rounds {
		m.Memory = max(m.Memory, s.Memory)
	}
	for _, of := range []func(*spent) *float64{func(s *spent) *float64 { return &s.Wall }, func(s *spent) *float64 { return &s.CPU }} {
		sorted := slices.SortedFunc(slices.Values(rounds), func(a, b spent) int { return cmp.Compare(*of(&a), *of(&b)) })
		*of(&m) = *of(&sorted[len(sorted)/2])
	}
	return m
}

// writeTrace writes conversations under one system prompt, by a clock that ticks every second.
func writeTrace(t *testing.T, name string, rows int64) (bytes, ids int64) {
	t.Helper()
	c := generate.Default()
	c.Rows, c.Rate, c.Turns, c.Grid, c.UserTokens.Median = rows, 100, 4, time.Second, 1800 // about as long as the rows of the public conversation trace
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriterSize(file, 1<<20)
	w := mooncake.NewWriter(out)
	if err := generate.Generate(c, func(row *mooncake.Row) error {
		ids += int64(len(row.HashIDs))
		return w.Write(row)
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size(), ids
}

// start runs a step in a separate process.
func start(t *testing.T, name, trace string) (s spent) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestSpeed$")
	cmd.Env = append(os.Environ(), speedStep+"="+name, speedTrace+"="+trace)
	var out strings.Builder
	cmd.Stderr = &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out.String())
	}
	if err := json.Unmarshal([]byte(out.String()), &s); err != nil {
		t.Fatalf("%s: %v in %s", name, err, out.String())
	}
	s.CPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	s.Memory = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss //nolint:forcetypeassert // it is one on Unix
	if runtime.GOOS == "linux" {
		s.Memory <<= 10 // it counts in KiB there
	}
	return s
}

// runStep runs a step in this process.
func runStep(t *testing.T, name, trace string) (s spent) {
	t.Helper()
	i := slices.IndexFunc(speeds, func(s speed) bool { return s.name == name })
	var source Source
	source.Name = trace
	source.Open = func() (Rows, error) {
		file, err := os.Open(trace)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = file.Close() })
		return mooncake.NewReader(file, mooncake.ReaderOptions{Name: trace}), nil
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	out := bufio.NewWriterSize(null, 256<<10)
	w := mooncake.NewWriter(out)
	begin := time.Now()
	if name == copying {
		rows, err := source.Open()
		for err == nil {
			var row *mooncake.Row
			if row, err = rows.Read(); err == nil {
				err = w.Write(row)
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		s.Read = w.Rows()
	} else {
		stream, err := Open(speeds[i].c, slices.Repeat([]Source{source}, speeds[i].sources)...)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if err := stream.Each(t.Context(), w.Write); err != nil {
			t.Fatal(err)
		}
		s.Read = stream.Report().Before.Rows
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	s.Written, s.Wall = w.Rows(), time.Since(begin).Seconds()
	return s
}
