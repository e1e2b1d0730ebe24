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
)

// watch cuts the open segment when its time has come, with or without traffic.
func (j *Journal) watch(ctx context.Context) {
	for {
		j.mu.Lock()
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

// cutIfDue ends the open segment if it is large or old enough, or cannot be written. j.mu is held.
func (j *Journal) cutIfDue(now time.Time) {
	s := j.open
	old := !s.end.IsZero() && !now.Before(s.end)
	switch {
	case now.Before(j.retry):
		return
	case s.failed.Load():
	case s.w.Size()-s.begun >= j.opt.MaxBytes && !s.empty:
	case old && s.empty:
		s.end = j.opt.end(now) // an empty segment per hour is of no use
		return
	case !old:
		return
	}
	cut := j.cut(now)
	cut.Took = time.Since(now)
	if cut.Err != nil {
		j.retry = time.Now().Add(retryCut)
	}
	j.opt.Observer.Cut(cut)
	j.signal()
}

// cut begins the next segment and closes the open one.
func (j *Journal) cut(now time.Time) Cut {
	s := j.open
	cut := Cut{Segment: s.file, Bytes: s.w.Size()}
	_ = s.commit(cut.Bytes) // where it fails the observer knows, and all who wait for it; the next segment helps
	var c *carry
	if j.opt.Compile != nil {
		c = &carry{times: map[[16]byte]int{}}
		if j.opt.Grace > 0 {
			if cut.Err = c.find(s, s.since(now.Add(-j.opt.Grace)), j.carried, j.opt.MaxCarries); cut.Err != nil {
				return cut
			}
		}
		cut.Carried, cut.TooOften, cut.TooMany = int64(len(c.times)), c.tooOften, c.tooMany
		if cut.Err = j.writePending(s.id, c); cut.Err != nil {
			return cut
		}
	}
	next, err := j.begin(now, c)
	if err != nil {
		cut.Err = errors.Join(err, j.dropPending(s.id))
		return cut
	}
	j.open = next
	j.size.Store(next.begun)
	if c != nil {
		cut.CarriedBytes, j.carried = c.bytes, c.times
	}
	s.mu.Lock() // nobody is syncing
	_ = s.w.Close()
	s.mu.Unlock()
	return cut
}

// begin begins the next segment, with what is carried into it. It has its name when that is durable.
func (j *Journal) begin(now time.Time, c *carry) (*open, error) {
	j.next++ // also where this fails: a number never comes back
	i := id{j.opt.Name, now.UTC().Truncate(time.Second), j.next}
	if c != nil && len(c.times) > 0 {
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
	s.empty = c == nil || len(c.times) == 0
	s.safe = s.begun
	return s, nil
}
