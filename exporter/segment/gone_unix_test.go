// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package segment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
)

// renew removes a folder and creates it again.
func renew(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) }

// TestGone removes, under the open journal, what somebody may remove, and continues for five hours.
func TestGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		remove func(j *Journal) error
		sync   bool
		lost   int // acknowledged records that may be lost
	}{
		{"journal", func(j *Journal) error { return os.Remove(j.Segment()) }, true, 1},
		{"folder", func(j *Journal) error { return os.RemoveAll(j.opt.Directory) }, true, 1},
		{"folder made again", func(j *Journal) error { return renew(j.opt.Directory) }, true, 1},
		{"journal replaced", func(j *Journal) error {
			return errors.Join(os.Remove(j.Segment()), os.WriteFile(j.Segment(), []byte("something else"), 0o600))
		}, true, 1},
		{"journal renamed", func(j *Journal) error { return os.Rename(j.Segment(), j.Segment()+".1") }, true, 1},
		{"lock", func(j *Journal) error { return os.Remove(j.lock.Name()) }, true, 0},
		{"temporary files", func(j *Journal) error { return os.RemoveAll(j.opt.temp()) }, true, 0},
		{"journal, without syncs", func(j *Journal) error { return os.Remove(j.Segment()) }, false, 1 + 1}, // those of a second
		{"folder, without syncs", func(j *Journal) error { return os.RemoveAll(j.opt.Directory) }, false, 1 + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := new(watcher)
				opt := options(t, w)
				opt.NoSync = !c.sync
				j := mustOpen(t, opt)
				add(t, j, engine(1, 1, 0))
				if err := c.remove(j); err != nil {
					t.Fatal(err)
				}
				acknowledged, refused := []uint64{1}, 0
				for span := uint64(2); span <= 301; span++ {
					if _, err := j.Append(batch(t, engine(span, span, 0))); err == nil {
						acknowledged = append(acknowledged, span)
					} else if refused++; !errors.Is(err, journal.ErrGone) {
						t.Errorf("refused with %v", err)
					}
					time.Sleep(time.Minute)
				}
				if refused > 1 {
					t.Errorf("%d batches refused, want one at most: then a new segment is there", refused)
				}
				settle(t, j)
				for _, cut := range w.ends() {
					if cut.Err != nil {
						t.Errorf("cut: %v", cut.Err)
					}
				}
				if first := w.ends()[0]; c.lost > 0 && (!errors.Is(first.Cause, journal.ErrGone) || first.Lost == 0) {
					t.Errorf("the first cut is %+v, want one that says what was lost", first)
				}
				// The journal still holds its name.
				if _, err := Open(opt); err == nil || !strings.Contains(err.Error(), "give each its own name") {
					t.Errorf("a second journal of that name: %v", err)
				}
				mustClose(t, j)
				there := map[uint64]bool{}
				for _, name := range segments(t, opt.Directory) {
					if b, err := os.ReadFile(name); err != nil || string(b) == "something else" {
						continue
					}
					for r := range records(t, name) {
						there[uint64(r.SpanID[6])<<8+uint64(r.SpanID[7])] = true
					}
				}
				lost := 0
				for _, span := range acknowledged {
					if !there[span] {
						lost++
					}
				}
				if lost > c.lost {
					t.Errorf("%d of %d acknowledged records are lost, want at most %d", lost, len(acknowledged), c.lost)
				}
			})
		})
	}
}

// If the open journal was removed and nothing was appended since, Close reports that it is gone.
func TestGoneAtClose(t *testing.T) {
	j := mustOpen(t, options(t, new(watcher)))
	add(t, j, engine(1, 1, 0))
	if err := os.Remove(j.Segment()); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(context.Background()); !errors.Is(err, journal.ErrGone) {
		t.Errorf("got %v, want %v", err, journal.ErrGone)
	}
}

// While somebody else holds a name whose lock was removed, nothing is written; after that, the numbers continue after theirs.
func TestNameTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		j := mustOpen(t, opt)
		add(t, j, engine(1, 1, 0))
		if err := renew(opt.Directory); err != nil {
			t.Fatal(err)
		}
		opt.Observer = new(watcher)
		other := mustOpen(t, opt)
		for range 2 {
			add(t, other, engine(2, 2, 0))
			time.Sleep(time.Hour)
		}
		for range 3 {
			if _, err := j.Append(batch(t, engine(1, 2, 0))); err == nil {
				t.Fatal("two journals write under one name")
			}
			time.Sleep(retryCut)
		}
		if cut := w.ends()[0]; cut.Err == nil || !strings.Contains(cut.Err.Error(), "give each its own name") {
			t.Errorf("the cut's error is %v", cut.Err)
		}
		settle(t, other)
		mustClose(t, other)
		time.Sleep(retryCut)
		add(t, j, engine(1, 2, 0))
		names := segments(t, opt.Directory)
		if last := names[len(names)-1]; len(names) != 4 || last != j.Segment() || !strings.HasSuffix(last, "-000004.journal") {
			t.Errorf("segments %v, want three of the other, and %s", names, filepath.Base(j.Segment()))
		}
		mustClose(t, j)
	})
}
