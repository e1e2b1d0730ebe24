// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// render draws the overview with one column a trace, then what is told of each trace by itself.
func (x inspection) render() string {
	var b strings.Builder
	b.WriteString(x.overview())
	curves, ranges := false, false
	for _, t := range x.Traces {
		if t.infinite().Requests > 0 {
			b.WriteString("\n" + t.caches())
			curves, ranges = true, ranges || t.Fine.Rows > 0
		}
	}
	switch {
	case ranges:
		b.WriteString(granularity + finer)
	case curves:
		b.WriteString(granularity)
	}
	b.WriteString("\n")
	for _, t := range x.Traces {
		if len(x.Traces) > 1 {
			b.WriteString(t.Trace + "\n")
		}
		t.findingsText(&b)
	}
	for _, c := range x.Comparisons {
		fmt.Fprintf(&b, "%s against %s: %s\n", c.Trace, c.Against, c.text)
	}
	return b.String()
}

// granularity goes with every hit curve.
const granularity = `
 Sharing shorter than a block does not show in hash ids, so an engine, whose blocks are finer, hits more than these figures.
`

// finer goes on with granularity where there are hash_ranges.
const finer = ` How much more, the lines of hash_ranges above say.
`

// figure is one line of the overview.
type figure struct {
	name string
	of   func(*inspected) string
}

