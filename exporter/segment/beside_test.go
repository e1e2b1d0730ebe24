// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// beginCut begins a cut as cutIfDue does of a large segment, and leaves it to the test to make it.
func beginCut(j *Journal) *carry {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cutting = true
	return j.newCarry(time.Now())
}

// TestAppendWhileCut has records come in while a cut is made: they are in the new segment, also as far as the segments' own
// traces are concerned, and nothing is in none of them.
func TestAppendWhileCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		j := mustOpen(t, options(t, w))
		const quiet, open, young = 1, 2, 3
		add(t, j, engine(quiet, 1, 0), engine(open, 1, 0))
		time.Sleep(2 * time.Minute)
		add(t, j, engine(open, 2, 0))
		c := beginCut(j)
		time.Sleep(time.Second)
		add(t, j, engine(open, 3, 0), engine(young, 1, 0), engine(quiet, 2, 0))
		if names := segments(t, j.opt.Directory); len(names) != 1 {
			t.Fatalf("segments while the cut is made: %v", names)
		}
		j.cutBeside(t.Context(), c)
		add(t, j, engine(young, 2, 0))
		settle(t, j)

		names := segments(t, j.opt.Directory)
		if len(names) != 2 || len(w.ends()) != 1 {
			t.Fatalf("segments %v, cuts %v", names, w.ends())
		}
		if got := rows(t, names[0]); len(got) != 1 || got[0].HashIDs == nil {
			t.Errorf("rows of the old segment: %v, want that of the quiet trace", got)
		}
		got := records(t, names[1])
		for _, want := range []mooncake.SpanRef{ref(open, 1), ref(open, 2), ref(open, 3), ref(young, 1), ref(young, 2), ref(quiet, 2)} {
			if got[want] != 1 {
				t.Errorf("the new segment has %v %d times", want, got[want])
			}
		}
		if len(got) != 6 {
			t.Errorf("%d records in the new segment, want 6", len(got))
		}
		cut := w.ends()[0]
		if cut.Carried != 1 || cut.CarriedBytes == 0 || j.open.begun >= j.open.w.Size()/2 {
			t.Errorf("carried %d traces of %d bytes; the new segment began with %d of %d bytes", cut.Carried, cut.CarriedBytes, j.open.begun, j.open.w.Size())
		}

		// What came during the cut is as recent as it was: it goes on again if the next cut is soon.
		j.cutBeside(t.Context(), beginCut(j))
		settle(t, j)
		names = segments(t, j.opt.Directory)
		if got := rows(t, names[1]); len(got) != 0 || len(records(t, names[2])) != 6 {
			t.Errorf("rows of a segment all of which is within grace: %v", got)
		}
		time.Sleep(2 * time.Minute)
		j.cutBeside(t.Context(), beginCut(j))
		settle(t, j)
		if got := rows(t, names[2]); len(got) != 6 {
			t.Errorf("%d rows of the third segment, want 6", len(got))
		}
		w.good(t)
		mustClose(t, j)
	})
}

// TestCutBesideGivenUp ends a cut at the points where it can end, after which the old segment goes on.
func TestCutBesideGivenUp(t *testing.T) {
	for _, c := range []struct {
		reason string
		end    func(t *testing.T, j *Journal, c *carry)
	}{
		{"closed while it waits", func(t *testing.T, j *Journal, c *carry) { t.Helper(); mustClose(t, j) }},
		{"closed while it is made", func(t *testing.T, j *Journal, c *carry) {
			t.Helper()
			mustClose(t, j)
			j.cutBeside(t.Context(), c)
		}},
		{"killed when all is copied", func(t *testing.T, j *Journal, c *carry) {
			t.Helper()
			if err := j.carryOn(t.Context(), c, c.size); err != nil {
				t.Fatal(err)
			}
			crash(j)
			_ = c.w.Close()
		}},
		{"no room for the copies", func(t *testing.T, j *Journal, c *carry) {
			t.Helper()
			if err := os.WriteFile(j.opt.temp()+"x", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(j.opt.temp()); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(j.opt.temp()+"x", j.opt.temp()); err != nil { // a file where a folder should be
				t.Fatal(err)
			}
			j.cutBeside(t.Context(), c)
			add(t, j, engine(9, 9, 0)) // which must not wait for anything
			mustClose(t, j)
			if err := os.RemoveAll(j.opt.temp()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := new(watcher)
			opt := options(t, w)
			j := mustOpen(t, opt)
			add(t, j, engine(1, 1, 0), engine(2, 1, 0))
			cut := beginCut(j)
			add(t, j, engine(2, 2, 0))
			c.end(t, j, cut)

			j = mustOpen(t, opt)
			names := segments(t, opt.Directory)
			if len(names) != 1 || len(records(t, names[0])) < 3 {
				t.Errorf("segments %v", names)
			}
			if pending, err := filepath.Glob(filepath.Join(opt.Directory, "*.pending")); err != nil || len(pending) > 0 {
				t.Errorf("pending: %v, %v", pending, err)
			}
			mustClose(t, j)
		})
	}
}

// TestGoneWhileCut removes the folder while a cut is made: what comes next begins in a new one.
func TestGoneWhileCut(t *testing.T) {
	w := new(watcher)
	j := mustOpen(t, options(t, w))
	add(t, j, engine(1, 1, 0))
	c := beginCut(j)
	if err := os.RemoveAll(j.opt.Directory); err != nil {
		t.Fatal(err)
	}
	j.cutBeside(t.Context(), c)
	add(t, j, engine(2, 1, 0))
	if cuts := w.ends(); len(cuts) != 1 || cuts[0].Err != nil || cuts[0].Lost == 0 {
		t.Errorf("cuts: %+v", cuts)
	}
	if names := segments(t, j.opt.Directory); len(names) != 1 || records(t, names[0])[ref(2, 1)] != 1 {
		t.Errorf("segments %v", names)
	}
	mustClose(t, j)
}

// TestConcurrentBeside appends from several goroutines while segments are cut that are too large to be cut at once. All of
// their journals compile to what one journal would have.
func TestConcurrentBeside(t *testing.T) {
	w := new(watcher)
	opt := options(t, w)
	opt.MaxBytes, opt.Grace, opt.NoSync = 20_000, 50*time.Millisecond, true
	j := mustOpen(t, opt)
	j.mu.Lock()
	j.atOnce = 0
	j.mu.Unlock()
	one := opt
	one.Directory, one.MaxBytes, one.Observer, one.Compile = filepath.Join(t.TempDir(), "one"), 1<<40, nil, nil
	uncut := mustOpen(t, one)
	var all sync.WaitGroup
	for g := range uint64(4) {
		all.Go(func() {
			for i := range uint64(300) {
				trace := g*1000 + i%40 + 1 // comes again and again
				b := batch(t, engine(trace, 2*i+2, 2*i+1), client(trace, 2*i+1))
				for _, j := range []*Journal{j, uncut} {
					if err := j.Append(b); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Duration(i%3) * 200 * time.Microsecond)
			}
		})
	}
	all.Wait()
	mustClose(t, j)
	mustClose(t, uncut)
	w.good(t)
	names := segments(t, opt.Directory)
	if len(names) < 2 {
		t.Errorf("%d segments", len(names))
	}
	if got, want := compileAll(t, names...), compileAll(t, segments(t, one.Directory)...); !bytes.Equal(got, want) {
		t.Errorf("%d segments compile to %d bytes, one to %d", len(names), len(got), len(want))
	}
}
