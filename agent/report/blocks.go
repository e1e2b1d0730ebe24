// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
)

// block is a name at the left and lines at its right.
type block struct {
	name  string // not coloured
	shown string // the name as shown
	lines []string
}

const indent = 12

func writeBlock(b *strings.Builder, bl block) {
	name := bl.shown + strings.Repeat(" ", max(1, indent-len(bl.name)))
	for _, l := range bl.lines {
		for part := range strings.SplitSeq(text.WrapSoft(l, width-indent), "\n") {
			b.WriteString(strings.TrimRight(name+strings.TrimRight(part, " "), " ") + "\n")
			name = strings.Repeat(" ", indent)
		}
	}
}

// blocks returns what stands below the table; a block without lines is left out.
func (r *Report) blocks(p palette) []block {
	var list []block
	add := func(name string, lines []string) {
		if len(lines) > 0 {
			list = append(list, block{name, p.bold(name), lines})
		}
	}
	add("Rows", r.rowLines(p))
	add("Errors", reasonLines(r.figures.Errors))
	add("Skipped", reasonLines(r.figures.Skips))
	add("Goodput", r.goodputLines())
	add("Tokens", r.tokenLines())
	add("Cache", r.cacheLines())
	add("Replies", r.replyLines())
	add("Schedule", r.scheduleLines())
	add("Client", r.clientLines())
	add("Telemetry", r.telemetryLines())
	add("Warnings", r.Warnings)
	add("Missed", r.Missed)
	add("Verdict", r.verdictLines(p))
	return list
}

// manyFailed is the share of failed requests from which the table says at its first line what its figures are worth.
const manyFailed = 0.1

func (r *Report) rowLines(p palette) []string {
	n := r.figures.Rows
	line := fmt.Sprintf("%s served, %s failed, %s cancelled, %s skipped of %s",
		integer(n.Served), integer(n.Failed), integer(n.Cancelled), integer(n.Skipped), integer(n.Total))
	lines := []string{line}
	if share := float64(n.Failed) / float64(max(1, n.Served+n.Failed)); share >= manyFailed {
		// Rounded down: 99.99 % is not all.
		lines = append(lines, p.red(percent(math.Floor(share*1000)/1000)+" of the requests failed: the figures describe the "+
			integer(n.Served)+" that were served"))
	}
	if rejected := r.Trace.Filtered["rejected"]; rejected > 0 {
		lines = append(lines, p.yellow(integer(rejected)+" more of the trace could not be used and are in "+r.Trace.Quarantine))
	}
	if len(r.Run.Models) > 1 {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(r.Run.Models)) {
			parts = append(parts, fmt.Sprintf("%.64q %s", name, integer(r.Run.Models[name])))
		}
		lines = append(lines, "by model: "+strings.Join(parts, ", "))
	}
	if line := r.notReached(); line != "" {
		lines = append(lines, p.yellow(line))
	}
	if n.Retried > 0 {
		line := fmt.Sprintf("%s sent more than once, %s of them served and left out of the latencies",
			integer(n.Retried), integer(n.RetriedServed))
		if n.Resent > 0 {
			line += fmt.Sprintf("; %s because a kept connection died with the whole request", integer(n.Resent))
		}
		lines = append(lines, line)
	}
	if d, ok := r.figures.Stat(measure.Duration); ok {
		lines = append(lines, fmt.Sprintf("%s s from the first request to the last token, %s input and %s output tokens",
			grouped(d.Avg), integer(int64(r.single(measure.TotalInput))), integer(int64(r.single(measure.TotalOutput)))))
	}
	return lines
}

// notReached says how many rows of the trace the run did not come to; nothing where it came to all.
func (r *Report) notReached() string {
	switch t := r.Trace; {
	case t.AtLeast && t.NotReached == 0:
		return "the trace was not read further: how many rows it still had is unknown"
	case t.AtLeast:
		return "at least " + integer(t.NotReached) + " further rows of the trace were not reached"
	case t.NotReached == 1:
		return "1 further row of the trace was not reached"
	case t.NotReached > 0:
		return integer(t.NotReached) + " further rows of the trace were not reached"
	}
	return ""
}

func (r *Report) single(id measure.ID) float64 {
	s, _ := r.figures.Stat(id)
	return s.Avg
}