// sections are the lines of the overview.
var sections = [][]figure{
	{
		{"rows", func(t *inspected) string { return term.Comma(t.Rows) }},
		{"rows without lengths", func(t *inspected) string {
			return unless(t.Rows == t.Kinds.Length, fmt.Sprintf("%s text, %s messages, %s payload",
				term.Comma(t.Kinds.Text), term.Comma(t.Kinds.Messages), term.Comma(t.Kinds.Payload)))
		}},
		{"span", timed(func(t *inspected) string { return term.Milliseconds(t.Arrivals.Span) })},
		{"first, last timestamp", timed(func(t *inspected) string {
			return fmt.Sprintf("%s, %s ms", humanize.Commaf(t.Arrivals.First), humanize.Commaf(t.Arrivals.Last))
		})},
		{"rows without timestamp", func(t *inspected) string { return unless(t.Arrivals.Missing == 0, term.Comma(t.Arrivals.Missing)) }},
		{"rate", timed(arrival(func(a *stats.ArrivalStats) string { return fmt.Sprintf("%.4f req/s", a.Rate) }, "rate_per_second"))},
		{"input, output rate", timed(func(t *inspected) string {
			return unlessUndefined(t.Arrivals.Undefined, "rate_per_second",
				fmt.Sprintf("%s, %s tok/s", perSecond(t.Input, t.Arrivals.Span), perSecond(t.Output, t.Arrivals.Span)))
		})},
		{"gap between rows", timed(func(t *inspected) string {
			a := &t.Arrivals
			return unlessUndefined(a.Undefined, "gap_mean_ms", fmt.Sprintf("mean %.4f ms, CV %s", a.GapMean,
				unlessUndefined(a.Undefined, "gap_cv", fmt.Sprintf("%.4f", a.GapCV))))
		})},
		{"distinct timestamps", timed(arrival(func(a *stats.ArrivalStats) string {
			return fmt.Sprintf("%s, mean %.2f rows, max %d", term.Comma(a.Distinct), a.RowsPerStamp.Mean, a.RowsPerStamp.Max)
		}, "distinct_timestamps"))},
		{"timestamp grid", timed(arrival(func(a *stats.ArrivalStats) string { return grid(a.Grid) }, "grid"))},
	},
	{
		{"input tokens", lengthsInput(func(l *stats.LengthStats) string { return term.Comma(l.Sum) })},
		{"  mean", lengthsInput(func(l *stats.LengthStats) string { return fmt.Sprintf("%.1f", l.Mean) })},
		{"  min p1 p10 p25", lengthsInput(func(l *stats.LengthStats) string { return commas(l.Min, l.P1, l.P10, l.P25) })},
		{"  p50 p75 p90", lengthsInput(func(l *stats.LengthStats) string { return commas(l.P50, l.P75, l.P90) })},
		{"  p95 p99 p99.9 max", lengthsInput(func(l *stats.LengthStats) string { return commas(l.P95, l.P99, l.P999, l.Max) })},
		{"output tokens", lengthsOutput(func(l *stats.LengthStats) string { return term.Comma(l.Sum) })},
		{"  mean", lengthsOutput(func(l *stats.LengthStats) string { return fmt.Sprintf("%.1f", l.Mean) })},
		{"  min p1 p10 p25", lengthsOutput(func(l *stats.LengthStats) string { return commas(l.Min, l.P1, l.P10, l.P25) })},
		{"  p50 p75 p90", lengthsOutput(func(l *stats.LengthStats) string { return commas(l.P50, l.P75, l.P90) })},
		{"  p95 p99 p99.9 max", lengthsOutput(func(l *stats.LengthStats) string { return commas(l.P95, l.P99, l.P999, l.Max) })},
	},
	{
		{"block size", sized(func(t *inspected) string { return term.Comma(int64(t.BlockSize)) + " tokens" })},
		{"block references", sized(func(t *inspected) string { return term.Comma(t.Blocks.References) })},
		{"  per row", sized(func(t *inspected) string {
			return fmt.Sprintf("mean %.4f, min %s, max %s", t.Blocks.MeanPerRow, term.Comma(t.Blocks.MinPerRow), term.Comma(t.Blocks.MaxPerRow))
		})},
		{"distinct ids", forest(func(t *inspected) string { return term.Comma(t.Blocks.Distinct) })},
		{"  used once, again", forest(func(t *inspected) string { return commas(t.Blocks.Once, t.Blocks.Again) })},
		{"  roots", forest(func(t *inspected) string { return term.Comma(t.Blocks.Roots) })},
		{"  trunk (> 1 %, > 10 rows)", forest(func(t *inspected) string {
			return unlessUndefined(t.Blocks.Undefined, "trunk_ids", term.Comma(t.Blocks.Trunk))
		})},
		{"  forks, leaves, depth", forest(func(t *inspected) string {
			return commas(t.Blocks.Forks, t.Blocks.Leaves, t.Blocks.Depth)
		})},
		{"groups of rows sharing ids", forest(func(t *inspected) string {
			return unlessUndefined(t.Sessions.Undefined, "inferred",
				fmt.Sprintf("%s, %s of one row", term.Comma(t.Sessions.Inferred), term.Comma(t.Sessions.Single)))
		})},
		{"session ids", func(t *inspected) string {
			return unless(t.Sessions.Rows == 0, fmt.Sprintf("%s in %s rows, mode %s",
				term.Comma(t.Sessions.Named), term.Comma(t.Sessions.Rows), t.Sessions.Mode))
		}},
		{"minimum prefill tokens", sized(func(t *inspected) string {
			c := t.infinite()
			return fmt.Sprintf("%s (%.2f %%)", term.Comma(c.PrefillTokens), 100*(1-c.TokenRate))
		})},
		{"rows with hash_ranges", ranged(func(f *stats.FineStats) string {
			return fmt.Sprintf("%s, blocks of %d tokens", term.Comma(f.Rows), f.BlockSize)
		})},
		{"  tokens hit by hash_ids", ranged(func(f *stats.FineStats) string { return fmt.Sprintf("%.2f %%", 100*f.CoarseRate) })},
		{"  by hash_ranges", ranged(func(f *stats.FineStats) string { return fmt.Sprintf("%.2f %%", 100*f.Rate) })},
		{"  and replies", ranged(func(f *stats.FineStats) string {
			return unless(f.ReplyRows == 0, fmt.Sprintf("%.2f %%", 100*f.RepliesRate))
		})},
		{"rows with replies", func(t *inspected) string {
			return unless(t.Fine.ReplyRows == 0, term.Comma(t.Fine.ReplyRows))
		}},
		{"  replies, their tokens", func(t *inspected) string {
			return unless(t.Fine.ReplyRows == 0, commas(t.Fine.Replies, t.Fine.ReplyTokens))
		}},
	},
}

// timed makes a figure that only a trace with timestamps has.
func timed(of func(*inspected) string) func(*inspected) string {
	return func(t *inspected) string {
		if t.Arrivals.Missing == t.Rows {
			return ""
		}
		return of(t)
	}
}

// ranged makes a figure that only a trace with hash_ranges has: what an infinite cache hits of the rows that have them.
func ranged(of func(*stats.FineStats) string) func(*inspected) string {
	return func(t *inspected) string {
		if t.Fine.Rows == 0 {
			return ""
		}
		return of(&t.Fine)
	}
}

