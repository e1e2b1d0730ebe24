// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/atomicfile"
)

// watch cuts the open segment when its time has come, with or without traffic, and makes the cuts that take long.
func (j *Journal) watch(ctx context.Context) {
	for {
		j.mu.Lock()
		j.bound(time.Now())
		end, retry := j.open.end, j.retry
		j.mu.Unlock()
		var due <-chan time.Time // never, where segments end by size only
		if !end.IsZero() {
			if end.Before(retry) {
				end = retry
			}
			timer := time.NewTimer(time.Until(end))
			due = timer.C // not referred to any more, it is gone
		}
		select {
		case <-ctx.Done():
			return
		case c := <-j.beside:
			j.cutBeside(ctx, c)
		case now := <-due:
			j.mu.Lock()
			if !j.closed {
				j.cutIfDue(now)
			}
			j.mu.Unlock()
			j.signal() // old segments age
		}
	}
}

// bound sees to it that the open segment ends in time, also if it was begun by a clock that was ahead. j.mu is held.
func (j *Journal) bound(now time.Time) {
	if end := j.opt.end(now); j.open.end.After(end) {
		j.open.end = end
	}
	if end := now.Add(retryCut); j.retry.After(end) {
		j.retry = end
	}
}

// cutIfDue ends the open segment if it is large or old enough, or cannot be written. j.mu is held.
func (j *Journal) cutIfDue(now time.Time) {
	j.bound(now)
	s := j.open
	switch {
	case j.cutting, now.Before(j.retry):
		return
	case s.failed.Load():
	case !s.end.IsZero() && !now.Before(s.end):
	case s.empty || s.w.Size()-s.begun < j.opt.MaxBytes:
		return
	case j.tooYoung(now):
		j.waits = true
		return
	}
	if s.w.Size() > j.atOnce && j.opt.Compile != nil && !s.failed.Load() {
		j.cutting = true
		j.beside <- j.newCarry(now) // there is room: one at a time
		return
	}
	j.note(s, j.cut(now, nil), now)
}

// cutAtOnce is the size in bytes up to which a segment is cut while Append waits.
const cutAtOnce = 1 << 20

// note tells what became of a segment's cut, for which Append waited from an instant on. j.mu is held.
func (j *Journal) note(s *open, cut Cut, from time.Time) {
	cut.Took = time.Since(from)
	if cut.Err != nil {
		j.retry = time.Now().Add(retryCut)
	} else if s.empty && cut.Cause == nil {
		return // it has never been
	}
	j.opt.Observer.Cut(cut)
	j.signal()
}

// nearly is what is left of a segment to copy when Append waits for the rest, in bytes; a sender that is faster than the
// copying waits for more.
const nearly = 256 << 10

