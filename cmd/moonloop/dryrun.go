// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// This file prints what a replay would send: "moonloop replay --dry-run".

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/term"
)

// The values of --dry-run.
const (
	dryRunOff  = "false"
	dryRunText = "true"
	dryRunJSON = "json"
)

// firstRows is the number of rows in the table of a dry run; JSON has all.
const firstRows = 10

// plannedRow is a row of a dry run.
type plannedRow struct {
	Row    int64    `json:"row"`
	Offset *float64 `json:"offset_s"` // null: it depends on the engine
	Input  *int64   `json:"input_length"`
	Output *int64   `json:"output_length"`
	Cached *int64   `json:"predicted_cached_tokens"`
	Sess   string   `json:"session_id,omitempty"`
	Class  string   `json:"class,omitempty"`
	// Priority is the priority in the body; absent if there would be none.
	Priority *int64 `json:"priority,omitempty"`
}

func planned(it *schedule.Item, cfg agent.Config) plannedRow {
	p := plannedRow{Row: it.Index, Sess: it.Row.SessionID, Class: it.Row.Class}
	if n := agent.PriorityOf(cfg, it.Row); n.Set {
		p.Priority = new(n.V)
	}
	if it.Timed {
		p.Offset = new(it.Offset.Seconds())
	}
	if l := it.Row.InputLength; l.Set {
		p.Input = new(l.V)
	}
	if l := it.Row.OutputLength; l.Set {
		p.Output = new(l.V)
	}
	if n := it.Predicted.Whole; n >= 0 {
		p.Cached = new(n)
	}
	return p
}

// dryRun shows what a replay would send, and sends nothing.
func dryRun(cmd *cobra.Command, cfg agent.Config, as string) error {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	cfg.Trace.Stdin = cmd.InOrStdin()
	cfg.Note = func(text string) { fmt.Fprint(stderr, term.Note(stderr, text)) }
	cfg.Warn = func(text string) { cfg.Note("warning: " + text) }
	var first []plannedRow
	var failed error
	lines := json.NewEncoder(stdout)
	each := func(it *schedule.Item) {
		switch p := planned(it, cfg); {
		case as == dryRunJSON && failed == nil:
			failed = lines.Encode(p)
		case len(first) < firstRows:
			first = append(first, p)
		}
	}
	f, err := agent.Predict(cmd.Context(), cfg, each)
	switch {
	case err != nil:
		return err
	case failed == nil && as == dryRunJSON:
		failed = lines.Encode(map[string]any{"forecast": f})
	case failed == nil:
		failed = writeForecast(stdout, f, first)
	}
	if failed != nil {
		return fmt.Errorf("write the dry run: %w", failed)
	}
	return nil
}

// padding is trailing space in the lines of tables.
var padding = regexp.MustCompile(` +\n`)

// writeForecast prints the first rows, the rate over time, and the totals.
func writeForecast(w io.Writer, f *agent.Forecast, first []plannedRow) error {
	var b strings.Builder
	b.WriteString(plannedTable(first) + "\n")
	if more := f.Rows - int64(len(first)); more > 0 {
		fmt.Fprintf(&b, "and %s\n", term.Counted(more, "further rows"))
	}
	if len(f.Bins) > 0 {
		b.WriteString("\n" + rateTable(f) + "\n")
	}
	b.WriteByte('\n')
	writeTotals(f, func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s"+format+"\n", append([]any{name}, args...)...)
	})
	b.WriteString("nothing was sent\n")
	_, err := io.WriteString(w, padding.ReplaceAllString(b.String(), "\n"))
	return err
}