func reasonLines(reasons []measure.Reason) []string {
	var lines []string
	for _, e := range reasons {
		line := e.Reason + ": " + integer(e.Count)
		if e.Example != "" {
			line += " (first: " + e.Example + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

func (r *Report) goodputLines() []string {
	if !r.figures.SLO.Any() {
		return nil
	}
	return []string{fmt.Sprintf("%s requests (%s) within %s", integer(int64(r.single(measure.GoodCount))),
		percent(r.single(measure.GoodFraction)), strings.ReplaceAll(r.figures.SLO.String(), ",", ", "))}
}

func (r *Report) tokenLines() []string {
	t := r.figures.Tokens
	if r.figures.Rows.Served == 0 {
		return nil
	}
	agreed := func(name string, a measure.Agreements) string {
		return fmt.Sprintf("%s as asked %s, different %s, unknown %s", name, integer(a.Equal), integer(a.Different), integer(a.Unknown))
	}
	lines := []string{agreed("prompt", t.Prompt), agreed("output", t.Output)}
	if t.OutputShort > 0 {
		lines[1] += fmt.Sprintf(" (%s shorter)", integer(t.OutputShort))
	}
	for _, note := range []struct {
		n    int64
		text string
	}{
		{t.Estimated, "without usage, output tokens counted in chunks: "},
		{t.NoContent, "without content: "},
		{t.TooShort, "shorter than the chat template, sent longer than asked: "},
		{t.TailCut, "last full block cut by the chat template: "},
	} {
		if note.n > 0 {
			lines = append(lines, note.text+integer(note.n))
		}
	}
	return lines
}

func (r *Report) cacheLines() []string {
	c := r.figures.Cache
	predicted, known := r.figures.Stat(measure.PredictedTokens)
	if c.Reported == 0 && c.Refused == 0 && !known {
		return nil
	}
	line := "the server reports no cached tokens"
	if c.Reported > 0 {
		line = integer(int64(r.single(measure.TotalCached))) + " prompt tokens cached"
		if s, ok := r.figures.Stat(measure.CacheReadPct); ok {
			line += fmt.Sprintf(" (%s)", percent(s.Avg/100))
		}
	}
	if known {
		line += ", an infinite cache predicts " + integer(int64(predicted.Sum))
	}
	if c.Realisation >= 0 {
		line += ": " + percent(c.Realisation) + " realised"
	}
	lines := []string{line}
	if c.Within+c.Less+c.More > 0 {
		lines = append(lines, fmt.Sprintf("by request, in blocks of %s: %s equal, %s within a block, %s less (evicted, or on another replica), %s more (template, or a warm cache)",
			integer(c.Block), integer(c.Equal), integer(c.Within), integer(c.Less), integer(c.More)))
	}
	if c.Refused > 0 {
		lines = append(lines, integer(c.Refused)+" replies name more cached tokens than their prompt has; they count as unknown")
	}
	if p := c.Production; p.InputTokens > 0 {
		share := func(tokens int64) string { return percent(float64(tokens) / float64(p.InputTokens)) }
		lines = append(lines, fmt.Sprintf("of the %s requests that production counted, its engine had %s cached, this one %s",
			integer(p.Requests), share(p.Production), share(p.Replay)))
	}
	return lines
}

// replyLines says what stood in the prompts where the trace had replies of earlier rows.
func (r *Report) replyLines() []string {
	n := r.figures.Replies
	if n.Needed == 0 {
		return nil
	}
	line := fmt.Sprintf("%s places in later prompts, %s with the live reply", integer(n.Needed), integer(n.Carried))
	if share, ok := n.CarriedShare(); ok {
		line += fmt.Sprintf(" (%s tokens, %s)", integer(n.CarriedTokens), percent(share))
	}
	lines := []string{line}
	var why []string
	for _, e := range n.Invented {
		why = append(why, inventedWords[e.Reason]+" "+integer(e.Count))
	}
	if len(why) > 0 {
		lines = append(lines, "invented words in the others: "+strings.Join(why, ", "))
	}
	return lines
}

// inventedWords names why words were invented for people who have not read the documentation.
var inventedWords = map[string]string{
	carry.Late:      "not there in time",
	carry.Failed:    "earlier request failed or skipped",
	carry.Length:    "another length",
	carry.Text:      "text of other tokens",
	carry.Unchecked: "cannot be checked",
	carry.Evicted:   "given up for memory",
	carry.NoRoom:    "no room beside the chat template",
	carry.Shard:     "in another shard",
	carry.NotSent:   "earlier row not replayed",
	carry.Off:       "not carried",
}

func (r *Report) scheduleLines() []string {
	s := r.figures.Schedule
	var lines []string
	quantiles := func(name string, id measure.ID) {
		if st, ok := r.figures.Stat(id); ok {
			lines = append(lines, fmt.Sprintf("%s p50 %s, p99 %s, max %s ms", name, fine(st.P50), fine(st.P99), fine(st.Max)))
		}
	}
	quantiles("lateness", measure.Lateness)
	if s.Scheduled > 0 {
		lines[0] += fmt.Sprintf("; over 1 ms %s, 10 ms %s, 100 ms %s", integer(s.Over1), integer(s.Over10), integer(s.Over100))
		lines = append(lines, fmt.Sprintf("drift %s ± %s µs/s; rows per %s, intended against sent, differ by at most %s",
			fine(s.Drift.Slope), fine(s.Drift.StdErr), s.WindowWidth, integer(s.WindowDiff)))
	}
	quantiles("wire lag", measure.WireLag)
	if s.CapWaits > 0 {
		quantiles(integer(s.CapWaits)+" rows waited for the concurrency cap:", measure.CapWait)
	}
	return lines
}

func (r *Report) clientLines() []string {
	var lines, parts []string
	m, f := r.Machine, r.figures
	if m.CPUShare != nil {
		parts = append(parts, "CPU "+percent(*m.CPUShare))
	}
	if m.Elapsed > 0 {
		parts = append(parts, fmt.Sprintf("hiccups %s, %s of the time, max %s ms", integer(m.Hiccups), percent(m.HiccupTime/m.Elapsed), fine(m.HiccupMax)),
			fmt.Sprintf("GC pauses %s, max %s ms", integer(m.GCPauses), fine(m.GCPauseMax)))
	}
	if m.Throttled != nil && *m.Throttled > 0 {
		parts = append(parts, "throttled "+fine(*m.Throttled)+" ms")
	}
	if len(parts) > 0 {
		lines, parts = append(lines, strings.Join(parts, "; ")), nil
	}
	if share, ok := f.Chunks.CoalescedShare(); ok {
		parts = append(parts, "coalesced gaps "+percent(share))
	}
	if f.Chunks.Streams > 0 {
		parts = append(parts, "kernel-stamped streams "+percent(float64(f.Chunks.KernelStamps)/float64(f.Chunks.Streams)))
	}
	if share, ok := f.Connections.ReuseRatio(); ok {
		parts = append(parts, "connections reused "+percent(share))
	}
	if n := f.Connections.Replays; n > 0 {
		parts = append(parts, integer(n)+" of them had died")
	}
	if len(parts) > 0 {
		lines = append(lines, strings.Join(parts, "; "))
	}
	if n := f.Connections.WireLate; n > 0 {
		lines = append(lines, fmt.Sprintf("%s of %s requests were answered before the instant of their last byte was taken: they are in no figure from the wire",
			integer(n), integer(f.Connections.Requests)))
	}
	return lines
}

func (r *Report) telemetryLines() []string {
	t := r.Telemetry
	if !t.Enabled {
		return []string{"off"}
	}
	line := fmt.Sprintf("spans %s ended, %s accepted, %s lost", integer(t.SpansEnded), integer(t.SpansAccepted), integer(t.Lost()))
	var whys []string
	for _, why := range slices.Sorted(maps.Keys(t.SpansLost)) {
		whys = append(whys, why+": "+integer(t.SpansLost[why]))
	}
	if len(whys) > 0 {
		line += " (" + strings.Join(whys, ", ") + ")"
	}
	lines := []string{line}
	if t.SpansSampled > 0 {
		lines = append(lines, integer(t.SpansSampled)+" spans dropped by the sampler: the spans are incomplete by request")
	}
	if t.EventsDropped > 0 {
		lines = append(lines, integer(t.EventsDropped)+" span events dropped by a limit")
	}
	return append(lines, fmt.Sprintf("metric exports %s, %s failed", integer(t.MetricExports), integer(t.MetricExportsFailed)))
}

func (r *Report) verdictLines(p palette) []string {
	paint := [...]func(string) string{judge.Valid: p.green, judge.Undecided: p.yellow, judge.Degraded: p.yellow, judge.Invalid: p.red}
	lines := []string{paint[r.Verdict.Class](r.Verdict.Class.String())}
	for _, reason := range r.Verdict.Reasons {
		class := reason.Class.String()
		if reason.Class == judge.Valid {
			class = "note"
		}
		lines = append(lines, class+": "+reason.String())
	}
	for _, lack := range r.Verdict.TooFew {
		lines = append(lines, "too few: "+lack.String())
	}
	if len(r.Verdict.Unknown) > 0 {
		lines = append(lines, "not measured: "+strings.Join(r.Verdict.Unknown, ", "))
	}
	return lines
}

func percent(share float64) string { return fmt.Sprintf("%.4g %%", 100*share) }

// fine writes a number with three significant digits, from 1000 on as a whole number.
func fine(v float64) string {
	if math.Abs(v) >= 1000 {
		return integer(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
