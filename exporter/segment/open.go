// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
)

// open is the segment that is written.
type open struct {
	id     id
	file   string
	w      *journal.Writer
	head   int64     // length of the journal's first line, before which no record is
	begun  int64     // size with what was carried into it, which no mark is of
	empty  bool      // no records, carried or not
	end    time.Time // when it is closed; zero is never
	marks  []mark
	synced func(time.Duration, error)

	failed atomic.Bool // it is not written again
	mu     sync.Mutex  // held while syncing
	safe   int64       // size up to which all is durable
	err    error       // why it is not
}

// mark says that what was written from an offset on, up to the next mark's, came between two instants.
type mark struct {
	first, last time.Time
	offset      int64
}

// marksPerGrace is how finely the grace period is known.
const marksPerGrace = 64

// mark notes that something comes now. Marks from before the grace period are of no use.
func (s *open) mark(now time.Time, grace time.Duration) {
	if grace == 0 {
		return
	}
	if n := len(s.marks); n > 0 && now.Sub(s.marks[n-1].first) < grace/marksPerGrace {
		s.marks[n-1].last = now
		return
	}
	for len(s.marks) > 0 && now.Sub(s.marks[0].last) > grace {
		s.marks = s.marks[1:]
	}
	s.marks = append(s.marks, mark{now, now, s.w.Size()})
}

// since returns the marks behind whose first everything is that came at an instant or later.
func (s *open) since(at time.Time) []mark {
	for n, m := range s.marks {
		if !m.last.Before(at) {
			return s.marks[n:]
		}
	}
	return nil
}

// commit returns when everything up to a size is durable. One sync is for all who have come by when it begins.
func (s *open) commit(size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.safe >= size:
		return nil
	case s.err != nil:
		return s.err
	}
	written, start := s.w.Size(), time.Now()
	err := s.w.Sync()
	s.synced(time.Since(start), err)
	if err != nil {
		return s.fail(err)
	}
	s.safe = written
	return nil
}

// fail makes sure that the segment is not written again. s.mu is held.
func (s *open) fail(err error) error {
	if s.err == nil {
		s.err = fmt.Errorf("journal %s cannot be made durable, and is not written again: %w", s.file, err)
		s.failed.Store(true)
	}
	return s.err
}

// why returns why the segment is not written again, nil if it is.
func (s *open) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// openSegment begins a segment, or goes on with one that is there.
func (j *Journal) openSegment(i id) (*open, error) {
	s := &open{id: i, file: j.opt.path(i, journalSuffix), end: j.opt.end(i.begun), synced: j.opt.Observer.Synced}
	w, err := journal.OpenWriter(s.file, journal.WriterOptions{NoSync: true})
	if err != nil {
		return nil, err
	}
	if s.head, err = headLength(s.file); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	s.w, s.begun = w, w.Size()
	return s, nil
}

// headLength returns the length of a journal's first line, which is its header.
func headLength(file string) (int64, error) {
	f, err := os.Open(file) //nolint:gosec // a file of ours
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	line, err := bufio.NewReaderSize(f, 128).ReadSlice('\n')
	return int64(len(line)), err
}

// isEmpty reports whether a journal has no record.
func isEmpty(file string) bool {
	f, err := os.Open(file) //nolint:gosec // a file of ours
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	_, err = journal.NewReader(file, f).Next()
	return errors.Is(err, io.EOF)
}
