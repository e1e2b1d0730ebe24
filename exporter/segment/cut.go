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

	"github.com/moonloop/moonloop/capture"
)

// watch cuts the open segment when its time has come, with or without traffic.
func (j *Journal) watch(ctx context.Context) {
	for {
		j.mu.Lock()
		j.bound(time.Now())
		end, retry := j.open.end, j.retry
		j.mu.Unlock()
		if end.IsZero() {
			return // by size only
		}
		if end.Before(retry) {
			end = retry
		}
		timer := time.NewTimer(time.Until(end))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case now := <-timer.C:
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
	case now.Before(j.retry):
		return
	case s.failed.Load():
	case !s.end.IsZero() && !now.Before(s.end):
	case s.empty || s.w.Size()-s.begun < j.opt.MaxBytes:
		return
	case j.tooYoung(now):
		j.waits = true
		return
	}
	cut := j.cut(now)
	cut.Took = time.Since(now)
	if cut.Err != nil {
		j.retry = time.Now().Add(retryCut)
	} else if s.empty && cut.Cause == nil {
		return // it has never been
	}
	j.opt.Observer.Cut(cut)
	j.signal()
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

// cut begins the next segment and closes the open one.
func (j *Journal) cut(now time.Time) Cut {
	s := j.open
	cut := Cut{Segment: s.file, Bytes: s.w.Size(), Waited: j.waits}
	_ = s.commit(cut.Bytes) // where it fails the observer knows, and all who wait for it; the next segment helps
	cut.Cause = s.why()
	gone := errors.Is(s.w.InPlace(), capture.ErrGone)
	var c *carry
	switch {
	case gone:
		cut.Lost = cut.Bytes - s.head
	case j.opt.Compile != nil && !s.empty:
		c = newCarry(s)
		if j.opt.Grace > 0 {
			if cut.Err = c.find(now.Add(-j.opt.Grace), j.carried, j.opt.MaxCarries); cut.Err != nil {
				return cut
			}
		}
		cut.Carried, cut.TooOften, cut.TooMany = int64(len(c.traces)), c.tooOften, c.tooMany
		if cut.Err = j.writePending(s.id, c); cut.Err != nil {
			return cut
		}
	}
	next, err := j.begin(now, c)
	if err != nil {
		if c != nil {
			err = errors.Join(err, j.dropPending(s.id))
		}
		cut.Err = err
		return cut
	}
	j.open, j.waits, j.carried = next, false, nil
	if j.opt.Retention.MaxAge > 0 {
		j.ended[s.id.number] = now
	}
	j.size.Store(next.begun)
	if c != nil {
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

// begin begins the next segment, with what is carried into it. It has its name when that is durable.
func (j *Journal) begin(now time.Time, c *carry) (*open, error) {
	if err := j.hold(); err != nil {
		return nil, err
	}
	j.next++ // also where this fails: a number never comes back
	i := id{j.opt.Name, now.UTC().Truncate(time.Second), j.next}
	if c != nil && len(c.traces) > 0 {
		if err := j.opt.makeTemp(); err != nil {
			return nil, err
		}
		temp := filepath.Join(j.opt.temp(), i.String()+journalSuffix)
		if err := c.copy(temp); err != nil {
			return nil, errors.Join(fmt.Errorf("open traces were not carried on to the next segment: %w", err), os.Remove(temp))
		}
		if err := os.Rename(temp, j.opt.path(i, journalSuffix)); err != nil {
			return nil, err
		}
		syncDir(j.opt.Directory)
	}
	s, err := j.openSegment(i)
	if err != nil {
		return nil, err
	}
	s.empty = c == nil || len(c.traces) == 0
	s.safe = s.begun
	return s, nil
}
