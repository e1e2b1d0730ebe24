// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"math"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/dustin/go-humanize"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/internal/term"
)

var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)
	good  = lipgloss.NewStyle().Foreground(lipgloss.Color("2"))
	warn  = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
	bad   = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))
	lines = lipgloss.NewStyle().Foreground(lipgloss.Color("4"))
)

const (
	labelWidth = 10
	valueWidth = 34
)

// render draws a view in eleven lines of at most width columns.
func render(v agent.View, width int) string {
	width = max(width, 20)
	rows := []string{
		bold.Render(term.Plain(v.Trace)) + faint.Render(" → ") + v.Engine + faint.Render("  "+term.Plain(v.Model)+"  run "+v.RunID),
		bar(v, width),
		row("requests", rate(v, due)+" due, "+rate(v, sent)+" sent", v, sent, width),
		row("in flight", humanize.Comma(v.InFlight), v, inFlight, width),
		row("done", fmt.Sprintf("%s served, %s", humanize.Comma(v.Served), failures(v)), v, done, width),
		row("TTFT", quantiles(v.TTFT), v, func(s agent.Second) float64 { return float64(s.TTFT.P99) }, width),
		row("gap", quantiles(v.Gap), v, func(s agent.Second) float64 { return float64(s.Gap.P99) }, width),
		row("chunks", rate(v, chunks), v, chunks, width),
		row("late", quantiles(v.Lateness), v, func(s agent.Second) float64 { return float64(s.Lateness.P99) }, width),
		label("cache") + cache(v),
		label("so far") + verdict(v),
	}
	for i, r := range rows {
		rows[i] = ansi.Truncate(r, width, "…")
	}
	return strings.Join(rows, "\n") + "\n"
}

func due(s agent.Second) float64      { return float64(s.Due) }
func sent(s agent.Second) float64     { return float64(s.Sent) }
func inFlight(s agent.Second) float64 { return float64(s.InFlight) }
func done(s agent.Second) float64     { return float64(s.Done) }
func chunks(s agent.Second) float64   { return float64(s.Chunks) }

// rate returns the count of the last whole second, as a rate.
func rate(v agent.View, of func(agent.Second) float64) string {
	if len(v.Seconds) == 0 {
		return "0/s"
	}
	return humanize.Comma(int64(of(v.Seconds[len(v.Seconds)-1]))) + "/s"
}

func label(name string) string { return faint.Render(fmt.Sprintf("%-*s", labelWidth, name)) }

// row is a name, a value, and a chart of its last seconds, as many as fit into the width.
func row(name, value string, v agent.View, of func(agent.Second) float64, width int) string {
	room := width - labelWidth - valueWidth
	pad := max(valueWidth-ansi.StringWidth(value), 1)
	return label(name) + value + strings.Repeat(" ", pad) + lines.Render(spark(v.Seconds, of, room))
}

var steps = []rune("▁▂▃▄▅▆▇█")

// spark draws values as columns, the last at the right, scaled to the greatest.
func spark(seconds []agent.Second, of func(agent.Second) float64, width int) string {
	if width <= 0 {
		return ""
	}
	seconds = seconds[max(0, len(seconds)-width):]
	most := 0.0
	for _, s := range seconds {
		most = max(most, of(s))
	}
	var b strings.Builder
	for _, s := range seconds {
		i := 0
		if most > 0 {
			i = int(math.Round(of(s) / most * float64(len(steps)-1)))
		}
		b.WriteRune(steps[min(max(i, 0), len(steps)-1)])
	}
	return b.String()
}

// bar shows how much of the run is over, and how long the rest will take.
func bar(v agent.View, width int) string {
	text := "starting"
	switch left, known := v.Left(); {
	case v.Elapsed < 0:
	case v.Stopped:
		text = v.Elapsed.Round(time.Second).String() + ", ending"
	case known:
		text = v.Elapsed.Round(time.Second).String() + ", " + left.Round(time.Second).String() + " left"
	default:
		text = v.Elapsed.Round(time.Second).String()
	}
	tail := fmt.Sprintf(" %3.0f %%  %s", 100*v.Part(), text)
	room := max(width-len(tail), 0)
	full := int(math.Round(v.Part() * float64(room)))
	return lines.Render(strings.Repeat("█", full)) + faint.Render(strings.Repeat("░", room-full)) + tail
}

func failures(v agent.View) string {
	if v.Failed == 0 {
		return good.Render("0 failed")
	}
	text := humanize.Comma(v.Failed) + " failed"
	var classes []string
	for _, e := range v.Errors {
		classes = append(classes, fmt.Sprintf("%s ×%d", e.Reason, e.Count))
	}
	if len(classes) > 0 {
		text += ": " + strings.Join(classes[:min(len(classes), 3)], ", ")
	}
	return bad.Render(text)
}

func quantiles(q agent.Quantiles) string {
	if q == (agent.Quantiles{}) {
		return faint.Render("–")
	}
	return fmt.Sprintf("p50 %-9s p99 %s", term.Duration(q.P50), term.Duration(q.P99))
}

func cache(v agent.View) string {
	if v.Prompt == 0 {
		return faint.Render("the engine has reported no cached tokens")
	}
	text := fmt.Sprintf("%.1f %% of the prompt tokens cached", 100*float64(v.Cached)/float64(v.Prompt))
	if v.Predicted > 0 {
		text += fmt.Sprintf(", %.0f %% of an infinite cache's hits", 100*float64(v.Cached)/float64(v.Predicted))
	}
	return text
}

// verdict says what the verdict would be, judging by the facts in a view: the lateness of the last seconds, and failures.
func verdict(v agent.View) string {
	ended := v.Served + v.Failed
	millis := func(d time.Duration) judge.Fact {
		return judge.KnowIf(d.Seconds()*1e3, v.Lateness != agent.Quantiles{})
	}
	result := judge.Judge(judge.Facts{
		Served: v.Served, Rows: ended, Records: ended, Scheduled: ended, Wired: ended, Streams: v.Served, Elapsed: v.Elapsed.Seconds(),
		LatenessP50: millis(v.Lateness.P50), LatenessP99: millis(v.Lateness.P99),
		FailedShare: judge.KnowIf(float64(v.Failed)/float64(max(ended, 1)), ended > 0),
	})
	switch {
	case ended == 0 || v.Served == 0 && v.Failed == 0:
		return faint.Render("nothing has ended")
	case result.Class == judge.Valid, result.Class == judge.Undecided, len(result.Reasons) == 0:
		return good.Render("on time, nothing to complain about")
	}
	style := warn
	if result.Class == judge.Invalid {
		style = bad
	}
	r := result.Reasons[0]
	return style.Render(fmt.Sprintf("%s: %s is %.3g %s, above %.3g %s", result.Class, r.Metric, r.Value, r.Unit, r.Bound, r.Unit))
}
