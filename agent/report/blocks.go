// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/internal/term"
)

// indent is the width of the names at the left of the lines.
const indent = 12

// blocks writes the lines below the table; a block without lines is left out.
func (r *Report) blocks(b *strings.Builder, width int, p palette) {
	for _, block := range []struct {
		name  string
		lines block
	}{
		{"Labels", r.labelLines()},
		{"Steady", r.steadyLines()},
		{"Rows", r.rowLines(p)},
		{"Errors", reasonLines(r.figures.Errors)},
		{"Skipped", reasonLines(r.figures.Skips)},
		{"Goodput", r.goodputLines()},
		{"Tokens", r.tokenLines()},
		{"Engines", r.engineLines()},
		{"Classes", r.classLines()},
		{"Cache", r.cacheLines()},
		{"Replies", r.replyLines()},
		{"Schedule", r.scheduleLines()},
		{"Client", r.clientLines()},
		{"Telemetry", r.telemetryLines()},
		{"Warnings", plainLines(r.Warnings)},
		{"Missed", plainLines(r.Missed)},
		{"Verdict", r.verdictLines(p)},
	} {
		left := p.bold(block.name) + strings.Repeat(" ", indent-len(block.name))
		for _, line := range block.lines {
			b.WriteString(term.Hang(width, left, line))
			left = strings.Repeat(" ", indent)
		}
	}
}

// block has the lines next to a name.
type block []string

func (b *block) add(format string, args ...any) { *b = append(*b, words(format, args...)) }

// plainLines returns texts that may quote others, such as the answer of a telemetry receiver.
func plainLines(texts []string) (b block) {
	for _, text := range texts {
		b = append(b, term.Plain(text))
	}
	return b
}

// when adds a line if a condition holds.
func (b *block) when(ok bool, format string, args ...any) {
	if ok {
		b.add(format, args...)
	}
}

// words formats a text as fmt.Sprintf does, but with thousands separators in counts (int64), whose verb is %v.
func words(format string, args ...any) string {
	for i, arg := range args {
		if n, ok := arg.(int64); ok {
			args[i] = integer(n)
		}
	}
	return fmt.Sprintf(format, args...)
}

// wordsWhen returns the result of [words] if ok is true, else an empty text.
func wordsWhen(ok bool, format string, args ...any) string {
	if !ok {
		return ""
	}
	return words(format, args...)
}

// tally lists counts in the order of their names. The format has one name and its count.
func tally(format string, of map[string]int64) string {
	var parts block
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts.add(format, name, of[name])
	}
	return strings.Join(parts, ", ")
}

// labelLines returns a line for each name and value that the caller gave the run.
func (r *Report) labelLines() (b block) {
	for _, name := range slices.Sorted(maps.Keys(r.Run.Labels)) {
		b.add("%s", term.Plain(name+"="+r.Run.Labels[name]))
	}
	return b
}

// manyFailed is the minimum share of failed requests with which the table begins with a warning about its figures.
const manyFailed = 0.1

// almostAll is the greatest share that is shown if it is not all: 99.999 % would be rounded to 100 %.
const almostAll = 0.9999

func (r *Report) rowLines(p palette) (b block) {
	n := r.figures.Rows
	b.add("%v served, %v failed, %v cancelled, %v skipped of %v", n.Served, n.Failed, n.Cancelled, n.Skipped, n.Total)
	b.when(n.Disconnected > 0, "%v more disconnected on purpose (--cancel-share)", n.Disconnected)
	share := float64(n.Failed) / float64(max(1, n.Served+n.Failed))
	shown := share
	if n.Served > 0 {
		shown = min(share, almostAll)
	}
	b.when(share >= manyFailed, p.red("%s of the requests failed: the figures describe the %v that were served"),
		percent(shown), n.Served)
	rejected := r.Trace.Filtered["rejected"]
	b.when(rejected > 0, p.yellow("%v more rows of the trace were rejected; they are in %s"), rejected, r.Trace.Quarantine)
	b.when(len(r.Run.Models) > 1, "by model: %s", tally("%.64q %v", r.Run.Models))
	line := r.notReached()
	b.when(line != "", "%s", p.yellow(line))
	b.when(n.Retried > 0, "%v sent more than once, %v of them served and left out of the latencies%s", n.Retried, n.RetriedServed,
		wordsWhen(n.Resent > 0, "; %v because a kept connection died with the whole request", n.Resent))
	b.when(n.Reconnected > 0, "%v more got a connection at a later attempt only, or never; no latency includes them", n.Reconnected)
	d, ok := r.figures.Stat(measure.Duration)
	tokens := words("%v input tokens", r.count(measure.TotalInput))
	if _, generated := r.figures.Stat(measure.TotalOutput); generated {
		tokens = words("%v input and %v output tokens", r.count(measure.TotalInput), r.count(measure.TotalOutput))
	}
	b.when(ok, "%s s from the first request to the last token, %s", grouped(d.Avg), tokens)
	return b
}