// arrival makes a figure of the arrivals, by its name in JSON.
func arrival(of func(*stats.ArrivalStats) string, name string) func(*inspected) string {
	return func(t *inspected) string { return unlessUndefined(t.Arrivals.Undefined, name, of(&t.Arrivals)) }
}

// lengthsInput and lengthsOutput make figures of the lengths, all of which are undefined together.
func lengthsInput(of func(*stats.LengthStats) string) func(*inspected) string {
	return sized(func(t *inspected) string { return unlessUndefined(t.Input.Undefined, "mean", of(&t.Input)) })
}

func lengthsOutput(of func(*stats.LengthStats) string) func(*inspected) string {
	return sized(func(t *inspected) string { return unlessUndefined(t.Output.Undefined, "mean", of(&t.Output)) })
}

// unlessUndefined returns a figure, or that it is undefined, where it is.
func unlessUndefined(undefined stats.UndefinedFigures, name, figure string) string {
	if undefined[name] != "" {
		return mooncake.Undefined
	}
	return figure
}

// undefinedBecause says why figures of the overview are undefined, each reason once.
func (t inspected) undefinedBecause(b *strings.Builder) {
	reasons := map[string]bool{}
	for _, of := range []stats.UndefinedFigures{t.Arrivals.Undefined, t.Input.Undefined, t.Output.Undefined, t.Blocks.Undefined, t.Sessions.Undefined} {
		for _, why := range of {
			// What no row has is a line that is left out.
			reasons[why] = reasons[why] || !strings.HasPrefix(why, "no row has")
		}
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		if reasons[why] && why != t.Unchecked {
			fmt.Fprintf(b, " undefined       %s\n", why)
		}
	}
}

// sized makes a figure that only a trace with lengths has.
func sized(of func(*inspected) string) func(*inspected) string {
	return func(t *inspected) string {
		if t.Kinds.Length == 0 {
			return ""
		}
		return of(t)
	}
}

// forest makes a figure that only a trace with a prefix forest has.
func forest(of func(*inspected) string) func(*inspected) string {
	return func(t *inspected) string {
		if t.Kinds.Length == 0 {
			return ""
		}
		if !t.Blocks.Forest {
			return mooncake.Undefined
		}
		return of(t)
	}
}

