// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
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

// render writes the overview, with one column for each trace, and then the details of each trace.
func (x inspection) render() string {
	var b strings.Builder
	curves, ranges, potential := false, false, x.Traces[0].Potential != nil
	if !potential {
		b.WriteString(x.overview())
	}
	for n, t := range x.Traces {
		if potential {
			if n > 0 {
				b.WriteString("\n")
			}
			b.WriteString(t.potentialText())
			curves, ranges = true, false
		} else if t.infinite().Requests > 0 {
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

// granularity is the note below every hit rate table.
const granularity = `
 Hash ids do not show sharing shorter than a block. An engine has smaller
 blocks, so it hits more than these figures.
`

// finer continues the note if there are hash_ranges.
const finer = ` The lines of hash_ranges above show how much more.
`

// figure is one line of the overview. Its text is empty if the figure does not apply to a trace.
type figure struct{ name, text string }

// section is a group of lines of the overview; it has the same lines for every trace.
type section []figure

func (s *section) line(there bool, name, text string) {
	if !there {
		text = ""
	}
	*s = append(*s, figure{name, text})
}

// arrivals returns the lines about rows and their timestamps.
func (t *inspected) arrivals() (s section) {
	a := &t.Arrivals
	timed := a.Missing < t.Rows
	s.line(true, "rows", term.Comma(t.Rows))
	s.line(t.Rows != t.Kinds.Length, "rows without lengths", fmt.Sprintf("%s text, %s messages, %s payload",
		term.Comma(t.Kinds.Text), term.Comma(t.Kinds.Messages), term.Comma(t.Kinds.Payload)))
	s.line(len(t.Classes) > 0, "rows by class", t.classes())
	s.line(timed, "span", term.Milliseconds(a.Span))
	s.line(timed, "first, last timestamp", fmt.Sprintf("%s, %s ms", humanize.Commaf(a.First), humanize.Commaf(a.Last)))
	s.line(a.Missing != 0, "rows without timestamp", term.Comma(a.Missing))
	s.line(timed, "rate", orUndefined(a.Undefined["rate_per_second"], "%.4f req/s", a.Rate))
	s.line(timed, "input, output rate", orUndefined(a.Undefined["rate_per_second"], "%s, %s tok/s", perSecond(t.Input, a.Span), perSecond(t.Output, a.Span)))
	s.line(timed, "gap between rows", orUndefined(a.Undefined["gap_mean_ms"], "mean %.4f ms, CV %s", a.GapMean, orUndefined(a.Undefined["gap_cv"], "%.4f", a.GapCV)))
	s.line(timed, "distinct timestamps", orUndefined(a.Undefined["distinct_timestamps"], "%s, mean %.2f rows, max %d",
		term.Comma(a.Distinct), a.RowsPerStamp.Mean, a.RowsPerStamp.Max))
	s.line(timed, "timestamp grid", orUndefined(a.Undefined["grid"], "%s", gridText(a.Grid)))
	return s
}

// classes lists the classes of rows, those with most rows first, each with its priority if all its rows have the same.
func (t *inspected) classes() string {
	const most = 8
	all := slices.Clone(t.Classes)
	slices.SortStableFunc(all, func(a, b stats.ClassStats) int { return cmp.Compare(b.Rows, a.Rows) })
	var parts []string
	for _, c := range all[:min(len(all), most)] {
		part := fmt.Sprintf("%s %s", term.Comma(c.Rows), term.Plain(cmp.Or(c.Class, "(none)")))
		if c.Priority != nil {
			part += fmt.Sprintf(" (priority %d)", *c.Priority)
		}
		parts = append(parts, part)
	}
	if more := len(all) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}

// lengths returns the lines about the lengths of prompts and replies.
func (t *inspected) lengths() (s section) {
	for _, of := range []struct {
		name string
		*stats.LengthStats
	}{{"input tokens", &t.Input}, {"output tokens", &t.Output}} {
		for _, l := range []figure{
			{of.name, term.Comma(of.Sum)},
			{"  mean", fmt.Sprintf("%.1f", of.Mean)},
			{"  min p1 p10 p25", commas(of.Min, of.P1, of.P10, of.P25)},
			{"  p50 p75 p90", commas(of.P50, of.P75, of.P90)},
			{"  p95 p99 p99.9 max", commas(of.P95, of.P99, of.P999, of.Max)},
		} {
			s.line(t.Kinds.Length > 0, l.name, orUndefined(of.Undefined["mean"], "%s", l.text)) // all of them are undefined together
		}
	}
	return s
}

// sharing returns the lines about what prompts have in common.
func (t *inspected) sharing() (s section) {
	blocks, fine := &t.Blocks, &t.Fine
	sized, ranged := t.Kinds.Length > 0, fine.Rows > 0
	s.line(sized, "block size", term.Comma(int64(t.BlockSize))+" tokens")
	s.line(sized, "block references", term.Comma(blocks.References))
	s.line(sized, "  per row", fmt.Sprintf("mean %.4f, min %s, max %s", blocks.MeanPerRow, term.Comma(blocks.MinPerRow), term.Comma(blocks.MaxPerRow)))
	for _, l := range []figure{
		{"distinct ids", term.Comma(blocks.Distinct)},
		{"  used once, again", commas(blocks.Once, blocks.Again)},
		{"  roots", term.Comma(blocks.Roots)},
		{"  trunk (> 1 %, > 10 rows)", orUndefined(blocks.Undefined["trunk_ids"], "%s", term.Comma(blocks.Trunk))},
		{"  forks, leaves, depth", commas(blocks.Forks, blocks.Leaves, blocks.Depth)},
		{"groups of rows sharing ids", orUndefined(t.Sessions.Undefined["inferred"], "%s, %s of one row",
			term.Comma(t.Sessions.Inferred), term.Comma(t.Sessions.Single))},
	} {
		if !blocks.Forest {
			l.text = mooncake.Undefined
		}
		s.line(sized, l.name, l.text)
	}
	s.line(t.Sessions.Rows != 0, "session ids", fmt.Sprintf("%s in %s rows, mode %s",
		term.Comma(t.Sessions.Named), term.Comma(t.Sessions.Rows), t.Sessions.Mode))
	t.graphs(&s)
	s.line(sized, "minimum prefill tokens", fmt.Sprintf("%s (%.2f %%)", term.Comma(t.infinite().PrefillTokens), 100*(1-t.infinite().TokenRate)))
	s.line(ranged, "rows with hash_ranges", fmt.Sprintf("%s, blocks of %d tokens", term.Comma(fine.Rows), fine.BlockSize))
	s.line(ranged, "  tokens hit by hash_ids", fmt.Sprintf("%.2f %%", 100*fine.CoarseRate))
	s.line(ranged, "  by hash_ranges", fmt.Sprintf("%.2f %%", 100*fine.Rate))
	s.line(ranged && fine.ReplyRows != 0, "  and replies", fmt.Sprintf("%.2f %%", 100*fine.RepliesRate))
	s.line(fine.ReplyRows != 0, "rows with replies", term.Comma(fine.ReplyRows))
	s.line(fine.ReplyRows != 0, "  replies, their tokens", commas(fine.Replies, fine.ReplyTokens))
	return s
}

// graphs adds the lines about rows that wait for others.
func (t *inspected) graphs(s *section) {
	g := &t.Graphs
	about := ""
	if !g.Exact {
		about = "at least "
	}
	var sure []string
	for _, name := range []string{"link", "tool_call", "parent", "session", "time", "unknown"} { // most reliable first
		if n := g.Evidence[name]; n > 0 {
			sure = append(sure, fmt.Sprintf("%s %s", term.Comma(n), name))
		}
	}
	s.line(g.Rows > 0, "graphs, their rows, roots", about+commas(g.Graphs, g.Rows, g.Roots))
	s.line(g.Edges > 0, "  edges, by evidence", fmt.Sprintf("%s: %s", term.Comma(g.Edges), strings.Join(sure, ", ")))
	s.line(g.Rows > 0, "  longest chain, largest", about+commas(g.Longest, g.Largest))
	s.line(g.Tools > 0, "  rows after tools", fmt.Sprintf("%s, for %.0f ms on average", term.Comma(g.Tools), g.ToolWait/float64(g.Tools)))
	s.line(g.Unknown > 0, "  names of no row", term.Comma(g.Unknown))
}

// orUndefined formats a figure, or says that it is undefined if there is a reason why.
func orUndefined(why, format string, args ...any) string {
	if why != "" {
		return mooncake.Undefined
	}
	return fmt.Sprintf(format, args...)
}

// undefinedBecause explains why figures of the overview are undefined, each reason once.
func (t inspected) undefinedBecause(b *strings.Builder) {
	reasons := map[string]bool{}
	for _, of := range []stats.UndefinedFigures{t.Arrivals.Undefined, t.Input.Undefined, t.Output.Undefined, t.Blocks.Undefined, t.Sessions.Undefined} {
		for _, why := range of {
			reasons[why] = true
		}
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		// A figure that no row has is not listed: its line is left out.
		if !strings.HasPrefix(why, "no row has") && why != t.Unchecked {
			fmt.Fprintf(b, " undefined       %s\n", why)
		}
	}
}

// overview returns the table of all traces. A line that has a value for none of the traces is left out.
func (x inspection) overview() string {
	header := table.Row{""}
	traces := make([][]section, len(x.Traces))
	for i := range x.Traces {
		header = append(header, x.Traces[i].Trace)
		traces[i] = []section{x.Traces[i].arrivals(), x.Traces[i].lengths(), x.Traces[i].sharing()}
	}
	w := term.NewTable()
	w.AppendHeader(header)
	alignRight(w, 2, len(header))
	for s := range traces[0] {
		w.AppendSeparator()
		for n, f := range traces[0][s] {
			row, said := table.Row{f.name}, false
			for _, sections := range traces {
				said = said || sections[s][n].text != ""
				row = append(row, sections[s][n].text)
			}
			if said {
				w.AppendRow(row)
			}
		}
	}
	return w.Render() + "\n"
}

// alignRight aligns columns to the right, from the first to the last one, which are counted from 1.
func alignRight(w table.Writer, first, last int) {
	var columns []table.ColumnConfig
	for n := first; n <= last; n++ {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	w.SetColumnConfigs(columns)
}

// caches returns the hit curve of one trace.
func (t inspected) caches() string {
	w := term.NewTable()
	w.SetTitle("%s: what a prefix cache hits (finite ones LRU, %s)", t.Trace, t.Eviction)
	w.AppendHeader(table.Row{"capacity, blocks", "tokens", "hit blocks", "rate", "hit tokens", "rate", "full blocks hit"})
	alignRight(w, 1, 7)
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
	s := w.Render() + fmt.Sprintf("\n infinite cache: %s requests hit whole, %s not at all; hit blocks a request p50 %s, p75 %s, p90 %s, p95 %s, p99 %s, max %s;\n"+
		" mean hit rate a request %.6f of tokens, %.6f of blocks; only full blocks %s tokens\n",
		term.Comma(c.FullyHit), term.Comma(c.NotHit), term.Comma(c.HitQuantiles[0]), term.Comma(c.HitQuantiles[1]), term.Comma(c.HitQuantiles[2]),
		term.Comma(c.HitQuantiles[3]), term.Comma(c.HitQuantiles[4]), term.Comma(c.HitQuantiles[5]),
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
	say := func(there bool, label, format string, args ...any) {
		if there {
			fmt.Fprintf(b, " %-15s "+format+"\n", append([]any{label}, args...)...)
		}
	}
	brief := t.Potential != nil // only the lines about caches
	if d := t.Digests; !brief {
		say(true, "seq_digest", "%s", d.Seq)
		say(true, "tree_digest", "%s", d.Tree)
		say(true, "arrival_digest", "%s", d.Arrival)
		say(d.Ranges != "", "range_digest", "%s", d.Ranges)
		if d.Reason != "" {
			fmt.Fprintf(b, "   undefined because %s\n", d.Reason)
		}
		t.undefinedBecause(b)
	}
	ranges := 8
	if t.Fine.Rows > 0 && t.UncheckedRanges == "" {
		ranges = 9
	}
	say(t.Unchecked != "", "rules", "V4 to V7 not checked: %s", t.Unchecked)
	say(t.Unchecked == "" && len(t.Violations) == 0 && !brief, fmt.Sprintf("rules V1 to V%d", ranges), "all kept")
	say(t.UncheckedRanges != "", "rules", "V9 not checked: %s", t.UncheckedRanges)
	for _, v := range t.Violations {
		say(true, string(v.Rule)+" broken", "%s (first in line %s)", v.Text, term.Comma(v.Line))
	}
	kept := "--quarantine FILE keeps them"
	if t.Quarantine != "" {
		kept = "they are in " + t.Quarantine
	}
	say(t.Rejected > 0, "rejected", "%s of %s rows cannot be used and are rejected; %s; the first is %v",
		term.Comma(t.Rejected), term.Comma(t.Rejected+t.Rows), kept, t.firstRejected)
	for _, n := range t.Notices {
		say(true, "notice", "%s (first in line %s)", n.Text, term.Comma(n.Line))
	}
	if brief {
		return
	}
	if sample := t.Sample; sample != nil {
		say(true, "sample", "%.4g %% of the traffic, in %s groups; %s", 100*sample.Rate, orUndefined(sample.Undefined["groups"], "%s", term.Comma(sample.Groups)),
			orUndefined(sample.Undefined["token_hit_rate_standard_error"], "the share of tokens hit is that of the traffic ± %.2f points (twice the standard error)", 200*sample.StandardError))
	}
	mixed := t.Meta.MixedSampling()
	say(mixed != "", "warning", "%s", mixed)
	g := t.Arrivals.Grid
	say(g.Coarse, "notice", "the clock of the timestamps ticks every %s, so a replay sends %.1f requests at once on average; see --spread",
		term.Milliseconds(g.Quantum), g.RowsPerStamp)
	say(t.Arrivals.Seconds, "notice",
		"the timestamps look like seconds: if they were milliseconds, there would be %.0f requests a second; multiply seconds by 1000", t.Arrivals.Rate)
	if o := t.ObservedCache; o.Rows > 0 {
		warning := o.Warning(t.BlockSize)
		say(true, "cache", "%s", o)
		say(warning != "", "warning", "%s", warning)
	}
	say(t.Sessions.Rows > 0, "sessions", "%s", t.Sessions.ModeText)
}

func commas(list ...int64) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = term.Comma(n)
	}
	return strings.Join(parts, "  ")
}

func perSecond(tokens stats.LengthStats, ms float64) string {
	if tokens.Rows == 0 {
		return mooncake.Undefined
	}
	return humanize.CommafWithDigits(float64(tokens.Sum)/ms*1000, 0)
}

func gridText(g stats.Grid) string {
	switch {
	case g.Quantum == 0:
		return "none"
	case g.Coarse:
		return fmt.Sprintf("%s, %.1f %% of gaps on it", term.Milliseconds(g.Quantum), 100*g.Share)
	}
	return term.Milliseconds(g.Quantum) + ", one row each"
}
