// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

// This file follows the journals of a folder. It copies new records to its own journals, one for each window, so that a window is compiled
// from few files, including records that the folder has removed since.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/atomicfile"
)

const (
	journalSuffix = ".journal"
	spansFolder   = "spans"
	flushBytes    = 1 << 20
	// ahead is the maximum lead of a producer's clock over ours.
	ahead = time.Minute
)

// place is how far a journal has been read.
type place struct {
	Offset     int64 `json:"offset"`               // of the first byte that was not read
	Dictionary int64 `json:"dictionary,omitempty"` // of the first byte that is needed to continue from there
	Size       int64 `json:"size"`                 // of the journal when it was read
}

// losses count what the journals had and the windows do not have.
type losses struct {
	Torn         int64 `json:"torn_records"`         // cut off by a crash of the Collector
	Damaged      int64 `json:"damaged_stretches"`    // of a journal
	RemovedBytes int64 `json:"removed_unread_bytes"` // of journals that were removed before they were read
	Older        int64 `json:"older_than_history"`   // records of spans that began before the history
	Ahead        int64 `json:"ahead_of_clock"`       // records of spans that begin more than a minute after now
}

// follower reads journals. It is not safe for concurrent use.
type follower struct {
	cfg    *Config
	dir    string // of the windows' journals
	places map[string]place
	lost   *losses
	oldest int64 // window; earlier records are lost
	open   map[int64]*journal.Writer
	odd    map[string]bool // files that are not journals
	found  bool            // the folder has been there
}

func newFollower(cfg *Config, places map[string]place, lost *losses) (*follower, error) {
	f := &follower{cfg: cfg, dir: filepath.Join(cfg.Dir, spansFolder), places: places, lost: lost, open: map[int64]*journal.Writer{}, odd: map[string]bool{}}
	return f, os.MkdirAll(f.dir, 0o700)
}

// poll reads new records. The windows' journals have all of them, on disk, before the positions change.
func (f *follower) poll(ctx context.Context, now time.Time) error {
	entries, err := os.ReadDir(f.cfg.Journals)
	if f.found && errors.Is(err, fs.ErrNotExist) {
		f.cfg.Warn(fmt.Sprintf("the folder of journals %s is gone: nothing is read until the Collector makes it again", f.cfg.Journals))
		entries, err = nil, nil // its journals were removed
	}
	if err != nil {
		return fmt.Errorf("folder of journals: %w; name the directory of the Collector's exporter, such as moonloop-capture/traces", err)
	}
	f.found = true
	there := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(name, journalSuffix) || f.odd[name] {
			continue // removed meanwhile, or not a journal
		}
		there[name] = true
		at, known := f.places[name]
		if !known && info.ModTime().Before(f.cfg.begin(f.oldest)) {
			at = place{info.Size(), journal.HeaderSize, info.Size()} // all of it is older than needed
			f.places[name] = at
		}
		if info.Size() < at.Offset {
			f.cfg.Warn(fmt.Sprintf("journal %s is shorter than before: it was replaced, and is read from its beginning", name))
			at = place{}
		}
		if info.Size() == at.Size && known {
			continue
		}
		switch at, err = f.read(ctx, name, at, now); {
		case errors.Is(err, journal.ErrNotJournal):
			f.odd[name] = true
			f.cfg.Warn(err.Error() + "; it is left out")
		case errors.Is(err, fs.ErrNotExist):
			delete(there, name)
		case err != nil:
			return err
		default:
			f.places[name] = at
		}
	}
	for name, at := range f.places {
		if !there[name] {
			f.lost.RemovedBytes += max(0, at.Size-max(at.Offset, journal.HeaderSize)) // an idle Collector replaces journals without records
			delete(f.places, name)
		}
	}
	return nil
}