// overview is the table of all traces. A line that says nothing for any trace is left out.
func (x inspection) overview() string {
	w := term.NewTable()
	header := table.Row{""}
	columns := []table.ColumnConfig{{Number: 1, Align: text.AlignLeft}}
	for i, t := range x.Traces {
		header = append(header, t.Trace)
		columns = append(columns, table.ColumnConfig{Number: i + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	w.AppendHeader(header)
	w.SetColumnConfigs(columns)
	for _, section := range sections {
		w.AppendSeparator()
		for _, f := range section {
			row, said := table.Row{f.name}, false
			for i := range x.Traces {
				s := f.of(&x.Traces[i])
				said = said || s != ""
				row = append(row, s)
			}
			if said {
				w.AppendRow(row)
			}
		}
	}
	return w.Render() + "\n"
}

// caches is the hit curve of one trace.
func (t inspected) caches() string {
	w := term.NewTable()
	w.SetTitle("%s: what a prefix cache hits (finite ones LRU, %s)", t.Trace, t.Eviction)
	w.AppendHeader(table.Row{"capacity, blocks", "tokens", "hit blocks", "rate", "hit tokens", "rate", "full blocks hit"})
	columns := make([]table.ColumnConfig, 7)
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	w.SetColumnConfigs(columns)
	for _, c := range t.Caches {
		name, size := "infinite", ""
		if c.Capacity > 0 {
			name, size = term.Comma(int64(c.Capacity)), term.Comma(int64(c.Capacity)*int64(t.BlockSize))
		}
		w.AppendRow(table.Row{
			name, size, term.Comma(c.HitBlocks), fmt.Sprintf("%.6f", c.BlockRate),
			term.Comma(c.HitTokens), fmt.Sprintf("%.6f", c.TokenRate), term.Comma(c.FullHits),
		})
	}
	c := t.infinite()
	q := c.HitQuantiles
	s := w.Render() + "\n"
	s += fmt.Sprintf(" infinite cache: %s requests hit whole, %s not at all; hit blocks a request p50 %s, p75 %s, p90 %s, p95 %s, p99 %s, max %s;\n",
		term.Comma(c.FullyHit), term.Comma(c.NotHit), term.Comma(q[0]), term.Comma(q[1]), term.Comma(q[2]), term.Comma(q[3]), term.Comma(q[4]), term.Comma(q[5]))
	s += fmt.Sprintf(" mean hit rate a request %.6f of tokens, %.6f of blocks; only full blocks %s tokens\n",
		c.MeanTokenRate, c.MeanBlockRate, term.Comma(c.FullHitTokens))
	if c.Unknown > 0 {
		s += fmt.Sprintf(" the hits of %s requests are not known: more ids than --max-ids\n", term.Comma(c.Unknown))
	}
	return s
}

// infinite returns the figures of the infinite cache, which is the last one.
func (t inspected) infinite() stats.CacheStats { return t.Caches[len(t.Caches)-1] }

// findingsText lists digests, broken rules and notices.
func (t inspected) findingsText(b *strings.Builder) {
	d := t.Digests
	fmt.Fprintf(b, " seq_digest      %s\n tree_digest     %s\n arrival_digest  %s\n", d.Seq, d.Tree, d.Arrival)
	if d.Ranges != "" {
		fmt.Fprintf(b, " range_digest    %s\n", d.Ranges)
	}
	if d.Reason != "" {
		fmt.Fprintf(b, "   undefined because %s\n", d.Reason)
	}
	t.undefinedBecause(b)
	switch {
	case t.Unchecked != "":
		fmt.Fprintf(b, " rules           V4 to V7 not checked: %s\n", t.Unchecked)
	case len(t.Violations) == 0 && t.Fine.Rows > 0 && t.UncheckedRanges == "":
		b.WriteString(" rules V1 to V9  all kept\n")
	case len(t.Violations) == 0:
		b.WriteString(" rules V1 to V8  all kept\n")
	}
	if t.UncheckedRanges != "" {
		fmt.Fprintf(b, " rules           V9 not checked: %s\n", t.UncheckedRanges)
	}
	for _, v := range t.Violations {
		fmt.Fprintf(b, " %s broken       %s (first in line %s)\n", v.Rule, v.Text, term.Comma(v.Line))
	}
	if t.Rejected > 0 {
		kept := "--quarantine FILE keeps them"
		if t.Quarantine != "" {
			kept = "they are in " + t.Quarantine
		}
		fmt.Fprintf(b, " rejected        %s of %s rows cannot be used and are left out; %s; the first is %v\n",
			term.Comma(t.Rejected), term.Comma(t.Rejected+t.Rows), kept, t.firstRejected)
	}
	for _, n := range t.Notices {
		fmt.Fprintf(b, " notice          %s (first in line %s)\n", n.Text, term.Comma(n.Line))
	}
	if g := t.Arrivals.Grid; g.Coarse {
		fmt.Fprintf(b, " notice          the clock of the timestamps ticks every %s: a replay as recorded sends %.1f requests at once; see --spread\n",
			term.Milliseconds(g.Quantum), g.RowsPerStamp)
	}
	if t.Arrivals.Seconds {
		fmt.Fprintf(b, " notice          the timestamps look like seconds: as milliseconds they are %.0f requests a second; multiply them by 1000 if so\n",
			t.Arrivals.Rate)
	}
	if o := t.ObservedCache; o.Rows > 0 {
		fmt.Fprintf(b, " cache           %s\n", o)
		if warning := o.Warning(t.BlockSize); warning != "" {
			fmt.Fprintf(b, " warning         %s\n", warning)
		}
	}
	if t.Sessions.Rows > 0 {
		fmt.Fprintf(b, " sessions        %s\n", t.Sessions.ModeText)
	}
}

func commas(list ...int64) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = term.Comma(n)
	}
	return strings.Join(parts, "  ")
}

// unless returns s when there is something to say.
func unless(nothing bool, s string) string {
	if nothing {
		return ""
	}
	return s
}

func perSecond(tokens stats.LengthStats, ms float64) string {
	if tokens.Rows == 0 {
		return mooncake.Undefined
	}
	return humanize.CommafWithDigits(float64(tokens.Sum)/ms*1000, 0)
}

func grid(g stats.Grid) string {
	switch {
	case g.Quantum == 0:
		return "none"
	case g.Coarse:
		return fmt.Sprintf("%s, %.1f %% of gaps on it", term.Milliseconds(g.Quantum), 100*g.Share)
	}
	return term.Milliseconds(g.Quantum) + ", one row each"
}
