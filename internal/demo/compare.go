// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// loop is the result of comparing the captured trace with that of the replay.
type loop struct {
	captured, replayed capture.TraceResult
	sent               Sent
	traces             stats.Comparison
	ideal              stats.CacheStats
	engine, again      float64     // share of the prompt tokens that the engine had cached, in production and in the replay
	verdict            judge.Class // of the replay's measurement
	found              []string
	files, bytes       int64 // searched for text
	texts              int64 // bytes searched for
}

// compareLoop compares the traces in a folder, and searches every file in it for the texts that were sent.
func compareLoop(ctx context.Context, folder string, captured, replayed capture.TraceResult, sent Sent, rep *report.Report) (*loop, error) {
	l := &loop{captured: captured, replayed: replayed, sent: sent, verdict: rep.Verdict.Class, engine: math.NaN(), again: math.NaN()}
	before, after := filepath.Join(folder, Captured), filepath.Join(folder, Replayed)
	if err := l.compare(ctx, before, after); err != nil {
		return nil, fmt.Errorf("demo: compare: %w", err)
	}
	var err error
	if l.ideal, err = idealCache(ctx, before); err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if sent.PromptTokens > 0 {
		l.engine = float64(sent.Cached) / float64(sent.PromptTokens)
	}
	if share, ok := rep.Figures().Stat(measure.CacheReadPct); ok {
		l.again = share.Avg / 100
	}
	search := NewSearch(sent.Texts)
	for _, text := range sent.Texts {
		l.texts += int64(len(text))
	}
	err = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name) //nolint:gosec // our own folder
		if err != nil {
			return err
		}
		l.files++
		l.bytes += int64(len(content))
		if search.In(content) {
			l.found = append(l.found, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("demo: search for text: %w", err)
	}
	return l, nil
}

// compare compares the rows of two traces.
func (l *loop) compare(ctx context.Context, names ...string) error {
	var readers [2]*mooncake.Reader
	for i, name := range names {
		trace, err := mooncake.Open(ctx, name, mooncake.OpenOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = trace.Close() }() // it is only read
		readers[i] = trace.Reader
	}
	// Spans have nanoseconds, but timestamps of a trace may be rounded.
	c, err := stats.Compare(ctx, readers[0], readers[1], stats.CompareOptions{Tolerance: 1})
	if err == nil {
		l.traces = *c
	}
	return err
}

// idealCache returns the hits of an infinite cache for a trace.
func idealCache(ctx context.Context, name string) (stats.CacheStats, error) {
	trace, err := mooncake.Open(ctx, name, mooncake.OpenOptions{})
	if err != nil {
		return stats.CacheStats{}, err
	}
	defer func() { _ = trace.Close() }() // it is only read
	sim := stats.NewCacheSim(stats.CacheOptions{BlockSize: trace.BlockSize()})
	for {
		row, err := trace.Read()
		if errors.Is(err, io.EOF) {
			stats := sim.Stats()
			return stats[len(stats)-1], nil
		}
		if err != nil {
			return stats.CacheStats{}, err
		}
		sim.Add(row)
	}
}

// complete reports whether every request of production is a row, and every row was replayed and captured.
func (l *loop) complete() bool {
	return l.captured.Meta.Rows == l.sent.Requests && l.replayed.Meta.Rows == l.captured.Meta.Rows
}

// closed reports whether the loop closed: same requests, same sharing, same timestamps within 1 ms, no text.
func (l *loop) closed() bool {
	return l.complete() && l.traces.Same() && len(l.found) == 0
}

func (l *loop) write(w io.Writer) {
	row := func(name, left, right, verdict string) {
		fmt.Fprint(w, term.Hang(term.Width(w), fmt.Sprintf("   %-16s%-14s%-14s", name, left, right), verdict))
	}
	agree := func(same bool) string {
		if same {
			return "same"
		}
		return "DIFFERENT"
	}
	digest := func(name, a, b string) {
		row(name, term.Digest(a), term.Digest(b), agree(a == b && a != mooncake.Undefined))
	}
	a, b := l.captured.Meta, l.replayed.Meta
	row("", "captured", "replayed", "")
	rows := agree(l.complete())
	if a.Rows == l.sent.Requests {
		rows += ", and as many as production sent"
	} else {
		rows += ": production sent " + term.Comma(l.sent.Requests)
	}
	row("rows", term.Comma(a.Rows), term.Comma(b.Rows), rows)
	digest("seq digest", a.Digests.Seq, b.Digests.Seq)
	digest("tree digest", a.Digests.Tree, b.Digests.Tree)
	digest("arrival digest", a.Digests.Arrival, b.Digests.Arrival)
	row("requests", "", "", agree(l.traces.Lengths.Count == 0 && l.traces.Blocks.Count == 0)+" lengths and shared blocks, row by row")
	row("timestamps", "", "", fmt.Sprintf("at most %.3g ms apart", l.traces.Apart))
	row("engine's cache", term.Share(l.engine), term.Share(l.again), "of the prompt tokens; an infinite cache: "+term.Share(l.ideal.TokenRate))
	sizes := fmt.Sprintf("%s were sent, %d files written (%s)", humanize.Bytes(uint64(max(0, l.texts))), l.files, humanize.Bytes(uint64(max(0, l.bytes))))
	if len(l.found) == 0 {
		row("text", "in no file", "in no file", sizes)
	} else {
		row("text", "FOUND", "", "in "+strings.Join(l.found, ", ")+"; "+sizes)
	}
	verdict := "closed"
	if !l.closed() {
		verdict = "NOT CLOSED"
	}
	fmt.Fprintf(w, "\nLoop        %s; the measurement of the replay is %s\n", verdict, l.verdict)
}
