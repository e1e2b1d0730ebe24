// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

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
	"golang.org/x/term"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// loop is what the demonstration found when it compared what was captured with what came back from the replay.
type loop struct {
	captured, replayed capture.TraceResult
	sent               produced
	apart              float64 // ms: the largest difference of the timestamps of a row
	ideal              mooncake.CacheStats
	engine, again      float64     // share of the prompt tokens that the engine had cached, in production and in the replay
	verdict            judge.Class // of the replay's measurement
	found              []string
	files, bytes       int64 // searched for text
	texts              int64 // bytes searched for
}

// compareLoop compares the traces in a folder, and searches every file in it for the texts that were sent.
func compareLoop(folder string, captured, replayed capture.TraceResult, sent produced, rep *report.Report) (*loop, error) {
	l := &loop{captured: captured, replayed: replayed, sent: sent, verdict: rep.Verdict.Class, engine: math.NaN(), again: math.NaN()}
	before, err := readRows(filepath.Join(folder, demoCaptured))
	if err != nil {
		return nil, err
	}
	after, err := readRows(filepath.Join(folder, demoReplayed))
	if err != nil {
		return nil, err
	}
	sim := mooncake.NewCacheSim(mooncake.CacheOptions{})
	for i, row := range before {
		sim.Add(row)
		if i < len(after) {
			l.apart = max(l.apart, math.Abs(row.Timestamp.Or(math.Inf(1))-after[i].Timestamp.Or(math.Inf(-1))))
		}
	}
	stats := sim.Stats()
	l.ideal = stats[len(stats)-1]
	if sent.PromptTokens > 0 {
		l.engine = float64(sent.Cached) / float64(sent.PromptTokens)
	}
	if share, ok := rep.Figures().Stat(measure.CacheReadPct); ok {
		l.again = share.Avg / 100
	}
	search := newTextSearch(sent.Texts)
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
		if search.in(content) {
			l.found = append(l.found, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("demo: search for text: %w", err)
	}
	return l, nil
}

func readRows(name string) (rows []*mooncake.Row, err error) {
	trace, err := mooncake.Open(context.Background(), name, mooncake.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, trace.Close()) }()
	for {
		row, err := trace.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
}

// complete says that every request of production is a row, and every row came back.
func (l *loop) complete() bool {
	return l.captured.Meta.Rows == l.sent.Requests && l.replayed.Meta.Rows == l.captured.Meta.Rows
}

// same says that the digest of sequences agrees. It covers lengths, order, and which blocks are shared.
func (l *loop) same() bool {
	a, b := l.captured.Meta.Digests.Seq, l.replayed.Meta.Digests.Seq
	return a == b && a != mooncake.Undefined && a != ""
}

// closed says that the loop closed: same requests, same sharing, same timestamps within 1 ms, no text.
func (l *loop) closed() bool {
	return l.complete() && l.same() && l.apart <= 1 && len(l.found) == 0
}

func (l *loop) write(w io.Writer) {
	row := func(name, left, right, verdict string) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("   %-16s%-14s%-14s%s", name, left, right, verdict), " "))
	}
	agree := func(same bool) string {
		if same {
			return "same"
		}
		return "DIFFERENT"
	}
	digest := func(name, a, b string) {
		verdict := agree(a == b)
		if a == mooncake.Undefined && b == a {
			verdict = "(needs whole milliseconds; see timestamps)"
		}
		row(name, shortDigest(a), shortDigest(b), verdict)
	}
	a, b := l.captured.Meta, l.replayed.Meta
	row("", "captured", "replayed", "")
	rows := agree(l.complete())
	if a.Rows == l.sent.Requests {
		rows += ", and as many as production sent"
	} else {
		rows += ": production sent " + comma(l.sent.Requests)
	}
	row("rows", comma(a.Rows), comma(b.Rows), rows)
	digest("seq digest", a.Digests.Seq, b.Digests.Seq)
	digest("tree digest", a.Digests.Tree, b.Digests.Tree)
	digest("arrival digest", a.Digests.Arrival, b.Digests.Arrival)
	row("timestamps", "", "", fmt.Sprintf("at most %.3g ms apart", l.apart))
	row("engine's cache", share(l.engine), share(l.again), "of the prompt tokens; an infinite cache: "+share(l.ideal.TokenRate))
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

// share prints a share as a percentage.
func share(x float64) string {
	if math.IsNaN(x) {
		return "unknown"
	}
	return fmt.Sprintf("%.1f %%", 100*x)
}

// percentOf prints n of total as a percentage.
func percentOf(n, total int64) string { return share(float64(n) / float64(total)) }

// colours says whether a writer is a terminal that shows them.
func colours(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""
}
