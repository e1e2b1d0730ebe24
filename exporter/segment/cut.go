// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
)

// retryCut is the time from a cut that failed until the next attempt.
const retryCut = 10 * time.Second

// age cuts the open segment when it is old enough, even without traffic, and wakes the worker, which removes old segments.
func (j *Journal) age() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	j.cutIfDue(time.Now())
	due := j.open.end
	if due.Before(j.retry) {
		due = j.retry
	}
	j.timer.Reset(time.Until(due))
	j.signal()
}

// bound makes sure that the open segment ends in time, even if the clock was ahead when it began. The caller holds j.mu.
func (j *Journal) bound(now time.Time) {
	if end := j.opt.end(now); j.open.end.After(end) {
		j.open.end = end
	}
	if end := now.Add(retryCut); j.retry.After(end) {
		j.retry = end
	}
}

// cutIfDue ends the open segment if it is large or old enough, or cannot be written. The caller holds j.mu.
func (j *Journal) cutIfDue(now time.Time) {
	j.bound(now)
	s := j.open
	switch {
	case now.Before(j.retry):
		return
	case s.failed.Load():
	case !s.end.IsZero() && !now.Before(s.end):
	case s.w.Size() < max(j.opt.MaxBytes, journal.HeaderSize+1): // a segment without records stays open
		return
	case j.opt.Compile != nil && now.Sub(s.opened) < j.opt.Grace:
		// Cuts so close together would make each compilation read many segments: all that were written within a grace period of
		// the compiled one.
		j.waits = true
		return
	}
	empty := s.empty()
	cut := j.cut(now)
	cut.Took = time.Since(now)
	if cut.Err != nil {
		j.retry = time.Now().Add(retryCut)
	} else if empty && cut.Cause == nil {
		return // the empty segment is gone, so there is nothing to report
	}
	j.opt.Observer.Cut(cut)
	j.signal()
}

// cut closes the open segment and begins the next one. The caller holds j.mu.
func (j *Journal) cut(now time.Time) Cut {
	s := j.open
	cut := Cut{Segment: s.file, Bytes: s.w.Size(), Waited: j.waits}
	_ = s.commit(cut.Bytes) // if it fails, the observer and all who wait for it have been told; a new segment may work
	cut.Cause = s.why()
	gone := errors.Is(s.w.InPlace(), journal.ErrGone)
	if gone {
		cut.Lost = cut.Bytes - journal.HeaderSize
	} else if j.opt.Compile != nil && !s.empty() {
		cut.Err = j.writePending(s.id, cut.Bytes)
	}
	var next *open
	if cut.Err == nil {
		next, cut.Err = j.begin(now)
	}
	if cut.Err != nil {
		_ = j.dropPending(s.id) // if this fails, the next process drops it
		return cut
	}
	j.open, j.waits = next, false
	j.ended[s.id.number] = now
	j.size.Store(next.w.Size())
	s.mu.Lock() // wait for a sync that is under way
	_ = s.w.Close()
	s.mu.Unlock()
	if s.empty() && !gone {
		_ = os.Remove(s.file) // its name has a time at which nothing was written
	}
	return cut
}

// begin begins the next segment.
func (j *Journal) begin(now time.Time) (*open, error) {
	if err := j.hold(); err != nil {
		return nil, err
	}
	j.number++ // even if this fails: no number is used twice
	i := id{j.opt.Name, now.UTC().Truncate(time.Second), j.number}
	s, err := j.openSegment(i)
	if err != nil {
		_ = os.Remove(j.opt.path(i, journalSuffix)) // or else the next process would think that the segment before it is closed
	}
	return s, err
}

// A .pending file says that a segment is closed and that its trace is still to be compiled. It holds the segment's size when it
// was closed. It has no meaning until there is a later segment.

func (j *Journal) writePending(i id, size int64) error {
	if err := os.WriteFile(j.opt.path(i, pendingSuffix), fmt.Appendln(nil, size), 0o600); err != nil {
		return fmt.Errorf("segment cannot be closed: %w", err)
	}
	return nil
}

// closedSize returns the size that a segment had when it was closed, or 0 if that is unknown.
func (j *Journal) closedSize(i id) (size int64) {
	text, _ := os.ReadFile(j.opt.path(i, pendingSuffix))
	_, _ = fmt.Sscan(string(text), &size)
	return size
}

func (j *Journal) dropPending(i id) error {
	if err := os.Remove(j.opt.path(i, pendingSuffix)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
