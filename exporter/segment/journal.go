// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/atomicfile"
)

// ErrClosed is the error of an Append after Close.
var ErrClosed = errors.New("journal is closed")

// Journal appends records to the open segment. It is safe for concurrent use.
type Journal struct {
	opt  Options
	lock *os.File

	mu     sync.Mutex
	open   *open
	number int64       // number of the newest segment
	timer  *time.Timer // calls age; nil if segments end only by size
	retry  time.Time   // no cut is tried before this time
	looked time.Time   // when it was last checked that the files exist
	waits  bool        // a cut by size is delayed
	closed bool
	ended  map[int64]time.Time // when this process closed its segments

	size  atomic.Int64          // of the open segment
	usage atomic.Pointer[Usage] // of the closed files

	begun  time.Time // when this Journal was opened
	newest time.Time // when the newest journal of an earlier process was last written; at most begun

	wake chan struct{} // there may be something to compile or remove
	stop context.CancelFunc
	done chan struct{} // closed when the worker has ended
}

// Open continues the open segment of an earlier process, or begins the first one. It is an error if another Journal has the same directory
// and name open.
func Open(opt Options) (*Journal, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if opt.MaxBytes == 0 {
		opt.MaxBytes = DefaultMaxBytes
	}
	if opt.Observer == nil {
		opt.Observer = nobody{}
	}
	now := time.Now()
	j := &Journal{
		opt: opt, looked: now, begun: now, newest: now, ended: map[int64]time.Time{}, wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	var err error
	if j.lock, err = opt.lock(); err != nil {
		return nil, err
	}
	if err := j.start(); err != nil {
		return nil, fmt.Errorf("journal %s in %s cannot be started: %w", opt.Name, opt.Directory, errors.Join(err, j.lock.Close()))
	}
	if opt.MaxAge > 0 {
		j.mu.Lock()
		j.timer = time.AfterFunc(0, j.age)
		j.mu.Unlock()
	}
	ctx, stop := context.WithCancel(context.Background())
	j.stop = stop
	go j.work(ctx)
	return j, nil
}

// lock makes sure that a name has only one writer.
func (o *Options) lock() (*os.File, error) {
	if err := os.MkdirAll(o.Directory, 0o700); err != nil {
		return nil, fmt.Errorf("directory for journals cannot be made: %w", err)
	}
	file := filepath.Join(o.Directory, o.Name+".lock")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the user names the folder
	if err != nil {
		return nil, fmt.Errorf("journal cannot be locked: %w", err)
	}
	if err := atomicfile.Lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is locked: another exporter or process writes journals of this directory and name; give each its own name: %w", file, err), f.Close())
	}
	return f, nil
}

// start finds the segment to continue.
func (j *Journal) start() error {
	if err := j.sweep(); err != nil {
		return err
	}
	ids, err := list(j.opt.Directory, j.opt.Name)
	if err != nil {
		return err
	}
	if n := len(ids); n > 0 {
		last := ids[n-1]
		j.number = last.number
		if info, err := os.Stat(j.opt.path(last, journalSuffix)); err == nil && info.ModTime().Before(j.newest) {
			j.newest = info.ModTime()
		}
		if err := j.resume(last); err != nil {
			j.opt.Observer.Leftover(j.opt.path(last, journalSuffix), err)
		}
	}
	if j.open == nil {
		if j.open, err = j.begin(time.Now()); err != nil {
			return err
		}
	}
	j.size.Store(j.open.w.Size())
	return nil
}

// resume continues the segment that an earlier process left, however that process ended. A segment without records is removed.
func (j *Journal) resume(last id) (err error) {
	file := j.opt.path(last, journalSuffix)
	if errors.Is(probe(file), io.EOF) {
		return os.Remove(file) // its name would have a wrong time
	}
	if err := j.dropPending(last); err != nil { // without a next segment it was not closed
		return err
	}
	j.open, err = j.openSegment(last)
	return err
}

// sweep removes unfinished files of an earlier process.
func (j *Journal) sweep() error {
	if err := errors.Join(os.RemoveAll(j.opt.temp()), j.opt.makeTemp()); err != nil {
		return err
	}
	entries, err := os.ReadDir(j.opt.Directory)
	if err != nil {
		return err
	}
	for _, e := range entries {
		// A temporary file of a trace: .<segment>.jsonl.<random>.tmp.
		rest, ours := strings.CutPrefix(e.Name(), "."+j.opt.Name)
		stamp, _, _ := strings.Cut(rest, ".")
		if _, ok := parse(j.opt.Name, j.opt.Name+stamp+journalSuffix); ours && ok && strings.HasSuffix(rest, ".tmp") {
			_ = os.Remove(filepath.Join(j.opt.Directory, e.Name())) // it only uses space
		}
	}
	return nil
}

// Append writes the records of a batch, and returns their size in bytes. If its error is nil, they are durable, in a file that still has
// its name, unless Options.NoSync is set. After an error, some of them may be in the journal; appending them again is harmless.
func (j *Journal) Append(b *journal.Batch) (int64, error) {
	if b.Len() == 0 {
		return 0, nil
	}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return 0, ErrClosed
	}
	now := time.Now()
	j.look(now)
	j.cutIfDue(now)
	s := j.open
	if s.failed.Load() {
		j.mu.Unlock()
		return 0, s.commit(1 << 62)
	}
	before := s.w.Size()
	err := s.w.AppendBatch(b)
	size := s.w.Size()
	j.size.Store(size)
	j.mu.Unlock()
	if err != nil || j.opt.NoSync {
		return size - before, err
	}
	return size - before, s.commit(size)
}

// look checks, once a second, whether the open files still have their names. If somebody has removed them, the next segment begins in new
// files, because nobody would find what is written to the old ones. j.mu must be locked.
func (j *Journal) look(now time.Time) {
	if since := now.Sub(j.looked); since >= 0 && since < time.Second {
		return
	}
	j.looked = now
	if err := cmp.Or(atomicfile.InPlace(j.lock), j.open.w.InPlace()); err != nil {
		j.open.mu.Lock()
		_ = j.open.fail(err)
		j.open.mu.Unlock()
	}
}

// hold acquires the lock again if the lock file was removed or replaced. j.mu must be locked.
func (j *Journal) hold() error {
	if err := atomicfile.InPlace(j.lock); !errors.Is(err, journal.ErrGone) {
		return err
	}
	lock, err := j.opt.lock()
	if err != nil {
		return err
	}
	_ = j.lock.Close()
	j.lock = lock
	ids, err := list(j.opt.Directory, j.opt.Name)
	if n := len(ids); n > 0 {
		j.number = max(j.number, ids[n-1].number) // another process had the name meanwhile
	}
	return err
}

// Size returns the size of the open segment, in bytes.
func (j *Journal) Size() int64 { return j.size.Load() }

// Segment returns the file of the open segment.
func (j *Journal) Segment() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.open.file
}

// Close makes the open segment durable and ends the background work: a running compilation is aborted, and left to the next process. The
// context limits the wait for the end of the background work.
func (j *Journal) Close(ctx context.Context) error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	if j.timer != nil {
		j.timer.Stop()
	}
	j.mu.Unlock()
	j.stop()
	var err error
	select {
	case <-j.done:
	case <-ctx.Done():
		err = fmt.Errorf("compiling a segment did not end in time: %w", context.Cause(ctx))
	}
	s := j.open // it is no longer replaced
	if commit := s.commit(s.w.Size()); commit != nil {
		err = errors.Join(err, commit)
	}
	if err == nil {
		_ = os.Remove(j.opt.temp())
	}
	return errors.Join(err, s.w.Close(), j.lock.Close())
}