// read reads a journal from a position on.
func (f *follower) read(ctx context.Context, name string, at place, now time.Time) (place, error) {
	file, err := atomicfile.Open(filepath.Join(f.cfg.Journals, name))
	if err != nil {
		return at, fmt.Errorf("journal: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return at, fmt.Errorf("journal: %w", err)
	}
	if at.Size = info.Size(); at.Size < journal.HeaderSize {
		return at, nil // it has just been made
	}
	r := journal.NewReaderAt(name, file, at.Size, journal.Place{Offset: at.Offset, Dictionary: at.Dictionary})
	batches := map[int64]*journal.Batch{}
	var damaged, torn int64 // before the last whole record
	var pending int64
	for {
		record, err := r.Next()
		if _, ok := errors.AsType[*journal.Damage](err); ok {
			pending++
			continue
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return at, err
		}
		if ctx.Err() != nil {
			return at, context.Cause(ctx)
		}
		read := r.Place()
		at.Offset, at.Dictionary = read.Offset, read.Dictionary
		damaged, pending, torn = damaged+pending, 0, r.Torn().Records
		window, ok := f.sort(record, now)
		if !ok {
			continue
		}
		b := batches[window]
		if b == nil {
			b = &journal.Batch{}
			batches[window] = b
		}
		if err := b.Add(record); err != nil {
			return at, err
		}
		if b.Size() > flushBytes {
			if err := f.write(window, b); err != nil {
				return at, err
			}
		}
	}
	for window, b := range batches {
		if err := f.write(window, b); err != nil {
			return at, err
		}
	}
	f.lost.Damaged += damaged
	f.lost.Torn += torn
	return at, nil
}

// sort returns the window in which a record's span began; ok is false if there is none.
func (f *follower) sort(record journal.Record, now time.Time) (window int64, ok bool) {
	var start int64
	switch r := record.(type) {
	case *journal.Inference:
		start = r.Start
	case *journal.Content:
		start = r.Start
	case *journal.Link:
		start = r.Start
	}
	if start <= 0 { // unknown
		start = now.UnixNano()
	}
	window = f.cfg.windowOf(start)
	switch {
	case window < f.oldest:
		f.lost.Older++
		return 0, false
	case start > now.Add(ahead).UnixNano():
		f.lost.Ahead++
		return 0, false
	}
	return window, true
}

// write appends a batch to the journal of a window.
func (f *follower) write(window int64, b *journal.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	w := f.open[window]
	if w == nil {
		var err error
		if w, err = journal.OpenWriter(f.file(window), journal.WriterOptions{}); err != nil {
			return err
		}
		f.open[window] = w
	}
	err := w.AppendBatch(b)
	b.Reset()
	return err
}

func (f *follower) file(window int64) string {
	return filepath.Join(f.dir, stamp(f.cfg.begin(window))+journalSuffix)
}

// stamp returns the name of a window in files.
func stamp(begin time.Time) string { return begin.UTC().Format("20060102T150405Z") }

// windowNamed parses the window from the beginning of a file's name.
func (c *Config) windowNamed(name string) (window int64, ok bool) {
	begin, err := time.Parse("20060102T150405Z", strings.SplitN(name, ".", 2)[0])
	return c.windowOf(begin.UnixNano()), err == nil
}

// sources returns the journals of the windows from first to end-1, as far as they exist.
func (f *follower) sources(first, end int64) (all []capture.Source) {
	for window := first; window < end; window++ {
		if _, err := os.Stat(f.file(window)); err == nil {
			all = append(all, capture.FileSource(f.file(window)))
		}
	}
	return all
}

// forget removes the windows before oldest.
func (f *follower) forget(oldest int64) {
	f.oldest = oldest
	for window, w := range f.open {
		if window < oldest {
			_ = w.Close()
			delete(f.open, window)
		}
	}
	f.cfg.removeBefore(f.dir, oldest)
}

// removeBefore removes the files of the windows before oldest.
func (c *Config) removeBefore(dir string, oldest int64) {
	entries, _ := os.ReadDir(dir) // files that cannot be listed are removed the next time
	for _, e := range entries {
		if window, ok := c.windowNamed(e.Name()); ok && window < oldest {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func (f *follower) close() {
	for _, w := range f.open {
		_ = w.Close()
	}
}
