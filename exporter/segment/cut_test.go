// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

func TestCutByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		j := mustOpen(t, options(t, w)) // at midnight
		time.Sleep(90 * time.Minute)
		// An empty segment is not closed, but replaced: its name must not be that of an hour in which nothing arrived.
		first := filepath.Join(j.opt.Directory, "test-20000101T010000Z-000002.journal")
		if names := segments(t, j.opt.Directory); len(names) != 1 || names[0] != first {
			t.Fatalf("segments without a record: %v, want only %s", names, first)
		}
		add(t, j, client(1, 1), engine(1, 2, 1))
		time.Sleep(29 * time.Minute)
		if len(w.ends()) != 0 {
			t.Fatal("closed before the hour")
		}
		time.Sleep(2 * time.Minute)
		settle(t, j)
		names := segments(t, j.opt.Directory)
		if len(names) != 2 || len(w.ends()) != 1 {
			t.Fatalf("%d segments, %d cuts after the hour without traffic, want 2 and 1", len(names), len(w.ends()))
		}
		if want := filepath.Join(j.opt.Directory, "test-20000101T020000Z-000003.journal"); names[1] != want {
			t.Errorf("the new segment is %s, want %s", names[1], want)
		}
		if got := rows(t, names[0]); len(got) != 1 || got[0].SessionID == "" {
			t.Errorf("rows of the closed segment: %v, want one, with its ancestor's session", got)
		}
		w.good(t)
		mustClose(t, j)
	})
}

func TestCutBySize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		opt.MaxBytes, opt.MaxAge, opt.Grace = 2000, 0, 0
		j := mustOpen(t, opt)
		for i := range uint64(200) {
			add(t, j, engine(i+1, 1, 0))
		}
		settle(t, j)
		names := segments(t, opt.Directory)
		if len(names) < 5 || len(names) != len(w.ends())+1 {
			t.Fatalf("%d segments, %d cuts", len(names), len(w.ends()))
		}
		total := 0
		for _, name := range names[:len(names)-1] {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() < opt.MaxBytes || info.Size() > 2*opt.MaxBytes {
				t.Errorf("%s has %d bytes, want from one to two times %d", name, info.Size(), opt.MaxBytes)
			}
			total += len(rows(t, name))
		}
		if total += len(records(t, names[len(names)-1])); total != 200 {
			t.Errorf("%d rows and open records, want 200", total)
		}
		w.good(t)
		mustClose(t, j)
	})
}

// TestOpenTraces has OTel traces whose spans arrive with pauses below the grace period, some of them over several segments.
func TestOpenTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		opt.MaxAge = 10 * time.Minute
		j := mustOpen(t, opt)
		uncut := filepath.Join(t.TempDir(), "uncut")
		whole, err := journal.OpenWriter(uncut, journal.WriterOptions{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}

		rng := rand.New(rand.NewPCG(1, 2))
		type conversation struct{ trace, span, left uint64 }
		var talks []conversation
		want := map[mooncake.SpanRef]bool{}
		for trace := uint64(1); trace <= 400 || len(talks) > 0; {
			if trace <= 400 && rng.IntN(3) > 0 {
				n := 1 + rng.Uint64N(4)
				if rng.IntN(10) == 0 {
					n = 30 + rng.Uint64N(30) // through several segments
				}
				talks = append(talks, conversation{trace, 1, n})
				trace++
			}
			for i := 0; i < len(talks); {
				c := &talks[i]
				// The engine's span ends first; batches change that.
				records := []journal.Record{engine(c.trace, c.span+1, c.span), client(c.trace, c.span)}
				if rng.IntN(5) == 0 {
					slices.Reverse(records)
				}
				if rng.IntN(2) == 0 {
					add(t, j, records[0])
					time.Sleep(time.Duration(rng.IntN(8000)) * time.Millisecond)
					add(t, j, records[1])
				} else {
					add(t, j, records...)
				}
				if err := whole.Append(records...); err != nil {
					t.Fatal(err)
				}
				want[ref(c.trace, c.span+1)] = true
				c.span += 2
				if c.left--; c.left == 0 {
					talks = append(talks[:i], talks[i+1:]...)
					continue
				}
				i++
			}
			time.Sleep(20 * time.Second)
		}
		time.Sleep(opt.MaxAge) // closes the last one
		settle(t, j)
		w.good(t)
		mustClose(t, j)
		if err := whole.Close(); err != nil {
			t.Fatal(err)
		}

		names := segments(t, opt.Directory)
		if len(names) < 6 {
			t.Fatalf("%d segments: too few to show anything", len(names))
		}
		for _, name := range names {
			for _, row := range rows(t, name) {
				if row.SessionID == "" {
					t.Errorf("%s has a row of %x that was torn from its ancestor", name, row.OTel)
				}
				if !want[row.OTel] {
					t.Errorf("%s has a row of %x, which is unknown or also of another segment", name, row.OTel)
				}
				delete(want, row.OTel)
			}
		}
		if len(want) > 0 {
			t.Errorf("%d requests are in no segment's trace", len(want))
		}
		if got, want := compileAll(t, names...), compileAll(t, uncut); !bytes.Equal(got, want) {
			t.Error("the segments' journals do not compile to what one journal without cuts does")
		}
	})
}

