// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// maxSessions is the maximum number of sessions that are counted in a trace.
const maxSessions = 1 << 20

// Traces collects, while the traces of one call are written, figures that their sidecars do not have.
type Traces struct {
	Lost []mooncake.Dropped // what was lost before anything was compiled; the sidecar of the first trace gets it
	List []*Trace           // in the order in which they were begun
}

// Trace has figures that the sidecar of a trace does not have.
type Trace struct {
	capture.Partition
	File      string
	Committed bool    // the file is complete
	Sessions  int     // counted up to about a million
	Last      float64 // greatest timestamp, in ms
	// InputTokens is the sum of the prompts, Blocks the number of their ids, and HitBlocks that of leading ids that earlier rows had, too.
	InputTokens, Blocks, HitBlocks int64
}

// Of returns the Trace of a partition, or nil if none was begun.
func (s *Traces) Of(p capture.Partition) *Trace {
	if i := slices.IndexFunc(s.List, func(t *Trace) bool { return t.Partition == p }); i >= 0 {
		return s.List[i]
	}
	return nil
}

// Sink returns a sink that writes each partition's trace to a file; name returns the file's name, and create begins the file, as
// [mooncake.CreateNew] does.
func (s *Traces) Sink(create func(string) (*mooncake.File, error), name func(capture.Partition) string) capture.Sink {
	return func(p capture.Partition) (capture.TraceWriter, error) {
		file, err := create(name(p))
		if err != nil {
			return nil, err
		}
		w := &watched{
			TraceWriter: file, Trace: &Trace{Partition: p, File: name(p)}, sessions: make(map[uint64]struct{}),
		}
		if len(s.List) == 0 {
			w.lost = s.Lost
		}
		s.List = append(s.List, w.Trace)
		return w, nil
	}
}

// Written returns the names of the completed trace files.
func (s *Traces) Written() []string {
	var names []string
	for _, t := range s.List {
		if t.Committed {
			names = append(names, t.File)
		}
	}
	return names
}

// watched is a trace that is analysed while it is written.
type watched struct {
	capture.TraceWriter
	*Trace
	lost     []mooncake.Dropped
	sessions map[uint64]struct{} // hashes of the ids, which take a fifth of their memory
	next     uint64              // ids below it are those of earlier rows, because [capture.Compile] numbers them as they appear
}

// EncodeWith forwards the encoding of rows, see [mooncake.Writer.EncodeWith].
func (w *watched) EncodeWith(encode mooncake.Encode, end func(io.Writer) error) {
	w.TraceWriter.(*mooncake.File).EncodeWith(encode, end) //nolint:forcetypeassert // create made it
}

// End forwards the end of the rows, see [mooncake.Writer.End].
func (w *watched) End() error {
	return w.TraceWriter.(*mooncake.File).End() //nolint:forcetypeassert // create made it
}

func (w *watched) Write(row *mooncake.Row) error {
	if row.SessionID != "" && len(w.sessions) < maxSessions {
		w.sessions[xxhash.Sum64String(row.SessionID)] = struct{}{}
		w.Sessions = len(w.sessions)
	}
	w.Last = max(w.Last, row.Timestamp.Or(0))
	w.InputTokens += row.InputLength.V
	w.Blocks += int64(len(row.HashIDs))
	known, next := true, w.next
	for _, id := range row.HashIDs {
		if known = known && id < w.next; known {
			w.HitBlocks++
		}
		next = max(next, id+1)
	}
	w.next = next
	return w.TraceWriter.Write(row)
}

func (w *watched) Commit(meta *mooncake.Meta) error {
	m := *meta
	m.Dropped = slices.Concat(w.lost, meta.Dropped)
	err := w.TraceWriter.Commit(&m)
	w.Committed = err == nil
	return err
}