// notReached describes how many rows of the trace the run did not reach; empty if it reached all.
func (r *Report) notReached() string {
	switch t := r.Trace; {
	case t.AtLeast && t.NotReached == 0:
		return "the trace was not read further; the number of its remaining rows is unknown"
	case t.AtLeast:
		return "at least " + integer(t.NotReached) + " further rows of the trace were not reached"
	case t.NotReached == 1:
		return "1 further row of the trace was not reached"
	case t.NotReached > 0:
		return integer(t.NotReached) + " further rows of the trace were not reached"
	}
	return ""
}

// count returns a figure of the run that is one whole number, 0 if it was not measured.
func (r *Report) count(id measure.ID) int64 { return wholeNumber(r.figures, id) }

func wholeNumber(f *measure.Figures, id measure.ID) int64 {
	s, _ := f.Stat(id)
	return int64(s.Avg)
}

// steadyLines describes the part of the run that the table covers, if a part was requested.
func (r *Report) steadyLines() (b block) {
	b.when(r.NoSteady, "none, see Warnings: the table covers the whole run, ramp-up and drain included")
	if r.Steady == nil {
		return b
	}
	w, n := r.Steady.Window, r.Steady.figures.Rows
	b.add("the table%s covers %s to %s s of the schedule: %v requests that were sent then, %v served, %v failed",
		wordsWhen(r.figures.SLO.Any(), ", with the goodput,"), fine(w.From/1000), fine(w.To/1000), n.Total, n.Served, n.Failed)
	b.add("a median of %v in flight, at most %v; the other lines here cover the whole run, ramp-up and drain included", w.Level, w.Peak)
	return b
}

func reasonLines(reasons []measure.Reason) (b block) {
	for _, e := range reasons {
		b.add("%s: %v%s", term.Plain(e.Reason), e.Count, wordsWhen(e.Example != "", " (first: %s)", term.Plain(e.Example)))
	}
	return b
}

func (r *Report) goodputLines() (b block) {
	slo := r.figures.SLO
	fraction, _ := r.Shown().Stat(measure.GoodFraction)
	missed := r.Shown().Rows.CutOffMissed
	b.when(slo.Any(), "%v requests (%s) within %s%s",
		wholeNumber(r.Shown(), measure.GoodCount), percent(fraction.Avg), strings.ReplaceAll(slo.String(), ",", ", "),
		wordsWhen(missed > 0, "; %v were cancelled after they had missed it, and count as not good", missed))
	return b
}

func (r *Report) tokenLines() (b block) {
	t := r.figures.Tokens
	if r.figures.Rows.Served == 0 {
		return nil
	}
	b.add("prompt as asked %v, different %v, unknown %v", t.Prompt.Equal, t.Prompt.Different, t.Prompt.Unknown)
	b.when(t.Embeddings > 0, "embeddings: %v; nothing was generated", t.Embeddings)
	b.when(t.Embeddings < r.figures.Rows.Served, "output as asked %v, different %v, unknown %v%s", t.Output.Equal, t.Output.Different, t.Output.Unknown,
		wordsWhen(t.OutputShort > 0, " (%v shorter)", t.OutputShort))
	b.when(t.PromptEstimated > 0, "without usage, prompt tokens as the row asks: %v", t.PromptEstimated)
	b.when(t.Estimated > 0, "without usage, output tokens counted in chunks: %v", t.Estimated)
	b.when(t.Uncounted > 0, "not streamed and without usage, so that the number of output tokens is not known: %v; no figure of output tokens includes them", t.Uncounted)
	b.when(t.NoContent > 0, "without content: %v", t.NoContent)
	b.when(t.TooShort > 0, "shorter than the chat template, sent longer than asked: %v", t.TooShort)
	b.when(t.TailCut > 0, "prompts without their last block, to make room for the chat template: %v", t.TailCut)
	return b
}

