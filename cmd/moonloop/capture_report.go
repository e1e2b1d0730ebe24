// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// maxSessions bounds the sessions that a summary counts.
const maxSessions = 1 << 20

// traceSummary is what a sidecar does not say of a trace that was just written.
type traceSummary struct {
	file     string
	sessions map[string]struct{}
	cache    mooncake.CacheStats // of an infinite cache
	last     float64             // timestamp in ms
}

// summaries are taken while traces are written, in the order in which they are.
type summaries []*traceSummary

// sink writes a partition's trace to the file that name gives it.
func (s *summaries) sink(name func(capture.Partition) string) capture.Sink {
	return func(p capture.Partition) (capture.TraceWriter, error) {
		file, err := mooncake.Create(name(p))
		if err != nil {
			return nil, err
		}
		summary := &traceSummary{file: name(p), sessions: make(map[string]struct{})}
		*s = append(*s, summary)
		return &summarised{TraceWriter: file, traceSummary: summary}, nil
	}
}

// summarised is a trace that is looked at while it is written.
type summarised struct {
	capture.TraceWriter
	*traceSummary
	sim *mooncake.CacheSim // only hits in blocks, whatever their size
}

func (s *summarised) Write(row *mooncake.Row) error {
	if row.SessionID != "" && len(s.sessions) < maxSessions {
		s.sessions[row.SessionID] = struct{}{}
	}
	s.last = max(s.last, row.Timestamp.Or(0))
	if s.sim == nil {
		s.sim = mooncake.NewCacheSim(mooncake.CacheOptions{})
	}
	s.sim.Add(row)
	return s.TraceWriter.Write(row)
}

func (s *summarised) Commit(meta *mooncake.Meta) error {
	if s.sim != nil {
		stats := s.sim.Stats()
		s.cache = stats[len(stats)-1]
	}
	return s.TraceWriter.Commit(meta)
}

// report writes a block for each trace that was compiled.
func (s summaries) report(w io.Writer, result capture.Result) {
	next := 0
	for _, t := range result.Traces {
		if t.Meta.Rows == 0 {
			if len(t.Meta.Dropped) > 0 {
				fmt.Fprintf(w, "no rows of %s\n", partitionName(t.Partition))
				line(w, "dropped", droppedText(t.Meta.Dropped))
			}
			continue
		}
		s[next].report(w, t)
		next++
	}
	line(w, "dropped", droppedText(result.Dropped))
	if result.Torn.Records > 0 {
		line(w, "torn", fmt.Sprintf("%d writes that a crash cut off, %d bytes; none had been acknowledged", result.Torn.Records, result.Torn.Bytes))
	}
	if result.DamageCount > 0 {
		line(w, "damaged", fmt.Sprintf("%d places of the journal, %d bytes", result.DamageCount, result.DamageBytes))
	}
}

func (s *traceSummary) report(w io.Writer, t capture.TraceResult) {
	m := t.Meta
	fmt.Fprintf(w, "%s: %s rows of %s\n", s.file, comma(m.Rows), partitionName(t.Partition))
	spread := span(s.last)
	if n := len(s.sessions); n > 0 {
		spread += fmt.Sprintf(", %s sessions", comma(int64(n)))
	}
	line(w, "span", spread)
	line(w, "identity", identities(m))
	line(w, "prompts", fmt.Sprintf("%s tokens; %.1f %% of their blocks had been seen before", comma(s.cache.InputTokens), 100*s.cache.BlockRate))
	if t.Merged > 0 {
		line(w, "merged", comma(t.Merged)+" spans of requests that other spans stand for")
	}
	line(w, "dropped", droppedText(m.Dropped))
	line(w, "digests", fmt.Sprintf("seq %s  tree %s  arrival %s", shortDigest(m.Digests.Seq), shortDigest(m.Digests.Tree), shortDigest(m.Digests.Arrival)))
}

// line writes a labelled line, unless there is nothing to say.
func line(w io.Writer, label, text string) {
	if text != "" {
		fmt.Fprintf(w, "  %-10s%s\n", label, text)
	}
}

func partitionName(p capture.Partition) string {
	switch {
	case !p.Replay:
		return "production"
	case p.Run.IsZero():
		return "a replay without a name"
	}
	return "replay " + p.Run.String()
}

func droppedText(dropped []mooncake.Dropped) string {
	var parts []string
	for _, d := range dropped {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", comma(d.Count), d.What, d.Reason))
	}
	return strings.Join(parts, ", ")
}

// shortDigest is enough of a digest for eyes.
func shortDigest(d string) string {
	if len(d) > 12 && d != mooncake.Undefined {
		return d[:12]
	}
	return d
}

// identities says what the rows' block ids rest on.
func identities(m mooncake.Meta) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m.Identity)) {
		parts = append(parts, name+" "+comma(m.Identity[name]))
	}
	return strings.Join(parts, ", ")
}
