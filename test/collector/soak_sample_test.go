// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// watched is a process that is sampled every second.
type watched struct {
	name string
	*process
	goroutines string         // URL of a page that has the number of goroutines
	pattern    *regexp.Regexp // finds the number on the page; nil if goroutines are not counted
	samples    []sample
}

// sample are the figures of a process at one moment.
type sample struct {
	at         time.Duration // since the traffic began
	rss, anon  int64         // resident memory in bytes: all, and the part that is not a mapped file
	files      int64         // open descriptors
	threads    int64
	goroutines int64 // -1 is unknown
	cpu        time.Duration
}

// flat are the figures that must not grow.
var flat = []struct {
	name string
	of   func(sample) int64
	unit float64
}{
	{"RSS, MiB", func(s sample) int64 { return s.rss }, 1 << 20},
	{"descriptors", func(s sample) int64 { return s.files }, 1},
	{"goroutines", func(s sample) int64 { return s.goroutines }, 1},
}

// look samples the process now.
func (w *watched) look(ctx context.Context, t *testing.T, at time.Duration) sample {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("%s: %v\n%s", w.name, err, w.tail())
	}
	s := sample{at: at, rss: w.memory(t, "VmRSS"), anon: w.memory(t, "RssAnon"), files: int64(len(files)), cpu: w.cpu(t), goroutines: -1}
	if _, err := fmt.Sscanf(regexp.MustCompile(`(?m)^Threads:\s*\d+$`).FindString(w.proc(t, "status")), "Threads: %d", &s.threads); err != nil {
		t.Fatalf("%s: threads: %v", w.name, err)
	}
	if w.pattern != nil {
		s.goroutines = w.count(ctx)
	}
	return s
}

// count asks the process for its goroutines.
func (w *watched) count(ctx context.Context) int64 {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.goroutines, nil)
	if err != nil {
		return -1
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return -1
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return -1
	}
	match := w.pattern.FindSubmatch(page)
	if match == nil {
		return -1
	}
	n, err := strconv.ParseInt(string(match[1]), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// record samples all processes every second until the context ends, and writes each sample to a file at once. From time to time it reports
// its progress.
func record(ctx context.Context, t *testing.T, to io.Writer, lasts time.Duration, all []*watched) {
	t.Helper()
	table := csv.NewWriter(to)
	_ = table.Write([]string{"process", "seconds", "rss_bytes", "rss_anon_bytes", "descriptors", "threads", "goroutines", "cpu_seconds"})
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	began, said := time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		at := time.Since(began)
		line := ""
		for _, w := range all {
			s := w.look(ctx, t, at)
			w.samples = append(w.samples, s)
			_ = table.Write([]string{
				w.name, fmt.Sprintf("%.1f", at.Seconds()), fmt.Sprint(s.rss), fmt.Sprint(s.anon), fmt.Sprint(s.files),
				fmt.Sprint(s.threads), fmt.Sprint(s.goroutines), fmt.Sprintf("%.2f", s.cpu.Seconds()),
			})
			line += fmt.Sprintf("; %s %d MiB, %d descriptors, %d goroutines", w.name, s.rss>>20, s.files, s.goroutines)
		}
		table.Flush()
		if err := table.Error(); err != nil {
			t.Error(err)
		}
		if at-said >= max(lasts/40, 5*time.Second) {
			said = at
			t.Logf("%v of %v%s", at.Round(time.Second), lasts, line)
		}
	}
}

// between returns the median of a figure over a part of the time, and the spread of its middle half; ok is false if it is unknown.
func (w *watched) between(from, to time.Duration, of func(sample) int64) (middle, spread float64, ok bool) {
	var values []int64
	for _, s := range w.samples {
		if v := of(s); from <= s.at && s.at <= to && v >= 0 {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return 0, 0, false
	}
	slices.Sort(values)
	return float64(values[len(values)/2]), float64(values[len(values)*3/4] - values[len(values)/4]), true
}

// cores returns how many cores the process kept busy over a part of the time.
func (w *watched) cores(from, to time.Duration) float64 {
	var first, last *sample
	for i := range w.samples {
		if s := &w.samples[i]; from <= s.at && s.at <= to {
			if first == nil {
				first = s
			}
			last = s
		}
	}
	if first == nil || last.at == first.at {
		return math.NaN()
	}
	return float64(last.cpu-first.cpu) / float64(last.at-first.at)
}

// growth is one line of the verdict: a figure after warming up, and at the end.
type growth struct {
	process, figure string
	before, after   float64 // medians
	spread          float64 // of the middle half of the samples, the wider of both windows
}

// share returns by how much the figure grew.
func (g growth) share() float64 { return g.after/g.before - 1 }

// grown compares the figures of a process in two windows of the given length: after warm-up, and at the end.
func grown(t *testing.T, w *watched, warm, window, end time.Duration) []growth {
	t.Helper()
	var all []growth
	for _, f := range flat {
		before, spread, ok := w.between(warm, warm+window, f.of)
		after, spreadAfter, okAfter := w.between(end-window, end, f.of)
		if !ok || !okAfter {
			if w.pattern != nil || f.name != "goroutines" {
				t.Errorf("%s has no samples of %s", w.name, f.name)
			}
			continue
		}
		all = append(all, growth{w.name, f.name, before / f.unit, after / f.unit, max(spread, spreadAfter) / f.unit})
	}
	return all
}

// TestGrown shows that a leak is found, and that warming up is not one.
func TestGrown(t *testing.T) {
	w := &watched{name: "p", pattern: regexp.MustCompile(`x`)}
	for s := range 1000 {
		w.samples = append(w.samples, sample{
			at:  time.Duration(s) * time.Second,
			rss: 100<<20 + int64(s)<<14, // 16 KiB a second
			// Half of the descriptors come in the warm-up; then their number varies.
			files: int64(min(s, 100) + s%7),
			// The number of goroutines is unknown (-1) from time to time.
			goroutines: int64(50 - 51*(s%5/4)),
		})
	}
	got := grown(t, w, 200*time.Second, 120*time.Second, 1000*time.Second)
	if len(got) != 3 {
		t.Fatalf("%d figures: %+v", len(got), got)
	}
	// 16 KiB × 680 s between the middles of the windows, in addition to the value at 260 s.
	if want := 680.0 / 64 / (100 + 260.0/64); math.Abs(got[0].share()-want) > 0.001 {
		t.Errorf("memory grew by %.4f, want %.4f", got[0].share(), want)
	}
	if got[1].share() != 0 || got[1].spread != 4 || got[2].share() != 0 || got[2].before != 50 {
		t.Errorf("descriptors and goroutines: %+v", got[1:])
	}
}
