// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
)

// work compiles closed segments, one at a time, and removes old ones.
func (j *Journal) work(ctx context.Context) {
	failed := map[int64]bool{} // not tried again by this process
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		}
		for j.compileNext(ctx, failed) {
			j.retain()
		}
		j.retain()
	}
}

// closedSegments returns the segments that are closed, oldest first.
func (j *Journal) closedSegments() []id {
	ids, err := list(j.opt.Directory, j.opt.Name)
	if err != nil {
		return nil // the next cut tries again
	}
	j.mu.Lock()
	current := j.open.id.number
	j.mu.Unlock()
	for n, i := range ids {
		if i.number >= current {
			return ids[:n]
		}
	}
	return ids
}

// compileNext compiles the oldest segment that is pending, and reports whether there was one.
func (j *Journal) compileNext(ctx context.Context, failed map[int64]bool) bool {
	if j.opt.Compile == nil || ctx.Err() != nil {
		return false
	}
	for _, i := range j.closedSegments() {
		if failed[i.number] {
			continue
		}
		if _, err := os.Stat(j.opt.path(i, pendingSuffix)); err != nil {
			continue
		}
		start := time.Now()
		res, err := j.compile(ctx, i)
		if err != nil {
			if ctx.Err() != nil {
				return false // the next process does it
			}
			failed[i.number] = true
		}
		j.opt.Observer.Compiled(Compilation{j.opt.path(i, journalSuffix), res, time.Since(start), err})
		return true
	}
	return false
}

// compile makes the trace of a segment, without the traces that were carried on.
func (j *Journal) compile(ctx context.Context, i id) (capture.Result, error) {
	leave, end, err := j.readPending(i)
	if err != nil {
		return capture.Result{}, err
	}
	opt := *j.opt.Compile
	opt.Skip = func(trace [16]byte) bool { return leave[trace] }
	if opt.TempDir == "" {
		if err := j.opt.makeTemp(); err != nil {
			return capture.Result{}, err
		}
		opt.TempDir = j.opt.temp()
	}
	file := j.opt.path(i, journalSuffix)
	res, err := capture.Compile(ctx, opt, capture.Files(j.opt.path(i, traceSuffix)), upTo(file, end))
	if err != nil {
		return res, err
	}
	// All of it was durable when it was closed, so what is missing now is damage, and no write that was cut off.
	if info, err := os.Stat(file); err == nil && info.Size() < end {
		missing := journal.Damage{Journal: file, Offset: info.Size(), Bytes: end - info.Size()}
		res.Damage, res.DamageCount, res.DamageBytes = append(res.Damage, missing), res.DamageCount+1, res.DamageBytes+missing.Bytes
	}
	return res, j.dropPending(i)
}

// upTo is a journal up to a size; 0 is all of it.
func upTo(file string, size int64) capture.Source {
	whole := capture.FileSource(file)
	if size == 0 {
		return whole
	}
	return capture.Source{Name: file, Open: func() (io.ReadCloser, error) {
		f, err := whole.Open()
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.LimitReader(f, size), f}, nil
	}}
}