func (r *Report) cacheLines() (b block) {
	c := r.figures.Cache
	predicted, known := r.figures.Stat(measure.PredictedTokens)
	if c.Reported == 0 && c.Refused == 0 && !known {
		return nil
	}
	line := "the server reports no cached tokens" + wordsWhen(known, ", an infinite cache would have %v", int64(predicted.Sum))
	if c.Reported > 0 {
		share, ok := r.figures.Stat(measure.CacheReadPct)
		line = words("%v prompt tokens cached%s", r.count(measure.TotalCached), wordsWhen(ok, " (%s)", percent(share.Avg/100)))
	}
	if c.Compared > 0 { // both numbers of a percentage are about the same requests
		of := wordsWhen(c.Compared < c.Reported, " %v where", c.ComparedCached)
		line += words(",%s an infinite cache would have %v", of, c.ComparedPredicted)
	}
	b.add("%s%s", line, wordsWhen(c.Realisation >= 0, ": %s realised", percent(c.Realisation)))
	b.when(c.Reported > 0 && c.Compared < c.Predicted, "requests left out, because their replies have no number of cached tokens: %v", c.Predicted-c.Compared)
	b.when(c.Within+c.Less+c.More > 0, "by request, in blocks of %v: %v equal, %v within a block, "+
		"%v less (evicted, or on another replica), %v more (template, or a warm cache)", c.Block, c.Equal, c.Within, c.Less, c.More)
	b.when(c.Refused > 0, "%v replies report more cached tokens than their prompt has; these count as unknown", c.Refused)
	p := c.Production
	share := func(tokens int64) string { return percent(float64(tokens) / float64(p.InputTokens)) }
	b.when(p.InputTokens > 0, "for the %v requests with counts from production: %s of the prompt tokens cached there, %s here",
		p.Requests, share(p.Production), share(p.Replay))
	return b
}

// replyLines describes what prompts contained where the trace has replies of earlier rows.
func (r *Report) replyLines() (b block) {
	n := r.figures.Replies
	share, ok := n.CarriedShare()
	b.when(n.Needed > 0, "%v replies in later prompts, %v of them live%s", n.Needed, n.Carried,
		wordsWhen(ok, " (%v tokens, %s)", n.CarriedTokens, percent(share)))
	var why block
	for _, e := range n.Invented {
		why.add("%s %v", inventedWords[e.Reason], e.Count)
	}
	b.when(len(why) > 0, "invented words for the others: %s", strings.Join(why, ", "))
	return b
}

// inventedWords are the reasons for invented words, for people who have not read the documentation.
var inventedWords = map[string]string{
	carry.Late:      "not complete in time",
	carry.Failed:    "earlier request failed or skipped",
	carry.Length:    "a reply of another length",
	carry.Text:      "a text with another number of tokens",
	carry.Unchecked: "cannot be checked",
	carry.Evicted:   "dropped to save memory",
	carry.NoRoom:    "no room in addition to the chat template",
	carry.Shard:     "in another shard",
	carry.NotSent:   "earlier row not replayed",
	carry.Broken:    "lost when the run was cut short",
	carry.Off:       "not carried",
}

// engineLines returns a line for each engine, if there are several.
func (r *Report) engineLines() (b block) {
	for _, e := range r.figures.Servers {
		b = append(b, partLine(term.Plain(e.Server), e.PartFigures))
	}
	return b
}

// classLines returns a line for each class, if rows have classes.
func (r *Report) classLines() (b block) {
	for _, c := range r.figures.Classes {
		name := className(c.Class)
		if c.Priority != nil {
			name += fmt.Sprintf(" (priority %d)", *c.Priority)
		}
		b = append(b, partLine(name, c.PartFigures))
	}
	return b
}

// className returns the name of a class for people; traces can have any names.
func className(class string) string { return cmp.Or(term.Plain(class), "(none)") }

// partLine returns a line about a part of the requests.
func partLine(name string, f measure.PartFigures) string {
	line := words("%s: %v requests, %v served, %v failed", name, f.Rows.Total, f.Rows.Served, f.Rows.Failed)
	if f.TTFT.Count > 0 {
		line += fmt.Sprintf("; TTFT p50 %s, p99 %s ms", fine(f.TTFT.P50), fine(f.TTFT.P99))
	}
	if judged := f.Rows.Judged(); f.Good != nil && judged > 0 {
		line += "; " + percent(float64(*f.Good)/float64(judged)) + " within the service level"
	}
	if f.PromptTokens > 0 {
		line += "; " + percent(float64(f.CachedTokens)/float64(f.PromptTokens)) + " of the prompt tokens cached"
	}
	return line
}