func plannedTable(first []plannedRow) string {
	number := func(n *int64) string {
		if n == nil {
			return "–"
		}
		return term.Comma(*n)
	}
	t := term.NewTable()
	alignRight(t, 1, 5)
	t.AppendHeader(table.Row{"Row", "At (s)", "Input", "Output", "Cached, predicted"})
	for _, p := range first {
		at := "as the engine allows"
		if p.Offset != nil {
			at = strconv.FormatFloat(*p.Offset, 'f', 3, 64)
		}
		t.AppendRow(table.Row{term.Comma(p.Row), at, number(p.Input), number(p.Output), number(p.Cached)})
	}
	return t.Render()
}

// rateTable returns a table with a bar for each part of the schedule.
func rateTable(f *agent.Forecast) string {
	const width = 40 // columns of the longest bar
	t := term.NewTable()
	alignRight(t, 1, 3)
	t.AppendHeader(table.Row{"From (s)", "Rows", "Rows/s", ""})
	most := max(slices.Max(f.Bins), 1)
	for i, n := range f.Bins {
		t.AppendRow(table.Row{
			strconv.FormatFloat(float64(i)*f.Width, 'f', 3, 64), term.Comma(n),
			strconv.FormatFloat(float64(n)/f.Width, 'f', 2, 64), strings.Repeat("█", int((n*width+most-1)/most)),
		})
	}
	return t.Render()
}

// writeTotals writes what is sent in all, and when.
func writeTotals(f *agent.Forecast, line func(name, format string, args ...any)) {
	line("Rows", "%s to send", term.Comma(f.Rows))
	for _, part := range []struct {
		n    int64
		what string
	}{
		{f.Following, "of them follow the previous turn after a delay, so their times depend on the engine"},
		{f.PastEnd, "more would be skipped: they are after --max-duration"},
		{f.OutsideWindow, "more are outside of --start and --end"},
		{f.OtherShards, "more belong to other shards"},
		{f.Rejected, "more cannot be used and would go to the quarantine file"},
	} {
		if part.n > 0 {
			line("", "%s %s", term.Comma(part.n), part.what)
		}
	}
	line("Tokens", "%s input, %s output", term.Comma(f.InputTokens), term.Comma(f.OutputTokens))
	if f.Unmeasured > 0 {
		line("", "%s without an input length: their tokens are not counted", term.Counted(f.Unmeasured, "rows"))
	}
	if f.Unasked > 0 {
		line("", "%s without an output length: the engine decides", term.Counted(f.Unasked, "rows"))
	}
	for i, c := range f.Classes {
		name := "Classes"
		if i > 0 {
			name = ""
		}
		priority := ""
		if c.Priority != nil {
			priority = fmt.Sprintf(" (priority %d)", *c.Priority)
		}
		line(name, "%s%s: %s, %s input tokens, %s output", term.Plain(cmp.Or(c.Class, "(none)")), priority, term.Counted(c.Rows, "rows"), term.Comma(c.InputTokens), term.Comma(c.OutputTokens))
	}
	if f.InputTokens > 0 {
		line("Cache", "an infinite cache would serve %s of the input tokens: %s", term.Comma(f.CachedTokens), term.Share(float64(f.CachedTokens)/float64(f.InputTokens)))
	}
	if len(f.Bins) == 0 {
		line("Schedule", "%s of %d: the engine decides when", strings.ReplaceAll(f.Schedule.Mode, "_", " "), f.Schedule.Concurrency)
	} else {
		mean := "–"
		if f.Last > 0 {
			mean = strconv.FormatFloat(float64(f.Rows-f.Following-1)/f.Last, 'f', 2, 64)
		}
		line("Schedule", "%s, the last row at %s s, %s rows/s on average, at most %s in a second (from %s s on)",
			strings.ReplaceAll(f.Schedule.Mode, "_", " "), strconv.FormatFloat(f.Last, 'f', 3, 64), mean, term.Comma(f.Peak), term.Comma(f.PeakAt))
	}
	if f.Schedule.Concurrency > 0 {
		line("At once", "at most %s", term.Counted(int64(f.Schedule.Concurrency), "requests"))
	} else {
		line("At once", "unknown: it depends on how long the engine takes")
	}
}
