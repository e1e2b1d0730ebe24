// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

// This file removes the rows outside the window and the filters, and counts them by filter.

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// filter is a stage that removes rows.
type filter struct {
	*stage
	keep    func(*item) bool
	removed int64
}

// filters reports whether rows are removed before any other step.
func (c *Config) filters() bool {
	return c.Start != 0 || c.End != 0 || len(c.Models)+len(c.Classes)+len(c.Sessions) > 0 || max(c.MinInput, c.MaxInput, c.MinOutput, c.MaxOutput, c.MaxContext, c.Conversations) > 0 || changes(c.Sample)
}

// filters returns the filters of a stream, in their order.
func (s *Stream) filters() (list []*filter) {
	c := &s.c
	add := func(name, why string, parameters map[string]any, keep func(*item) bool) {
		f := &filter{keep: keep}
		f.stage = s.stage(name, parameters, everyFigure, func(before, after *Figures) string {
			return fmt.Sprintf("%d rows → %d: %d %s", before.Rows, before.Rows-f.removed, f.removed, why)
		})
		list = append(list, f)
	}
	if c.Start != 0 || c.End != 0 {
		first, begun := 0., false
		add("window", "outside the window", map[string]any{"start_ms": millis(c.Start), "end_ms": millis(c.End)}, func(it *item) bool {
			if !begun {
				first, begun = it.key, true
			}
			at := it.key - first
			return at >= millis(c.Start) && (c.End == 0 || at <= millis(c.End))
		})
	}
	if changes(c.Sample) {
		add("sample", "not in the sample", map[string]any{"rate": c.Sample, "by": string(cmp.Or(c.SampleBy, mooncake.SampleSession)), "seed": c.Seed}, func(it *item) bool { return !it.thin })
	}
	if len(c.Models) > 0 {
		add("only-model", "of another model", map[string]any{"models": c.Models}, func(it *item) bool { return slices.Contains(c.Models, it.Model) })
	}
	if len(c.Classes) > 0 {
		add("only-class", "of another class", map[string]any{"classes": c.Classes}, func(it *item) bool { return slices.Contains(c.Classes, it.Class) })
	}
	if len(c.Sessions) > 0 {
		add("session", "of another session", map[string]any{"sessions": len(c.Sessions)}, func(it *item) bool { return slices.Contains(c.Sessions, it.SessionID) })
	}
	for _, l := range []struct {
		name, why string
		low, high int64
		of        func(*item) mooncake.Opt[int64]
	}{
		{"input length", "of another input length", c.MinInput, c.MaxInput, func(it *item) mooncake.Opt[int64] { return it.InputLength }},
		{"output length", "of another output length", c.MinOutput, c.MaxOutput, func(it *item) mooncake.Opt[int64] { return it.OutputLength }},
	} {
		if l.low+l.high > 0 {
			add(l.name, l.why, map[string]any{"min": l.low, "max": l.high}, func(it *item) bool {
				n := l.of(it)
				return n.Set && n.V >= l.low && (l.high == 0 || n.V <= l.high)
			})
		}
	}
	if c.MaxContext > 0 {
		add("context", "of a longer context", map[string]any{"max": c.MaxContext}, func(it *item) bool { return it.InputLength.V+it.OutputLength.V <= c.MaxContext })
	}
	if c.Conversations > 0 {
		add("conversations", "of later conversations", map[string]any{"first": c.Conversations}, firstConversations(c.Conversations))
	}
	return list
}

// firstConversations returns a filter that keeps the rows of this many conversations.
func firstConversations(most int64) func(*item) bool {
	talks := map[string]bool{} // as many as are kept
	alone := int64(0)          // kept rows without a session
	return func(it *item) bool {
		switch {
		case talks[conversation(it.SessionID)]:
		case int64(len(talks))+alone == most:
			return false
		case it.SessionID == "":
			alone++
		default:
			talks[conversation(it.SessionID)] = true
		}
		return true
	}
}

// selected returns the rows that pass all filters, up to the maximum number.
func (s *Stream) selected(in step) step {
	c, filters := &s.c, s.filters()
	var last *stage
	switch {
	case c.First > 0:
		last = s.stage("first", map[string]any{"rows": c.First}, everyFigure, said("the first %d of these rows", c.First))
	case len(filters) > 0:
		last = filters[len(filters)-1].stage
	default:
		last = &stage{}
	}
	kept, seq, latest := int64(0), 0, 0.
	var sessions map[uint64]bool // with a row that was kept
	if len(filters) > 0 {
		sessions = map[uint64]bool{}
	}
	keeps := func(it *item) bool {
		for _, f := range filters {
			if !f.keep(it) {
				f.removed++
				return false
			}
			if f.stage != last {
				s.passed(f.stage, it)
			}
		}
		return true
	}
	return func() (*item, error) {
		for c.First == 0 || kept < c.First {
			it, err := in()
			if err != nil {
				return nil, err
			}
			if !keeps(it) {
				continue
			}
			if it.session != 0 && sessions != nil {
				if !sessions[it.session] && it.timed && !it.Timestamp.Set { // the turn that it waits for may be removed
					it.key = max(it.key, latest)
					it.Timestamp, it.Delay = mooncake.Some(it.key), mooncake.Opt[float64]{}
				}
				sessions[it.session] = true
			}
			it.seq, latest = seq, max(latest, it.key)
			seq++
			kept++
			if last.add != nil {
				s.passed(last, it)
			}
			return it, nil
		}
		return nil, io.EOF
	}
}
