// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// maxSessions bounds the sessions that a summary counts.
const maxSessions = 1 << 20

// summaries are what is known of the traces of one call beside what their sidecars say. They are taken while traces are
// written.
type summaries struct {
	from      string             // what production is called: production unless it is set
	untokened string             // of --missing-tokens
	lost      []mooncake.Dropped // before anything was compiled; the sidecar of the first trace has it
	list      []*traceSummary    // in the order in which they were begun
}

// traceSummary is what a sidecar does not say of a trace that was just written.
type traceSummary struct {
	capture.Partition
	file      string
	committed bool
	sessions  map[string]struct{}
	cache     stats.CacheStats // of an infinite cache
	last      float64          // timestamp in ms
}

// of returns the summary of a partition's trace; nil if none was begun.
func (s *summaries) of(p capture.Partition) *traceSummary {
	if i := slices.IndexFunc(s.list, func(t *traceSummary) bool { return t.Partition == p }); i >= 0 {
		return s.list[i]
	}
	return nil
}

// sink writes a partition's trace to the file that name gives it.
func (s *summaries) sink(create func(string) (*mooncake.File, error), name func(capture.Partition) string) capture.Sink {
	return func(p capture.Partition) (capture.TraceWriter, error) {
		file, err := create(name(p))
		if err != nil {
			return nil, err
		}
		t := &traceSummary{Partition: p, file: name(p), sessions: make(map[string]struct{})}
		w := &summarised{TraceWriter: file, traceSummary: t, sim: stats.NewCacheSim(stats.CacheOptions{BlockSize: 1})}
		if len(s.list) == 0 {
			w.lost = s.lost
		}
		s.list = append(s.list, t)
		return w, nil
	}
}

// summarised is a trace that is looked at while it is written.
type summarised struct {
	capture.TraceWriter
	*traceSummary
	lost []mooncake.Dropped
	// sim counts blocks only. Their size is not known yet; with one of 1 token no id is beyond the end of its prompt.
	sim *stats.CacheSim
}

func (s *summarised) Write(row *mooncake.Row) error {
	if row.SessionID != "" && len(s.sessions) < maxSessions {
		s.sessions[row.SessionID] = struct{}{}
	}
	s.last = max(s.last, row.Timestamp.Or(0))
	s.sim.Add(row)
	return s.TraceWriter.Write(row)
}

func (s *summarised) Commit(meta *mooncake.Meta) error {
	stats := s.sim.Stats()
	s.cache = stats[len(stats)-1]
	m := *meta
	m.Dropped = slices.Concat(s.lost, meta.Dropped)
	err := s.TraceWriter.Commit(&m)
	s.committed = err == nil
	return err
}

// written names the traces that are there.
func (s *summaries) written() []string {
	var names []string
	for _, t := range s.list {
		if t.committed {
			names = append(names, t.file)
		}
	}
	return names
}

// failed completes the error of a call: what is there nevertheless, and that a signal was the cause, if it was.
func (s *summaries) failed(ctx context.Context, err error) error {
	names := strings.Join(s.written(), ", ")
	switch {
	case ctx.Err() != nil && names == "":
		return errors.New("interrupted; nothing was written")
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; of the traces only %s was written", names)
	case names != "":
		return fmt.Errorf("%w (%s was written before)", err, names)
	}
	return err
}

// made is the output of --json, the same of every command.
type made struct {
	From   string      `json:"from,omitempty"` // format of the inputs, where there are several
	Traces []madeTrace `json:"traces"`         // hides those of Result
	capture.Result
}

type madeTrace struct {
	File string `json:"file,omitempty"` // absent: without rows nothing is written
	capture.TraceResult
	Span        float64 `json:"span_ms"`
	Sessions    int     `json:"sessions"` // up to a million
	InputTokens int64   `json:"input_tokens"`
	Blocks      int64   `json:"blocks"`
	HitBlocks   int64   `json:"blocks_seen_before"`
}

// encode writes what was made as JSON.
func (s *summaries) encode(w io.Writer, from string, result capture.Result) error {
	out := made{From: from, Traces: []madeTrace{}, Result: result}
	out.Result.Dropped = slices.Concat(s.lost, result.Dropped)
	for _, t := range result.Traces {
		m := madeTrace{TraceResult: t}
		if sum := s.of(t.Partition); sum != nil {
			m.File, m.Span, m.Sessions = sum.file, sum.last, len(sum.sessions)
			m.InputTokens, m.Blocks, m.HitBlocks = sum.cache.InputTokens, sum.cache.Blocks, sum.cache.HitBlocks
		}
		out.Traces = append(out.Traces, m)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(out); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}
