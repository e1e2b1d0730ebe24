// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

// This file passes rows to a replay, and reads its results while it runs.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/mooncake"
)

const runPrefix = "run-"

// entry is a row of a plan that waits for its replay.
type entry struct {
	*mooncake.Row
	in    int64 // window
	place int64 // among the rows of plans
}

// replay is one call of agent.Run. Its first row determines its start.
type replay struct {
	dir   string
	begun time.Time
	in    *io.PipeWriter
	done  chan struct{} // closed when Run has returned
	err   error         // error of Run, after done

	running chan struct{}      // closed when it begins to send, or ends instead
	cancel  context.CancelFunc // ends it at once
	late    bool               // its first row was dropped, because the engine was not ready in time; feeder.mu guards it

	index map[int64]int64 // positions in this replay of the rows to which replies may refer, by their place among the rows of plans
	rows  int64
	fed   map[mooncake.SpanRef]int64 // windows of rows without a result
	read  int64                      // bytes of its results
}

// start starts a replay, which begins with the first row. begins is called when it is about to send.
func (c *Config) start(ctx context.Context, number int64, first *mooncake.Row, begins func(*replay)) *replay {
	r := &replay{
		dir: filepath.Join(c.Dir, fmt.Sprintf("%s%06d", runPrefix, number)), begun: time.Now(), done: make(chan struct{}),
		running: make(chan struct{}), index: map[int64]int64{}, fed: map[mooncake.SpanRef]int64{},
	}
	ctx, r.cancel = context.WithCancel(ctx)
	out, in := io.Pipe()
	r.in = in
	cfg := c.Replay
	cfg.Trace = agent.Trace{Name: "-", Stdin: out, BlockSize: mooncake.BlockSize, FineBlockSize: fineBlock, Unit: time.Millisecond, Sessions: mooncake.SessionFull, Lookahead: 1}
	cfg.Out, cfg.NoPage = r.dir, true
	cfg.Schedule.StartAt, cfg.Schedule.Fixed, cfg.Schedule.OpenLoop = c.dueAt(first), true, true
	cfg.Warn = func(text string) { c.Warn("replay: " + text) }
	cfg.Progress = func(*agent.Live) { begins(r) }
	go func() {
		defer close(r.done)
		defer r.cancel()
		_, r.err = agent.Run(ctx, cfg)
		_ = out.CloseWithError(errEnded) // so that writers do not wait
	}()
	return r
}

// maxIndex is the maximum number of rows to which replies may refer.
const maxIndex = 1 << 20

var errEnded = errors.New("the replay has ended")

// dueAt returns when a row is to be sent.
func (c *Config) dueAt(row *mooncake.Row) time.Time {
	return time.Unix(0, int64(math.Round(row.Timestamp.V*1e6))).Add(c.Delay)
}

// line encodes a row for the replay.
func (r *replay) line(e entry) []byte {
	row := *e.Row
	row.Replies = nil
	for _, reply := range e.Replies {
		if to, ok := r.index[e.place-reply.Back]; ok { // else this replay did not send it
			reply.Back = r.rows - to
			row.Replies = append(row.Replies, reply)
		}
	}
	r.index[e.place] = r.rows
	delete(r.index, e.place-maxIndex)
	r.rows++
	return append(mooncake.AppendRow(nil, &row), '\n')
}

// results calls yield for each new line of the results.
func (r *replay) results(yield func([]byte) error) error {
	f, err := atomicfile.Open(filepath.Join(r.dir, report.PartialFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	if _, err := f.Seek(r.read, io.SeekStart); err != nil {
		return err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxLine))
	if err != nil {
		return err
	}
	end := bytes.LastIndexByte(content, '\n') + 1
	r.read += int64(end)
	for line := range bytes.Lines(content[:end]) {
		if err := yield(line); err != nil {
			return fmt.Errorf("results of %s: %w", r.dir, err)
		}
	}
	return nil
}

// allResults calls yield for each line of the results of a replay that has ended, or was killed.
func allResults(dir string, yield func([]byte) error) error {
	return errors.Join(
		eachLine(filepath.Join(dir, report.PartialFile), yield),
		eachLine(filepath.Join(dir, report.RequestsFile), yield),
	)
}

// runFolders returns the folders of replays, oldest first.
func (c *Config) runFolders() (dirs []string, err error) {
	entries, err := os.ReadDir(c.Dir)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), runPrefix) {
			dirs = append(dirs, filepath.Join(c.Dir, e.Name()))
		}
	}
	slices.Sort(dirs)
	return dirs, err
}