// cutBeside makes a cut while records come in. They go to the old segment until the new one has all that it needs, and with
// it the records since the cut began, which do not count for the old one's own trace.
func (j *Journal) cutBeside(ctx context.Context, c *carry) {
	s := c.from
	err := s.commit(c.size)
	if err == nil {
		err = j.carryOn(ctx, c, c.size)
	}
	for range 32 {
		size := s.w.Size()
		if err != nil || size-c.done < nearly {
			break
		}
		err = c.follow(ctx, size, time.Now())
	}
	if err == nil {
		err = c.w.Sync() // most of it without holding up anybody
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	j.cutting = false
	switch {
	case j.closed:
		j.giveUp(c) // the next process goes on with the old segment
	case err == nil:
		j.note(s, j.cut(c.now, c), now)
	case s.failed.Load(), errors.Is(s.w.InPlace(), journal.ErrGone):
		j.giveUp(c)
		j.note(s, j.cut(now, nil), now)
	default:
		j.giveUp(c)
		j.note(s, Cut{Segment: s.file, Bytes: s.w.Size(), Waited: j.waits, Err: err}, now)
	}
}

// carryOn does of a cut what takes time. end is the size at the cut of a segment that is written to meanwhile, else 0.
func (j *Journal) carryOn(ctx context.Context, c *carry, end int64) error {
	if j.opt.Grace > 0 {
		if err := c.find(ctx, c.now.Add(-j.opt.Grace), j.opt.MaxCarries); err != nil {
			return err
		}
	}
	if err := j.writePending(c.from.id, c, end); err != nil {
		return err
	}
	if end == 0 && len(c.traces) == 0 {
		return nil
	}
	err := j.opt.makeTemp()
	if err == nil {
		err = c.copy(ctx, filepath.Join(j.opt.temp(), "next"+journalSuffix))
	}
	if err != nil {
		return fmt.Errorf("open traces were not carried on to the next segment: %w", err)
	}
	return nil
}

// giveUp undoes what a cut has done so far.
func (j *Journal) giveUp(c *carry) {
	c.discard()
	_ = j.dropPending(c.from.id) // also dropped by the next cut, or the next process
}

// tooYoung reports whether most of what came into the open segment came within the grace period before an instant. Then most of
// it would be copied, and at such a rate again and again.
func (j *Journal) tooYoung(now time.Time) bool {
	if j.opt.Compile == nil || j.opt.Grace == 0 {
		return false
	}
	recent := j.open.since(now.Add(-j.opt.Grace))
	size := j.open.w.Size()
	return len(recent) > 0 && size-recent[0].offset > (size-j.open.begun)/2
}

// cut begins the next segment and closes the open one. c is what was carried on already, or nil. j.mu is held.
func (j *Journal) cut(now time.Time, c *carry) Cut {
	s := j.open
	cut := Cut{Segment: s.file, Bytes: s.w.Size(), Waited: j.waits}
	_ = s.commit(cut.Bytes) // where it fails the observer knows, and all who wait for it; the next segment helps
	cut.Cause = s.why()
	gone := errors.Is(s.w.InPlace(), journal.ErrGone)
	switch {
	case gone:
		cut.Lost = cut.Bytes - s.head
		if c != nil {
			j.giveUp(c)
			c = nil
		}
	case c != nil:
		cut.Err = c.follow(context.Background(), cut.Bytes, time.Now())
	case j.opt.Compile != nil && !s.empty:
		c = j.newCarry(now)
		cut.Err = j.carryOn(context.Background(), c, 0)
	}
	var next *open
	if cut.Err == nil {
		next, cut.Err = j.begin(now, c)
	}
	if cut.Err != nil {
		if c != nil {
			j.giveUp(c)
		}
		return cut
	}
	j.open, j.waits, j.carried = next, false, nil
	if j.opt.Retention.MaxAge > 0 {
		j.ended[s.id.number] = now
	}
	j.size.Store(next.w.Size())
	if c != nil {
		cut.Carried, cut.TooOften, cut.TooMany = int64(len(c.traces)), c.tooOften, c.tooMany
		cut.CarriedBytes, j.carried = c.bytes, c.traces
	}
	s.mu.Lock() // nobody is syncing
	_ = s.w.Close()
	s.mu.Unlock()
	if s.empty && !gone {
		_ = os.Remove(s.file) // its name would tell a wrong time
	}
	return cut
}

// begin begins the next segment, with what was copied for it. It has its name when that is durable.
func (j *Journal) begin(now time.Time, c *carry) (*open, error) {
	if err := j.hold(); err != nil {
		return nil, err
	}
	j.next++ // also where this fails: a number never comes back
	i := id{j.opt.Name, now.UTC().Truncate(time.Second), j.next}
	copied := c != nil && c.w != nil
	var late int64 // bytes of what came since the cut
	if copied {
		late = c.w.Size() - c.bytes
		err := c.w.Close()
		c.w = nil
		if err == nil {
			err = os.Rename(c.file, j.opt.path(i, journalSuffix))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open traces were not carried on to the next segment: %w", err), os.Remove(c.file))
		}
		atomicfile.SyncDir(j.opt.Directory)
	}
	s, err := j.openSegment(i)
	if err != nil {
		return nil, err
	}
	s.safe = s.begun
	s.begun -= late
	s.empty = !copied
	if copied {
		s.marks = c.late
	}
	return s, nil
}
