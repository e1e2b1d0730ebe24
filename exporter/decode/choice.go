// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

// This file selects the records of a batch that belong to a sample. Those of one request are kept or left out together, as far as the batch
// shows that they belong together. A request alone in its batch is decided by its own content, so that all Collectors decide alike.

import (
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// choice is the state of a batch before it is decided which records are kept. Its memory is reused.
type choice struct {
	marks  []mark
	spans  map[mooncake.SpanRef]int // index of a mark
	traces map[[16]byte]*traceMark
}

// mark is the state of a record until it is decided whether it is kept. The zero mark is a span without a record.
type mark struct {
	kind    journal.Kind
	border  bool // of a link
	keep    bool
	decided bool // there was something to decide by
	whole   bool // the record is kept in any case: of a replay, or sampled before

	span    mooncake.SpanRef
	parent  journal.SpanID
	session journal.Session
	group   mooncake.Group // of its prompt
	grouped bool
}

// traceMark is the state of the records of one OTel trace.
type traceMark struct {
	session journal.Session // the session of its spans, if they have only one
	several bool            // its spans have several sessions
	decided bool            // a request of it was decided
	kept    bool            // a request of it is kept
}

// maxAncestors is the maximum number of steps from a request up to the request of which it is a part.
const maxAncestors = 64

func (c *choice) shrink() {
	if cap(c.marks) > keep {
		*c = choice{}
	}
}

// sampled calls visit with the record of each span in the sample.
func (w *worker) sampled(td ptrace.Traces, visit func(journal.Record) error) error {
	c, s := &w.choice, w.sampling
	c.marks = c.marks[:0]
	if c.spans == nil {
		c.spans, c.traces = map[mooncake.SpanRef]int{}, map[[16]byte]*traceMark{}
	}
	clear(c.spans)
	clear(c.traces)
	_ = w.each(td, nil, func(number int, r journal.Record) error {
		for len(c.marks) <= number {
			c.marks = append(c.marks, mark{})
		}
		c.note(number, r, s, &w.counts)
		if m := &c.marks[number]; m.kind == journal.KindLink {
			m.whole = !w.run.IsZero()
		}
		return nil
	})
	c.decide(s, &w.counts)
	// The first walk counted the errors of all spans. Records are counted in the second walk, because only kept records count.
	first := w.counts
	w.counts = Counts{}
	err := w.each(td, func(number int) bool { return number < len(c.marks) && c.marks[number].keep }, func(number int, r journal.Record) error {
		if request, ok := r.(*journal.Inference); ok && !c.marks[number].whole {
			request.Sampled = s.made
		}
		return visit(r)
	})
	first.Inferences, first.Unannotated, first.Contents, first.Links = w.counts.Inferences, w.counts.Unannotated, w.counts.Contents, w.counts.Links
	w.counts = first
	return err
}

// note stores what a record says by itself, for decide.
func (c *choice) note(number int, r journal.Record, s *Sampling, counts *Counts) {
	m := &c.marks[number]
	var prompt *journal.Prompt
	switch r := r.(type) {
	case *journal.Inference:
		*m = mark{kind: journal.KindInference, span: r.Span, parent: r.Parent, session: r.Session}
		m.whole = !r.Run.IsZero() || r.Row.Set || r.Sampled.PerMillion > 0
		prompt = &r.Prompt
	case *journal.Content:
		*m = mark{kind: journal.KindContent, span: r.Span, parent: r.Parent}
		prompt = &r.Prompt
	case *journal.Link:
		*m = mark{kind: journal.KindLink, span: r.Span, parent: r.Parent, session: r.Session, border: r.Border}
	}
	if prompt != nil && !m.whole {
		unlisted := false
		if m.group, m.grouped, unlisted = s.prompt(prompt); unlisted {
			counts.Unlisted++
		}
	}
	c.spans[m.span] = number
	t := c.traces[m.span.TraceID]
	if t == nil {
		t = new(traceMark)
		c.traces[m.span.TraceID] = t
	}
	if m.session != 0 {
		t.several = t.several || t.session != 0 && t.session != m.session
		t.session = m.session
	}
}

// above returns the record of the parent span; nil if it is not in the batch.
func (c *choice) above(m *mark) *mark {
	if m.parent == (journal.SpanID{}) {
		return nil
	}
	if at, known := c.spans[mooncake.SpanRef{TraceID: m.span.TraceID, SpanID: m.parent}]; known {
		return &c.marks[at]
	}
	return nil
}

// top returns the topmost request of which a request is a part, as compiling will find it: itself, or one above it with only links in
// between.
func (c *choice) top(m *mark) *mark {
	found, at := m, m
	for range maxAncestors {
		if at = c.above(at); at == nil || at.border {
			break
		}
		if at.kind == journal.KindInference {
			found = at
		}
	}
	return found
}

// decide decides about each record, and counts those that are not kept.
func (c *choice) decide(s *Sampling, counts *Counts) {
	for i := range c.marks { // prompts that came separately from their requests
		if m := &c.marks[i]; m.kind == journal.KindContent {
			if p := c.above(m); p != nil && p.kind == journal.KindInference && !p.grouped {
				p.group, p.grouped = m.group, m.grouped
			}
		}
	}
	for i := range c.marks {
		if m := &c.marks[i]; m.kind == journal.KindInference {
			c.request(m, s)
		}
	}
	for i := range c.marks {
		if m := &c.marks[i]; m.kind == journal.KindInference {
			if t := c.traces[m.span.TraceID]; !m.decided && t.decided { // an engine's span without content, next to clients' spans
				m.decided, m.keep = true, t.kept
			}
			m.left(&counts.SampledOut.Inferences, &counts.Undecided)
		}
	}
	for i := range c.marks {
		switch m := &c.marks[i]; m.kind {
		case journal.KindInference: // decided above
		case journal.KindContent:
			if p := c.above(m); p != nil && p.kind == journal.KindInference {
				m.decided, m.keep = p.decided, p.keep
			}
			m.left(&counts.SampledOut.Contents, &counts.Undecided)
		case journal.KindLink:
			t := c.traces[m.span.TraceID]
			m.decided, m.keep = true, t.kept || m.whole
			if session := t.of(m); session != 0 && !m.keep && s.By != mooncake.SamplePrefix {
				m.keep = s.sampler.Keeps(mooncake.SessionGroup(session.String()))
			}
			m.left(&counts.SampledOut.Links, &counts.Undecided)
		}
	}
}

// request decides about a request by its content, or by that of the request of which it is a part.
func (c *choice) request(m *mark, s *Sampling) {
	t := c.traces[m.span.TraceID]
	if m.whole {
		m.decided, m.keep = true, true
	} else {
		top := c.top(m)
		session, group, grouped := t.of(top), top.group, top.grouped
		if session == 0 {
			session = m.session
		}
		if !grouped {
			group, grouped = m.group, m.grouped
		}
		if session != 0 && (!grouped || s.By != mooncake.SamplePrefix) {
			group, grouped = mooncake.SessionGroup(session.String()), true
		}
		m.decided, m.keep = grouped, grouped && s.sampler.Keeps(group)
	}
	t.decided, t.kept = t.decided || m.decided, t.kept || m.keep
}

// of returns the session of a record: its own, or the only one of its trace.
func (t *traceMark) of(m *mark) journal.Session {
	if m.session == 0 && !t.several {
		return t.session
	}
	return m.session
}

// left counts a record that is not kept.
func (m *mark) left(sampledOut, undecided *int64) {
	switch {
	case m.keep:
	case m.decided:
		*sampledOut++
	default:
		*undecided++
	}
}
