// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/moonloop/moonloop/agent/measure"
)

// view is the data of the template.
type view struct {
	Policy          string
	Style           template.CSS
	Library, Script template.JS
	Data            template.JS

	Title     string
	Subtitle  string
	Class     string // of the verdict; "killed" for a run that did not end
	Headline  string
	Reasons   []reason
	Notes     []string
	Missed    []string
	Warnings  []string
	Steady    string // says that the tiles and figures cover a part of the run; empty: they cover all of it
	Tiles     []tile
	Figures   []row
	Parts     []partsTable
	Errors    []failure
	Slow      []slowTable
	Details   []detail
	Command   string
	Sampled   string
	HasCached bool
	Served    int64
}

// tile is one of the figures at the top.
type tile struct{ Name, Value, Unit, Note string }

type failure struct {
	Outcome, Class, Example string
	Count                   int64
}

type slowTable struct {
	ID, Name string
	Rows     []slow
}

type detail struct{ Name, Value string }

var headlines = map[string]string{
	"valid":     "Valid: the figures are the engine's",
	"undecided": "Too few requests to judge",
	"degraded":  "Degraded: usable, with the reasons below",
	"invalid":   "Invalid: this run did not measure what was asked",
	"killed":    "This run did not end: the page shows what was measured until then",
}

func (r *Run) view() *view {
	s := &r.summary
	v := &view{
		Title: filepath.Base(cmp.Or(s.Trace.Name, r.dir)), Class: s.Verdict.Class, Reasons: s.Verdict.Reasons,
		Missed: s.Missed, Warnings: s.Warnings, Command: s.Run.Command, Tiles: r.tiles(), Figures: r.rows(), Parts: r.parts(), Errors: r.failures(),
		Slow: []slowTable{
			{"slow-ttft", "by time to first token, from the scheduled time", r.byTTFT.rows},
			{"slow-total", "by latency, from the scheduled time", r.byTotal.rows},
		},
		Details: r.details(), HasCached: !r.uncached.empty(), Served: r.served,
	}
	if r.killed {
		v.Class = "killed"
		v.Notes = append(v.Notes, "Only requests that had ended are known: rates and requests in flight before the end are too low.")
	}
	if s.Steady != nil {
		v.Steady = s.Steady.describe(s.SLO)
	}
	v.Headline = cmp.Or(headlines[v.Class], v.Class)
	for _, lack := range s.Verdict.TooFew {
		v.Notes = append(v.Notes, "too few: "+lack.String())
	}
	if len(s.Verdict.Unknown) > 0 {
		v.Notes = append(v.Notes, "not measured: "+strings.Join(s.Verdict.Unknown, ", "))
	}
	if breaks := s.breaks(); breaks != "" {
		v.Notes = append(v.Notes, breaks)
	}
	if s.Cancelled {
		v.Notes = append(v.Notes, fmt.Sprintf("The run was stopped early; %s rows of the trace were not reached.", humanize.Comma(s.Trace.NotReached)))
	}
	var about []string
	for _, part := range []string{s.Run.Model, s.Run.Target, s.Run.Endpoint} {
		if part != "" {
			about = append(about, part)
		}
	}
	if !s.Start.IsZero() {
		about = append(about, s.Start.UTC().Format("2006-01-02 15:04:05 MST"))
	}
	v.Subtitle = strings.Join(about, " · ")
	return v
}

// tiles returns the figures that people look for first.
func (r *Run) tiles() []tile {
	s := &r.summary
	served, requests, realised := r.served, r.requests, ""
	if x := s.Fidelity.Cache.Realisation; x != nil {
		realised = number(100**x) + " % of an infinite cache's hits"
	}
	if s.Steady != nil {
		served, requests = s.Steady.Rows.Served, s.Steady.Rows.Total
		realised = "" // it covers the whole run
	}
	tiles := []tile{{
		"Requests served", humanize.Comma(served), "of " + humanize.Comma(requests), "",
	}}
	add := func(name string, id measure.ID, scale float64, unit, note string) {
		if value := r.figures[id].Avg; value != nil {
			tiles = append(tiles, tile{name, number(scale * *value), unit, note})
		}
	}
	duration := func(name string, id measure.ID) {
		if f := r.figures[id]; f.P50 != nil && f.P99 != nil {
			half, most := split(*f.P50), split(*f.P99)
			tiles = append(tiles, tile{name, half[0], half[1] + " p50", most[0] + " " + most[1] + " p99"})
		}
	}
	duration("Time to first token", measure.TTFT)
	duration("Inter-token latency", measure.ITL)
	duration("Request latency", measure.Latency)
	add("Output", measure.TokenThroughput, 1, "tokens/s", "")
	add("Requests", measure.RequestThroughput, 1, "per second", "")
	add("Prompt tokens cached", measure.CacheReadPct, 1, "%", realised)
	add("Good requests", measure.GoodFraction, 100, "%", "within "+s.SLO)
	add("Peak concurrency", measure.PeakConcurrency, 1, "requests", "")
	duration("Lateness", measure.Lateness)
	return tiles
}

