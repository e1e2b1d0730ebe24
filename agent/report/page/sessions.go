// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"errors"
	"os"
	"path/filepath"
)

// SessionsFile is the name of the file with the figures by session in the folder of a run. A run without sessions does not have it.
const SessionsFile = "sessions.csv"

// maxSessions is the maximum number of sessions with their own line. The others share the last line, under the
// name otherSessions.
const (
	maxSessions   = 200_000
	otherSessions = "(other sessions)"
)

// sessions are the figures by session, in the order of their first rows.
type sessions struct {
	by     map[string]*session
	others *session // not in by: a session may have any id
	order  []*session
}

// session has the results of the rows of a session.
type session struct {
	id                                       string
	rows, served, skipped, input, output     int64
	uncounted                                int64 // replies of which the number of output tokens is not known
	cached, cachedOf, predicted, predictedOf int64
	first, last                              *float64 // start of the first request and end of the last one, ms
	ttft, itl                                total
}

// total is a sum, with the values for a mean and a maximum.
type total struct {
	sum, most float64
	n         int64
}

func (t *total) add(v float64) {
	t.sum, t.most, t.n = t.sum+v, max(t.most, v), t.n+1
}

func (t *total) mean() *float64 {
	if t.n == 0 {
		return nil
	}
	return decimals(t.sum / float64(t.n))
}

func (t *total) max() *float64 {
	if t.n == 0 {
		return nil
	}
	return decimals(t.most)
}

// of returns the session with an id, or the one that stands for the others.
func (s *sessions) of(id string) *session {
	switch {
	case s.by[id] != nil:
		return s.by[id]
	case s.others != nil:
		return s.others
	case len(s.by) >= maxSessions:
		s.others = &session{id: otherSessions}
		s.order = append(s.order, s.others)
		return s.others
	}
	if s.by == nil {
		s.by = map[string]*session{}
	}
	s.by[id] = &session{id: id}
	s.order = append(s.order, s.by[id])
	return s.by[id]
}

// add counts a request.
func (s *sessions) add(r *record) {
	if r.Session == "" {
		return
	}
	x, of := &r.Result, s.of(r.Session)
	of.rows++
	if x.Outcome == "skipped" {
		of.skipped++
	}
	if x.Start != nil && (of.first == nil || *x.Start < *of.first) {
		of.first = new(*x.Start) // the memory of the record is used again
	}
	if x.End != nil && (of.last == nil || *x.End > *of.last) {
		of.last = new(*x.End)
	}
	if !r.served() {
		return
	}
	of.served++
	of.input += r.prompt()
	if n, known := r.reply(); known {
		of.output += n
	} else {
		of.uncounted++
	}
	if cached, known := r.cached(); known {
		of.cached += cached
		of.cachedOf += r.prompt()
	}
	if x.Predicted != nil {
		of.predicted += *x.Predicted
		of.predictedOf += r.prompt()
	}
	if ttft, known := r.ttft(); known {
		of.ttft.add(ttft)
	}
	if itl, known := r.itl(); known {
		of.itl.add(itl)
	}
}

// sessionColumns are the columns of the file. Tokens and cache hits are those of the rows that were served, latencies those of the rows that
// were also sent only once. Output tokens are empty if they are not known of any row.
var sessionColumns = []column[*session]{
	{"session_id", func(s *session) any { return s.id }},
	{"rows", func(s *session) any { return s.rows }},
	{"served", func(s *session) any { return s.served }},
	{"skipped", func(s *session) any { return s.skipped }},
	{"start_s", func(s *session) any {
		if s.first == nil {
			return (*float64)(nil)
		}
		return decimals(*s.first / 1000)
	}},
	{"duration_s", func(s *session) any {
		d, known := between(s.first, s.last)
		if !known {
			return (*float64)(nil)
		}
		return decimals(d / 1000)
	}},
	{"input_tokens", func(s *session) any { return s.input }},
	{"output_tokens", func(s *session) any { return knownTokens(s.output, s.uncounted) }},
	{"ttft_ms_mean", func(s *session) any { return s.ttft.mean() }},
	{"ttft_ms_max", func(s *session) any { return s.ttft.max() }},
	{"itl_ms_mean", func(s *session) any { return s.itl.mean() }},
	{"cached_tokens", func(s *session) any { return s.cached }},
	{"cached_pct", func(s *session) any { return shareOf(s.cached, s.cachedOf) }},
	{"predicted_cached_tokens", func(s *session) any { return s.predicted }},
	{"predicted_cached_pct", func(s *session) any { return shareOf(s.predicted, s.predictedOf) }},
}

// Sessions returns the figures by session; nil for a run without sessions.
func (r *Run) Sessions() *Sheet {
	if len(r.sessions.order) == 0 {
		return nil
	}
	return newSheet(sessionColumns, r.sessions.order)
}

// SaveSheets writes [SeriesFile] and, if the run has sessions, [SessionsFile] into the folder. If the run has no sessions, it removes the
// [SessionsFile] of an earlier run.
func (r *Run) SaveSheets() error {
	err := save(filepath.Join(r.dir, SeriesFile), r.Series().CSV)
	name := filepath.Join(r.dir, SessionsFile)
	if sessions := r.Sessions(); sessions != nil {
		return errors.Join(err, save(name, sessions.CSV))
	}
	if old := os.Remove(name); old != nil && !errors.Is(old, os.ErrNotExist) {
		err = errors.Join(err, old)
	}
	return err
}