// feeder passes rows to replays, in the order of their plans. add never waits for a replay; run does, in a goroutine of its own.
type feeder struct {
	cfg   *Config
	mu    sync.Mutex
	queue []entry
	wake  chan struct{}
	// started and drops are what the books must record.
	started []*replay
	drops   []entry
}

func newFeeder(cfg *Config) *feeder { return &feeder{cfg: cfg, wake: make(chan struct{}, 1)} }

// add adds rows.
func (f *feeder) add(rows []entry) {
	f.mu.Lock()
	f.queue = append(f.queue, rows...)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// news returns the replays that were started, and the rows that were too late, since the last call.
func (f *feeder) news() (started []*replay, drops []entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	started, drops = f.started, f.drops
	f.started, f.drops = nil, nil
	return started, drops
}

// next waits for the next row that is not too late. After the end of ctx there is none: the next process sends the rows that wait.
func (f *feeder) next(ctx context.Context) (e entry, ok bool) {
	for ctx.Err() == nil {
		f.mu.Lock()
		if len(f.queue) > 0 {
			e, f.queue = f.queue[0], f.queue[1:]
			if f.cfg.tooLate(e) {
				f.drops = append(f.drops, e)
				f.mu.Unlock()
				continue
			}
			f.mu.Unlock()
			return e, true
		}
		f.mu.Unlock()
		select {
		case <-f.wake:
		case <-ctx.Done():
		}
	}
	return entry{}, false
}

// run passes rows until ctx ends. number is that of the next replay.
func (f *feeder) run(ctx context.Context, number int64) {
	var r *replay
	for {
		e, ok := f.next(ctx)
		if !ok {
			break
		}
		if r != nil && time.Since(r.begun) > renew {
			_ = r.in.Close() // the replay ends when it has sent its rows
			r = nil
		}
		if r != nil {
			select {
			case <-r.done:
				r = nil
			default:
			}
		}
		began := r == nil
		if began {
			r = f.cfg.start(ctx, number, e.Row, func(r *replay) { f.begins(r, e) })
			number++
			f.mu.Lock()
			f.started = append(f.started, r)
			f.mu.Unlock()
		}
		f.mu.Lock()
		r.fed[e.OTel] = e.in
		line := r.line(e)
		f.mu.Unlock()
		if _, err := r.in.Write(line); err != nil { // the replay's results record the row
			pause(ctx)
		} else if began && !f.awaitStart(ctx, r, e) {
			r = nil
		}
	}
	if r != nil {
		_ = r.in.Close()
	}
}

// pause waits before the next row starts another replay, because one has ended at once: perhaps the engine is not available.
func pause(ctx context.Context) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// tooLate reports whether a row is dropped, because it would be sent too late.
func (c *Config) tooLate(e entry) bool { return time.Since(c.dueAt(e.Row)) > c.MaxLag }

// awaitStart waits until a replay, which has only its first row, begins to send, and reports whether it takes more rows. If the engine is not
// ready, this can take as long as the replay waits for it. Rows that become too late meanwhile are dropped: a replay would send them all when
// the engine is ready.
func (f *feeder) awaitStart(ctx context.Context, r *replay, first entry) bool {
	each := time.NewTicker(tick)
	defer each.Stop()
	for {
		select {
		case <-r.running:
			f.mu.Lock()
			late := r.late
			f.mu.Unlock()
			if late {
				_ = r.in.Close()
				<-r.done
			}
			return !late
		case <-r.done:
			pause(ctx)
			return false
		case <-ctx.Done():
			return true
		case <-each.C:
		}
		f.mu.Lock()
		f.dropLate(r, first)
		for len(f.queue) > 0 && f.cfg.tooLate(f.queue[0]) {
			f.drops, f.queue = append(f.drops, f.queue[0]), f.queue[1:]
		}
		f.mu.Unlock()
	}
}

// begins records that a replay is about to send. If its first row is too late, the replay ends instead.
func (f *feeder) begins(r *replay, first entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropLate(r, first); r.late {
		r.cancel()
	}
	close(r.running)
}

// dropLate drops the first row of a replay that does not send yet, if the row is too late. f.mu is held.
func (f *feeder) dropLate(r *replay, first entry) {
	select {
	case <-r.running: // the row is sent
		return
	default:
	}
	if !r.late && f.cfg.tooLate(first) {
		r.late = true
		f.drops = append(f.drops, first)
	}
}