// split formats a duration in ms as a number with a suitable unit.
func split(ms float64) [2]string {
	switch {
	case ms >= 1000:
		return [2]string{number(ms / 1000), "s"}
	case ms < 0.1 && ms > 0:
		return [2]string{number(ms * 1000), "µs"}
	}
	return [2]string{number(ms), "ms"}
}

// failures lists the results of the requests that were not served, most frequent first, each with an example from the summary.
func (r *Run) failures() []failure {
	examples := map[string]string{}
	for _, e := range r.summary.Errors {
		examples[e.Details.Type] = e.Details.Message
	}
	var list []failure
	for why, n := range r.outcomes {
		outcome, class, _ := strings.Cut(why, "\x00")
		if outcome != "served" {
			list = append(list, failure{outcome, class, examples[class], n})
		}
	}
	slices.SortFunc(list, func(a, b failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Class, b.Class))
	})
	return list
}

func (r *Run) details() []detail {
	s := &r.summary
	var list []detail
	add := func(name, value string) {
		if value != "" {
			list = append(list, detail{name, value})
		}
	}
	add("Run", s.Run.ID)
	for _, name := range slices.Sorted(maps.Keys(s.Run.Labels)) {
		add("Label "+name, s.Run.Labels[name])
	}
	version := s.Run.Version
	if !strings.HasSuffix(version, s.Run.Platform) { // the command's version ends with it
		version = strings.TrimSpace(version + " " + s.Run.Platform)
	}
	add("Version", version)
	if !s.End.IsZero() && !s.Start.IsZero() {
		add("Duration", s.End.Sub(s.Start).Round(100*time.Millisecond).String())
	}
	if s.Trace.Name != "" {
		add("Trace", s.Trace.Name)
		add("Sequence digest", s.Trace.SeqDigest)
		add("Tree digest", s.Trace.TreeDigest)
		add("Arrival digest", s.Trace.ArrivalDigest)
		if s.Trace.BlockSize > 0 {
			add("Block size", fmt.Sprintf("%d tokens", s.Trace.BlockSize))
		}
	}
	if s.Schedule.Mode != "" {
		mode := strings.ReplaceAll(s.Schedule.Mode, "_", " ")
		if s.Schedule.RequestRate > 0 {
			mode = fmt.Sprintf("%s requests per second, %s", number(s.Schedule.RequestRate), s.Schedule.Arrival)
			if s.Schedule.Users > 0 {
				mode += fmt.Sprintf(", from %d users in turn", s.Schedule.Users)
			}
			if s.Schedule.Burstiness > 0 {
				mode += " of burstiness " + number(s.Schedule.Burstiness)
			}
			if s.Schedule.RampUp > 0 {
				mode += fmt.Sprintf(", ramped from %s within %s s", number(s.Schedule.RampFrom), number(s.Schedule.RampUp/1e3))
			}
		}
		if s.Schedule.RequestRate == 0 && s.Schedule.Speedup > 0 && s.Schedule.Speedup != 1 {
			mode += fmt.Sprintf(", %s times as fast", number(s.Schedule.Speedup))
		}
		if s.Schedule.Concurrency > 0 {
			mode += fmt.Sprintf(", at most %d at once", s.Schedule.Concurrency)
			if s.Schedule.ConcurrencyRampUp > 0 {
				mode += fmt.Sprintf(", rising from 1 within %s s", number(s.Schedule.ConcurrencyRampUp/1e3))
			}
		}
		if s.Schedule.Shard != "" {
			mode += ", shard " + s.Schedule.Shard
		}
		add("Schedule", mode)
	}
	if t := s.Fidelity.Tokens; t.Prompt != (agreement{}) {
		add("Prompt tokens as asked", agreed(t.Prompt))
		add("Output tokens as asked", agreed(t.Output))
	}
	if m := s.Fidelity.Machine; m.Elapsed > 0 {
		hiccups := fmt.Sprintf("%s in which the machine did not run the client; %s %% of the time; at most %s ms",
			humanize.Comma(m.Hiccups), number(100*m.HiccupTime/m.Elapsed), number(m.HiccupMax))
		add("Hiccups", hiccups)
		if m.CPUShare != nil {
			add("CPU of the client", fmt.Sprintf("%s %% of %d processors", number(100**m.CPUShare), s.Run.CPUs))
		}
	}
	if s.Telemetry.Enabled {
		add("Spans accepted", fmt.Sprintf("%s of %s", humanize.Comma(s.Telemetry.SpansAccepted), humanize.Comma(s.Telemetry.SpansEnded)))
	}
	return list
}

func agreed(a agreement) string {
	return fmt.Sprintf("%s requests; different: %s; unknown: %s", humanize.Comma(a.Equal), humanize.Comma(a.Different), humanize.Comma(a.Unknown))
}
