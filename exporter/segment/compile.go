// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
)

// work compiles closed segments, one at a time, and removes old ones.
func (j *Journal) work(ctx context.Context) {
	defer close(j.done)
	failed := map[int64]bool{} // not tried again by this process
	for {
		j.measure() // now, because compiling may take long
		wait := j.compileNext(ctx, failed)
		j.retain()
		j.measure()
		if wait == 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		case <-time.After(wait):
		}
	}
}

// signal wakes the worker.
func (j *Journal) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// closedSegments returns the segments that are closed, oldest first.
func (j *Journal) closedSegments() []id {
	ids, err := list(j.opt.Directory, j.opt.Name)
	if err != nil {
		return nil // the next cut tries again
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(ids, func(i id) bool { return i.number >= j.open.id.number })
}

// compileNext compiles the oldest pending segment whose grace period is over. It returns 0 if there was such a segment, or else
// the time until there is one.
func (j *Journal) compileNext(ctx context.Context, failed map[int64]bool) (wait time.Duration) {
	wait = math.MaxInt64
	if j.opt.Compile == nil || ctx.Err() != nil {
		return wait
	}
	closed := j.closedSegments()
	ends := j.ends(closed)
	for n, i := range closed {
		if _, err := os.Stat(j.opt.path(i, pendingSuffix)); err != nil || failed[i.number] {
			continue
		}
		start := time.Now()
		if left := ends[n].Add(j.opt.Grace).Sub(start); left > 0 {
			wait = min(wait, left)
			continue
		}
		res, err := j.compile(ctx, i)
		if err != nil {
			if ctx.Err() != nil {
				return wait // the next process does it
			}
			failed[i.number] = true
		}
		j.opt.Observer.Compiled(Compilation{j.opt.path(i, journalSuffix), res, time.Since(start), err})
		return 0
	}
	return wait
}

// compile makes the trace of a segment. The trace has a row for each request for which the record nearest to the engine is in
// this segment.
func (j *Journal) compile(ctx context.Context, i id) (capture.Result, error) {
	opt := *j.opt.Compile
	if opt.TempDir == "" {
		if err := j.opt.makeTemp(); err != nil {
			return capture.Result{}, err
		}
		opt.TempDir = j.opt.temp()
	}
	var err error
	if opt.Before, opt.After, err = j.beside(i); err != nil {
		return capture.Result{}, err
	}
	file := j.opt.path(i, journalSuffix)
	res, err := capture.Compile(ctx, opt, capture.Files(j.opt.path(i, traceSuffix)), capture.FileSource(file))
	if err != nil {
		return res, err
	}
	// The whole segment was on disk when it was closed, so missing bytes are damage, not an unfinished write.
	if info, err := os.Stat(file); err == nil && info.Size() < j.closedSize(i) {
		missing := journal.Damage{Journal: file, Offset: info.Size(), Bytes: j.closedSize(i) - info.Size()}
		res.Damage, res.DamageCount, res.DamageBytes = append(res.Damage, missing), res.DamageCount+1, res.DamageBytes+missing.Bytes
	}
	return res, j.dropPending(i)
}

// maxBeside limits how many journals before a segment, and how many after it, are read to compile it. When a clock is set back,
// there could otherwise be many.
const maxBeside = 16

// beside returns the journals with the records of the grace period before and after a segment. The open journal is read as far
// as it has been written. A segment ends when the next one begins.
func (j *Journal) beside(i id) (before, after []capture.Source, err error) {
	ids, err := list(j.opt.Directory, j.opt.Name)
	at := slices.Index(ids, i)
	if err != nil || at < 0 || j.opt.Grace == 0 {
		return nil, nil, err
	}
	add := func(to []capture.Source, n int) []capture.Source {
		file := j.opt.path(ids[n], journalSuffix)
		err := probe(file)
		if _, damaged := errors.AsType[*journal.Damage](err); err == nil || damaged {
			to = append(to, capture.FileSource(file))
		}
		return to // leave out an empty file, which may be removed at any time, and a file that is not a journal, which would fail the compilation
	}
	for n := at - 1; n >= max(0, at-maxBeside) && ids[n+1].begun.After(i.begun.Add(-j.opt.Grace)); n-- {
		before = add(before, n)
	}
	for n := at + 1; n < min(len(ids), at+1+maxBeside) && ids[n].begun.Before(ids[at+1].begun.Add(j.opt.Grace)); n++ {
		after = add(after, n)
	}
	return before, after, nil
}
