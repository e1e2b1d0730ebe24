// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// This file lets a process with several cores compile as several shards, see shard.go, which leave their results in memory, and in temporary
// files beyond it.

// mostCores is the maximum number of shards of a process. Each has another goroutine that sorts, and one that merges, so two use more than
// two cores.
const mostCores = 2

// process is a place for the shards of one process.
type process struct {
	ctx      context.Context //nolint:containedctx // it lives as long as the call
	mutex    sync.Mutex
	left     map[string]*sorter
	room     int // bytes of memory for items that were left; negative if there are more
	said     map[string]*finding
	progress func(stage Stage, done, total int64) // that of the options; not nil
	stage    Stage
	done     [][2]int64 // and total, by shard
}

// finding is what a shard found out, or will find out, in a phase.
type finding struct {
	done    chan struct{} // closed when it is known
	learned *learned
}

// compile compiles with this many shards.
func compile(ctx context.Context, opt Options, sink Sink, count int, journals []Source) (Result, error) {
	parent := ctx
	ctx, stop := context.WithCancelCause(ctx) // if a shard fails, the others stop
	defer stop(nil)
	t := &process{
		ctx: ctx, left: map[string]*sorter{}, room: opt.Memory / 4, said: map[string]*finding{}, progress: opt.Progress, done: make([][2]int64, count),
	}
	defer t.close()
	shards, key := make([]*sharded, count), keyOf(&opt, count, journals)
	for i := range shards {
		own := opt
		if i > 0 {
			own.Before, own.After = nil, nil // one shard reads them
		}
		if opt.Progress != nil {
			own.Progress = func(stage Stage, done, total int64) { t.update(i, stage, done, total) }
		}
		shards[i] = &sharded{
			Shard: Shard{Index: i, Of: count}, ctx: ctx, opt: own, memory: max(opt.Memory/count, 1), sink: sink,
			journals: journals, key: key, place: t,
		}
	}
	var others sync.WaitGroup
	for _, s := range shards[1:] {
		others.Go(func() {
			if _, err := s.compile(); err != nil {
				stop(err)
			}
		})
	}
	res, err := shards[0].compile()
	if err != nil {
		stop(err)
	}
	others.Wait()
	if err == nil {
		return res, nil
	}
	if !shards[0].writes {
		res = countedBy(parent, opt, shards)
	}
	return res, fmt.Errorf("journals were not compiled: %w", err)
}

// countedBy returns the result of a compile that failed before its last phase: what was counted up to the failure.
func countedBy(ctx context.Context, opt Options, shards []*sharded) Result {
	var all []*learned
	for i := range phases {
		for _, s := range shards {
			if one, err := s.heard(s.file(&phases[i], s.Index, "json")); err == nil {
				all = append(all, one)
			}
		}
	}
	for _, s := range shards {
		if s.failed != nil {
			all = append(all, s.failed)
		}
	}
	c := newCompiler(ctx, opt, nil)
	defer c.close()
	c.know(all, &phases[len(phases)-1])
	return c.result()
}

// update reports the progress of a shard together with that of the others, which are in the same stage, or have not begun it.
func (t *process) update(shard int, stage Stage, done, total int64) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if stage != t.stage {
		t.stage = stage
		clear(t.done)
	}
	t.done[shard] = [2]int64{done, total}
	done, total = 0, 0
	for _, n := range t.done {
		done, total = done+n[0], total+n[1]
	}
	t.progress(stage, done, total)
}

func (t *process) close() {
	for _, s := range t.left {
		s.close()
	}
}

func (t *process) prepare(*sorter) {}

func (t *process) leave(s *sorter, name string, most int) error {
	if err := s.wait(); err != nil {
		return err
	}
	if t.fits(s.used) && s.file.File == nil {
		s.settled()
		s.spare, s.free = nil, nil
	} else if err := s.settle(most); err != nil {
		return err
	}
	kept := *s
	*s = *newSorter(s.dir, s.limit)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.left[name] = &kept
	t.room -= kept.used
	return nil
}

// fits reports whether there is memory for this many bytes of items.
func (t *process) fits(bytes int) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return bytes <= t.room
}

func (t *process) take(s *sorter, name string, from, to int) (before int64, err error) {
	t.mutex.Lock()
	left := t.left[name]
	t.mutex.Unlock()
	for _, r := range left.runs {
		a, b := r.cuts[from], r.cuts[to]
		before += a.count
		s.count += b.count - a.count
		if b.size > a.size { // the file is closed with the sorter that left it
			s.from = append(s.from, segment{file: struct{ io.ReaderAt }{left.file.File}, offset: r.offset + a.size, size: b.size - a.size, skip: r.skip})
		}
	}
	for _, r := range left.sorted {
		cuts := r.cuts(left.parts)
		a, b := cuts[from], cuts[to]
		before += a.count
		s.count += b.count - a.count
		if b.size > a.size {
			s.from = append(s.from, segment{data: r.data[a.size:b.size], skip: r.skip})
		}
	}
	return before, nil
}

// cuts returns where the parts of a segment in memory begin, and its end.
func (s *segment) cuts(parts int) (cuts []cut) {
	at := cut{}
	for {
		b, size := takeItem(s.data[at.size:])
		if b == nil {
			break
		}
		for part := partOf(b, parts); len(cuts) <= part; {
			cuts = append(cuts, at)
		}
		at = cut{at.size + int64(size), at.count + 1}
	}
	for len(cuts) <= parts {
		cuts = append(cuts, at)
	}
	return cuts
}

func (t *process) remove(name string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if s := t.left[name]; s != nil {
		delete(t.left, name)
		t.room += s.used
		s.close()
	}
}

// about returns what a shard said, or will say.
func (t *process) about(name string) *finding {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.said[name] == nil {
		t.said[name] = &finding{done: make(chan struct{})}
	}
	return t.said[name]
}

func (t *process) say(name string, all *learned) error {
	s := t.about(name)
	s.learned = all
	close(s.done)
	return nil
}

func (t *process) heard(name string) (*learned, error) {
	s := t.about(name)
	select {
	case <-s.done:
		return s.learned, nil
	default:
		return nil, fs.ErrNotExist
	}
}

func (t *process) await(name string, _ int) (*learned, error) {
	s := t.about(name)
	select {
	case <-s.done:
		return s.learned, nil
	case <-t.ctx.Done():
		return nil, context.Cause(t.ctx)
	}
}
