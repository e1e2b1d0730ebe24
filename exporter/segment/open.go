// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
)

// open is the segment that is being written.
type open struct {
	id     id
	file   string
	w      *journal.Writer
	opened time.Time // by this process
	end    time.Time // when it is closed; zero = never
	synced func(time.Duration, error)

	failed atomic.Bool // it is not written again
	mu     sync.Mutex  // held while syncing
	safe   int64       // size up to which everything is durable
	err    error       // why it is not written again
}

// openSegment begins a segment, or continues an existing one.
func (j *Journal) openSegment(i id) (*open, error) {
	file := j.opt.path(i, journalSuffix)
	w, err := journal.OpenWriter(file, journal.WriterOptions{NoSync: true})
	if err != nil {
		return nil, err
	}
	return &open{id: i, file: file, w: w, opened: time.Now(), end: j.opt.end(i.begun), synced: j.opt.Observer.Synced}, nil
}

// empty reports whether it has no record.
func (s *open) empty() bool { return s.w.Size() <= journal.HeaderSize }

// commit returns when everything up to a size is durable. One sync serves all callers that arrived before it begins.
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

// fail makes sure that the segment is not written again. s.mu must be locked.
func (s *open) fail(err error) error {
	if s.err == nil {
		s.err = fmt.Errorf("journal %s cannot be made durable, and is not written again: %w", s.file, err)
		s.failed.Store(true)
	}
	return s.err
}

// why returns why the segment is not written again, nil if it may be.
func (s *open) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// probe reads the first record of a journal. It returns io.EOF if there is none.
func probe(file string) error {
	f, err := os.Open(file) //nolint:gosec // a file of ours
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	_, err = journal.NewReader(file, f).Next()
	return err
}
