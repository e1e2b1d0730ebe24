// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// maxSlowest is the maximum number of rows of a table of the slowest requests.
const maxSlowest = 15

// slow is one of the slowest requests. Durations are in ms.
type slow struct {
	Row      int64
	Turn     int
	Model    string
	At       float64 // scheduled time, ms on the run's clock
	Late     float64 // scheduled time to dispatch
	Wait     float64 // for a free slot
	Prefill  float64 // wire, or if that is not known start, to first token; -1 without a stream
	Decode   float64 // first to last token; -1 without a stream
	Whole    float64 // wire to the end of a reply without a stream
	TTFT     float64 // from the scheduled time; -1 without a stream
	Total    float64 // from the scheduled time to the end
	Gap      float64 // the longest between two chunks
	Prompt   int64
	Uncached int64 // prompt tokens that the engine had to compute; -1: not known
	Reply    int64 // output tokens; -1: not known
	TraceID  string

	// Set by [Run.explain].
	Why       string
	Phases    []phase
	Elsewhere string // link to its trace
}

// phase is a part of the bar that shows where a request spent its time. X and Width are in hundredths of the bar.
type phase struct {
	Name     string
	X, Width float64
}

// streamed reports whether the reply had a first token before its end.
func (s *slow) streamed() bool { return s.TTFT >= 0 }

// phases divides the bar of a request. whole is the duration that a bar of full length stands for.
func (s *slow) phases(whole float64) []phase {
	if whole <= 0 {
		return nil
	}
	all := []phase{{Name: "late", Width: s.Late}, {Name: "slot", Width: s.Wait}}
	if s.streamed() {
		all = append(all, phase{Name: "prefill", Width: s.Prefill}, phase{Name: "decode", Width: s.Decode})
	} else {
		all = append(all, phase{Name: "whole", Width: s.Whole})
	}
	var parts []phase
	x := 0.0
	for _, p := range all {
		p.X, p.Width = x, min(round(100*p.Width/whole), 100-x)
		x += p.Width
		parts = append(parts, p)
	}
	return parts
}

// newSlow returns the phases of a request that was served at the first attempt; false for another one, or if a time is missing.
func newSlow(r *record) (slow, bool) {
	x := &r.Result
	total, ended := between(x.Intended, x.lastToken())
	if !ended || !r.once() {
		return slow{}, false
	}
	s := slow{
		Row: x.Row, Turn: x.Turn, Model: r.model(), At: *x.Intended, Total: total, TTFT: -1, Prefill: -1, Decode: -1,
		Prompt: r.prompt(), Uncached: -1, Reply: -1, TraceID: x.TraceID,
	}
	if n, known := r.reply(); known {
		s.Reply = n
	}
	s.Late, _ = between(x.Intended, x.Dispatched)
	s.Wait, _ = between(x.Dispatched, x.Admitted)
	if ttft, streamed := between(x.Intended, x.First); streamed {
		s.TTFT = ttft
		s.Prefill, _ = between(cmp.Or(x.Wire, x.Start), x.First)
		s.Decode, _ = between(x.First, x.Last)
	} else {
		s.Whole, _ = between(cmp.Or(x.Wire, x.Start), x.lastToken())
	}
	if len(x.Gaps) > 0 {
		s.Gap = slices.Max(x.Gaps)
	}
	if cached, known := r.cached(); known {
		s.Uncached = max(s.Prompt-cached, 0)
	}
	return s, true
}

// slowest has the requests with the greatest values of one duration, greatest first.
type slowest struct {
	by   func(slow) float64
	rows []slow
}

func (l *slowest) add(s slow) {
	v := l.by(s)
	i, _ := slices.BinarySearchFunc(l.rows, v, func(have slow, v float64) int { return cmp.Compare(v, l.by(have)) })
	if i >= maxSlowest {
		return
	}
	l.rows = slices.Insert(l.rows, i, s)
	l.rows = l.rows[:min(len(l.rows), maxSlowest)]
}

// usual has the usual values of a run, to recognise unusual requests.
type usual struct {
	uncached float64 // 90th percentile of prompt tokens that were not cached
	reply    float64 // 90th percentile of output tokens
	gap      float64 // median gap between chunks, ms
	backlog  *backlog
}

// explain describes what most of a request's time to first token, or to its end, was spent on, and what is unusual about it.
func (u *usual) explain(s *slow, toEnd bool) string {
	switch longest := max(s.Late, s.Wait, s.Prefill); {
	case !s.streamed() && s.Whole >= longest:
		return u.explainWhole(s)
	case toEnd && s.Decode > longest:
		return u.explainDecode(s)
	case s.Prefill == longest:
		return u.explainPrefill(s)
	case s.Wait == longest:
		return "waited for a free slot of the concurrency cap"
	default:
		return "sent late: the client or its machine was busy"
	}
}

func (u *usual) explainPrefill(s *slow) string {
	why := u.explainCold(s)
	waiting, overtook := u.backlog.behind(s.At+s.Late+s.Wait, s.At+s.TTFT)
	if waiting > max(u.backlog.median, 1) {
		why = append(why, fmt.Sprintf("queue: %s waited for a first token (median %s)", humanize.Comma(waiting), humanize.Comma(u.backlog.median)))
	}
	if overtook > max(waiting, 1) { // they had their first token sooner
		why = append(why, fmt.Sprintf("overtaken by %s that were sent later", humanize.Comma(overtook)))
	}
	return cmp.Or(strings.Join(why, "; "), "slow first token, for no reason that the records show")
}

// explainCold says whether unusually much of the prompt was not cached.
func (u *usual) explainCold(s *slow) []string {
	if s.Uncached <= 0 || float64(s.Uncached) < u.uncached {
		return nil
	}
	return []string{fmt.Sprintf("cold prompt: %s of %s tokens were not cached", humanize.Comma(s.Uncached), humanize.Comma(s.Prompt))}
}

// explainWhole explains a reply without a stream, of which only the end is known.
func (u *usual) explainWhole(s *slow) string {
	why := u.explainCold(s)
	if float64(s.Reply) > u.reply {
		why = append(why, fmt.Sprintf("long reply: %s tokens", humanize.Comma(s.Reply)))
	}
	return cmp.Or(strings.Join(why, "; "), "slow reply, for no reason that the records show")
}

func (u *usual) explainDecode(s *slow) string {
	mean := s.Decode / float64(max(s.Reply-1, 1))
	switch {
	case s.Gap > s.Decode/2 && s.Reply > 2:
		return fmt.Sprintf("stalled for %s ms within the reply", number(s.Gap))
	case u.gap > 0 && mean > 2*u.gap:
		return fmt.Sprintf("slow tokens: %s ms each, the median gap is %s ms", number(mean), number(u.gap))
	default:
		return fmt.Sprintf("long reply: %s tokens, %s ms each", humanize.Comma(s.Reply), number(mean))
	}
}