// Several segments may end within one grace period, between the spans of one request.
func TestCutsWithinGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		opt.MaxAge = 5 * time.Second
		j := mustOpen(t, opt)
		add(t, j, client(1, 1))
		for range 15 { // another OTel trace keeps segments from being empty
			time.Sleep(time.Second)
			add(t, j, client(2, 1))
		}
		add(t, j, engine(1, 2, 1))
		time.Sleep(3 * time.Minute)
		settle(t, j)
		mustClose(t, j)
		w.good(t)
		whole := 0
		for n, name := range segments(t, opt.Directory) {
			got := rows(t, name)
			for _, row := range got {
				if row.OTel.TraceID != ref(1, 0).TraceID || row.SessionID == "" {
					t.Errorf("segment %d has row %v of %x, want the engine's with its client's session", n+1, row, row.OTel.TraceID)
				}
			}
			whole += len(got)
		}
		if whole != 1 {
			t.Errorf("%d rows in the segments' traces, want 1", whole)
		}
		if n := len(w.ends()); n != 4 {
			t.Errorf("%d cuts in 16 s, want 4", n)
		}
	})
}

// A segment that fills up within the grace period continues until the period is over: compiling it would read many others.
func TestCutBySizeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		opt.MaxBytes, opt.MaxAge, opt.Grace, opt.NoSync = 2000, 0, 20*time.Second, true
		j := mustOpen(t, opt)
		for n := range uint64(3000) { // one segment's worth every 2 s
			add(t, j, engine(n+1, 2, 1))
			time.Sleep(100 * time.Millisecond)
		}
		for _, i := range j.closedSegments() {
			if before, after, err := j.beside(i); err != nil || len(before) > 1 || len(after) > 1 {
				t.Errorf("%d journals before %s, and %d after it: %v", len(before), i, len(after), err)
			}
		}
		mustClose(t, j)
		w.good(t)
		waited := 0
		for _, c := range w.ends() {
			if c.Waited {
				waited++
			}
		}
		if n := len(w.ends()); n < 5 || n > 15 || waited != n {
			t.Errorf("%d cuts, %d of them waited; want one cut every 20 s, and that all waited", n, waited)
		}
	})
}

// A segment does not stay open because the clock was ahead when it began.
func TestClockAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		if err := os.MkdirAll(opt.Directory, 0o700); err != nil {
			t.Fatal(err)
		}
		first := filepath.Join(opt.Directory, "test-20990101T000000Z-000001.journal")
		old, err := journal.OpenWriter(first, journal.WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(old.Append(engine(1, 1, 0)), old.Close()); err != nil {
			t.Fatal(err)
		}
		j := mustOpen(t, opt)
		if j.Segment() != first {
			t.Fatalf("continues with %s", j.Segment())
		}
		add(t, j, engine(2, 1, 0))
		time.Sleep(time.Hour + time.Minute)
		settle(t, j)
		if got := rows(t, first); len(got) != 2 {
			t.Errorf("%d rows after an hour, want both", len(got))
		}
		mustClose(t, j)
		w.good(t)
	})
}

// The spans of an OTel trace that never pauses are in the traces of the segments in which they arrived, each once.
func TestEndlessTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		j := mustOpen(t, opt)
		for span := range uint64(6 * 120) { // six hours, never quiet
			add(t, j, engine(1, span+1, 0))
			time.Sleep(30 * time.Second)
		}
		settle(t, j)
		mustClose(t, j)
		w.good(t)
		names, total := segments(t, opt.Directory), 0
		for _, name := range names[:len(names)-1] {
			n := len(rows(t, name))
			if total += n; n < 119 || n > 121 {
				t.Errorf("%d rows of an hour, want 120", n)
			}
		}
		if open := len(records(t, names[len(names)-1])); total+open != 6*120 {
			t.Errorf("%d rows in the segments' traces and %d records open, want %d", total, open, 6*120)
		}
	})
}

func TestWithoutCompile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		opt.Compile = nil
		j := mustOpen(t, opt)
		time.Sleep(59*time.Minute + 50*time.Second)
		add(t, j, engine(1, 1, 0))
		time.Sleep(time.Minute)
		if len(w.ends()) != 1 {
			t.Errorf("cuts: %+v, want one", w.ends())
		}
		mustClose(t, j)
		names, err := filepath.Glob(filepath.Join(opt.Directory, "*"))
		if err != nil || len(names) != 3 {
			t.Errorf("files: %v, want two journals and the lock", names)
		}
	})
}

func TestModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		j := mustOpen(t, opt)
		run, err := journal.ParseName("r1")
		if err != nil {
			t.Fatal(err)
		}
		replayed := engine(2, 1, 0)
		replayed.Run, replayed.Row, replayed.InputLength = run, mooncake.Some[int64](0), mooncake.Some[int64](700)
		add(t, j, engine(1, 1, 0), replayed)
		time.Sleep(2 * time.Hour)
		settle(t, j)
		seen := map[string]bool{}
		err = filepath.WalkDir(opt.Directory, func(name string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			want := fs.FileMode(0o600)
			if e.IsDir() {
				want = 0o700
			}
			if info.Mode().Perm() != want {
				t.Errorf("%s has mode %v, want %v", name, info.Mode().Perm(), want)
			}
			seen[filepath.Base(name)] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{
			"test-20000101T000000Z-000001.journal", "test-20000101T000000Z-000001.jsonl", "test-20000101T000000Z-000001.meta.json",
			"test-20000101T000000Z-000001.run-r1.jsonl", "test-20000101T000000Z-000001.run-r1.meta.json", "test.lock",
		} {
			if !seen[name] {
				t.Errorf("%s is not there: %v", name, seen)
			}
		}
		w.good(t)
		mustClose(t, j)
	})
}