func (r *Report) scheduleLines() (b block) {
	s := r.figures.Schedule
	quantiles := func(name string, id measure.ID, more string) {
		st, ok := r.figures.Stat(id)
		b.when(ok, "%s p50 %s, p99 %s, max %s ms%s", name, fine(st.P50), fine(st.P99), fine(st.Max), more)
	}
	quantiles("lateness", measure.Lateness, words("; over 1 ms %v, 10 ms %v, 100 ms %v", s.Over1, s.Over10, s.Over100))
	b.when(s.Scheduled > 0, "drift %s ± %s µs/s; rows per %s, intended against sent, differ by at most %v",
		fine(s.Drift.Slope), fine(s.Drift.StdErr), s.WindowWidth, s.WindowDiff)
	quantiles("wire lag", measure.WireLag, "")
	if s.CapWaits > 0 {
		quantiles(integer(s.CapWaits)+" rows waited for the concurrency cap:", measure.CapWait, "")
	}
	return b
}

func (r *Report) clientLines() (b block) {
	m, chunks, connections := r.Machine, r.figures.Chunks, r.figures.Connections
	var machine, streams block
	if m.CPUShare != nil {
		machine.add("CPU %s", percent(*m.CPUShare))
	}
	machine.when(m.Elapsed > 0, "hiccups %v, %s of the time, max %s ms", m.Hiccups, percent(m.HiccupTime/m.Elapsed), fine(m.HiccupMax))
	machine.when(m.Elapsed > 0, "GC pauses %v, max %s ms", m.GCPauses, fine(m.GCPauseMax))
	if m.Throttled != nil && *m.Throttled > 0 {
		machine.add("throttled %s ms", fine(*m.Throttled))
	}
	share, ok := chunks.CoalescedShare()
	streams.when(ok, "coalesced gaps %s", percent(share))
	streams.when(chunks.Streams > 0, "kernel-stamped streams %s", percent(float64(chunks.KernelStamps)/float64(chunks.Streams)))
	share, ok = connections.ReuseRatio()
	streams.when(ok, "connections reused %s", percent(share))
	streams.when(connections.Replays > 0, "%v of them had died", connections.Replays)

	b.when(len(machine) > 0, "%s", strings.Join(machine, "; "))
	b.when(len(streams) > 0, "%s", strings.Join(streams, "; "))
	b.when(connections.WireLate > 0, "%v of %v requests were answered before the time of their last byte was recorded: "+
		"no figure from the wire includes them", connections.WireLate, connections.Requests)
	return b
}

func (r *Report) telemetryLines() (b block) {
	t := r.Telemetry
	if !t.Enabled {
		return block{"off"}
	}
	b.add("spans %v ended, %v accepted, %v lost%s", t.SpansEnded, t.SpansAccepted, t.Lost(),
		wordsWhen(len(t.SpansLost) > 0, " (%s)", tally("%s: %v", t.SpansLost)))
	b.when(t.SpansSampled > 0, "%v spans dropped by the sampler, as configured", t.SpansSampled)
	b.when(t.EventsDropped > 0, "%v span events dropped by a limit", t.EventsDropped)
	b.add("metric exports %v, %v failed", t.MetricExports, t.MetricExportsFailed)
	return b
}

func (r *Report) verdictLines(p palette) (b block) {
	v := r.Verdict
	paint := [...]func(string) string{judge.Valid: p.green, judge.Undecided: p.yellow, judge.Degraded: p.yellow, judge.Invalid: p.red}
	b.add("%s", paint[v.Class](v.Class.String()))
	for _, reason := range v.Reasons { // those of a merged run come from the files of its shards
		class := reason.Class.String()
		if reason.Class == judge.Valid {
			class = "note"
		}
		b.add("%s: %s", class, term.Plain(reason.String()))
	}
	for _, lack := range v.TooFew {
		b.add("too few: %s", lack)
	}
	b.when(len(v.Unknown) > 0, "not measured: %s", term.Plain(strings.Join(v.Unknown, ", ")))
	return b
}

func percent(share float64) string { return fmt.Sprintf("%.4g %%", 100*share) }

// fine writes a number with three significant digits, from 1000 on as a whole number.
func fine(v float64) string {
	if math.Abs(v) >= 1000 {
		return integer(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
