// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// crash ends a journal as the end of its process would.
func crash(j *Journal) {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.stop()
	<-j.done
	_ = j.open.w.Close()
	_ = j.lock.Close()
}

// eventually waits for an action of another goroutine.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: it did not happen", what)
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

func TestNextProcessGoesOn(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, j *Journal)
		torn int64
	}{
		{"after a shutdown", mustClose, 0},
		{"after a crash", func(_ *testing.T, j *Journal) { crash(j) }, 0},
		{"after a crash within a write", func(t *testing.T, j *Journal) {
			t.Helper()
			crash(j)
			f, err := os.OpenFile(j.open.file, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("half a rec"); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"after a crash within a cut", func(t *testing.T, j *Journal) {
			t.Helper()
			crash(j)
			// Everything exists except the name of the next segment; and a trace was being written.
			next := filepath.Join(j.opt.temp(), "test-20300101T000000Z-000002.journal")
			trace := filepath.Join(j.opt.Directory, "."+filepath.Base(traceFile(j.open.file))+".123.tmp")
			pending := j.opt.path(j.open.id, pendingSuffix)
			for _, name := range []string{next, trace, pending} {
				if err := os.WriteFile(name, []byte(strings.Repeat("00", 16)+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() {
				for _, name := range []string{next, trace, pending} {
					if exists(name) {
						t.Errorf("%s still exists", name)
					}
				}
			})
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := new(watcher)
			opt := options(t, w)
			opt.MaxAge = 0
			j := mustOpen(t, opt)
			add(t, j, engine(1, 1, 0))
			file := j.Segment()
			c.end(t, j)

			j = mustOpen(t, opt)
			if j.Segment() != file {
				t.Errorf("continues with %s, want %s", j.Segment(), file)
			}
			add(t, j, engine(1, 2, 0))
			mustClose(t, j)
			w.good(t)
			res, err := capture.Compile(t.Context(), capture.Options{TempDir: t.TempDir()},
				capture.Files(filepath.Join(t.TempDir(), "x.jsonl")), capture.FileSource(file))
			if err != nil {
				t.Fatal(err)
			}
			if res.Inferences != 2 || res.Torn.Records != c.torn || res.DamageCount != 0 {
				t.Errorf("%d records, torn %+v, %d damaged; want 2, %d, 0", res.Inferences, res.Torn, res.DamageCount, c.torn)
			}
		})
	}
}

// TestCompileAfterRestart ends the process within the grace period after a cut: the next one waits for what belongs to the segment.
func TestCompileAfterRestart(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Journal){"shutdown": mustClose, "crash": func(_ *testing.T, j *Journal) { crash(j) }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := new(watcher)
				j := mustOpen(t, options(t, w))
				time.Sleep(time.Hour - 20*time.Second)
				add(t, j, engine(1, 2, 1))
				first := j.Segment()
				time.Sleep(30 * time.Second)
				if len(w.ends()) != 1 || len(w.compiled) != 0 {
					t.Fatalf("cuts %+v, compiled %+v; want a cut, and nothing before the grace period is over", w.ends(), w.compiled)
				}
				end(t, j)
				time.Sleep(time.Hour)
				j = mustOpen(t, j.opt)
				time.Sleep(30 * time.Second)
				add(t, j, client(1, 1))
				settle(t, j)
				if got := rows(t, first); len(got) != 1 || got[0].SessionID == "" {
					t.Errorf("the closed segment has rows %v, want that of the engine, with its client's session", got)
				}
				add(t, j, engine(2, 1, 0))
				second := j.Segment()
				time.Sleep(2 * time.Hour)
				settle(t, j)
				if got := rows(t, second); len(got) != 1 || got[0].OTel != ref(2, 1) {
					t.Errorf("the next segment has rows %v, want that of the other trace", got)
				}
				mustClose(t, j)
				w.good(t)
			})
		})
	}
}

// TestCrashAfterCut leaves what a crash leaves when the next segment exists and has no record: the old one is closed.
func TestCrashAfterCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		j := mustOpen(t, options(t, w))
		add(t, j, engine(1, 1, 0))
		first := j.open.id
		crash(j)
		if err := j.writePending(first, j.Size()); err != nil {
			t.Fatal(err)
		}
		next, err := journal.OpenWriter(j.opt.path(id{"test", first.begun.Add(time.Hour), 2}, journalSuffix), journal.WriterOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Close(); err != nil {
			t.Fatal(err)
		}
		j = mustOpen(t, j.opt)
		add(t, j, client(1, 2))
		settle(t, j)
		names := segments(t, j.opt.Directory)
		if len(names) != 2 || !strings.HasSuffix(names[1], "-000003.journal") || len(rows(t, names[0])) != 1 || len(records(t, names[1])) != 1 {
			t.Errorf("segments %v with rows %v: want the closed one with its row, and a third one", names, rows(t, names[0]))
		}
		mustClose(t, j)
		w.good(t)
	})
}

// TestForeignNeighbour: a file that has a journal's name but is not a journal does not keep a segment from being compiled.
func TestForeignNeighbour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		j := mustOpen(t, options(t, w))
		add(t, j, engine(1, 1, 0))
		file := j.Segment()
		time.Sleep(time.Hour)
		synctest.Wait()
		foreign := j.opt.path(id{"test", time.Now(), 0}, journalSuffix)
		if err := os.WriteFile(foreign, []byte("moonloop-journal 99\nwhat is to come"), 0o600); err != nil {
			t.Fatal(err)
		}
		settle(t, j)
		if got := rows(t, file); len(got) != 1 {
			t.Errorf("rows %v, want one", got)
		}
		mustClose(t, j)
		w.good(t)
	})
}

func TestOneWriter(t *testing.T) {
	opt := options(t, new(watcher))
	j := mustOpen(t, opt)
	if _, err := Open(opt); err == nil || !strings.Contains(err.Error(), "give each its own name") {
		t.Errorf("a second journal of that name: %v", err)
	}
	other := opt
	other.Name = "test-2"
	mustClose(t, mustOpen(t, other))
	mustClose(t, j)
	mustClose(t, mustOpen(t, opt))
	if _, err := j.Append(batch(t, client(1, 1))); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
}

func TestForeignFiles(t *testing.T) {
	w := new(watcher)
	opt := options(t, w)
	if err := os.MkdirAll(opt.Directory, 0o700); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(opt.Directory, "test-20260101T000000Z-000007.journal")
	if err := os.WriteFile(foreign, []byte("moonloop-journal 99\nwhat is to come"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := mustOpen(t, opt)
	add(t, j, client(1, 1))
	if len(w.leftover) != 1 || !strings.HasSuffix(j.Segment(), "-000008.journal") {
		t.Errorf("leftover %v, segment %s; want one, and the next number", w.leftover, j.Segment())
	}
	mustClose(t, j)
	if b, err := os.ReadFile(foreign); err != nil || !bytes.HasSuffix(b, []byte("come")) {
		t.Errorf("the journal of a later version was changed: %q, %v", b, err)
	}
}

// A segment that cannot be made durable is not written again.
func TestSyncFails(t *testing.T) {
	w := new(watcher)
	j := mustOpen(t, options(t, w))
	add(t, j, engine(1, 1, 0))
	first := j.open
	_ = first.w.Close() // from now on each sync fails
	if err := first.commit(first.safe + 1); err == nil {
		t.Fatal("no error")
	}
	if err := first.commit(first.safe + 1); err == nil {
		t.Fatal("the second sync would have claimed what the first one lost")
	}
	add(t, j, engine(1, 2, 0))
	if j.open == first || len(w.ends()) != 1 || w.ends()[0].Err != nil {
		t.Errorf("the journal continues with %s after %+v", j.Segment(), w.ends())
	}
	mustClose(t, j)
	if before, got := records(t, first.file), records(t, j.open.file); len(before) != 1 || len(got) != 1 {
		t.Errorf("the segments have %v and %v, want a record each", before, got)
	}
}

func TestConcurrent(t *testing.T) {
	w := new(watcher)
	opt := options(t, w)
	opt.MaxBytes, opt.Grace = 20_000, time.Millisecond
	j := mustOpen(t, opt)
	var all sync.WaitGroup
	for g := range uint64(8) {
		all.Go(func() {
			for i := range uint64(150) {
				if _, err := j.Append(batch(t, engine(g*1000+i+1, 2, 1), client(g*1000+i+1, 1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	mustClose(t, j)
	w.good(t)
	spans := map[mooncake.SpanRef]bool{}
	for _, name := range segments(t, opt.Directory) {
		for ref := range records(t, name) {
			spans[ref] = true
		}
	}
	if len(spans) != 2*8*150 || len(w.ends()) < 3 {
		t.Errorf("%d spans after %d cuts, want %d", len(spans), len(w.ends()), 2*8*150)
	}
	// What was being compiled is compiled by the next process.
	j = mustOpen(t, opt)
	eventually(t, "compile", func() bool {
		left, _ := filepath.Glob(filepath.Join(opt.Directory, "*.pending"))
		return len(left) == 0
	})
	mustClose(t, j)
	w.good(t)
}

func TestRetention(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit Retention
		left  int // closed segments
	}{
		{"a limit of bytes", Retention{MaxBytes: 1}, 0},
		{"a limit of age", Retention{MaxAge: time.Hour}, 2},
		{"no limit", Retention{}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := new(watcher)
			opt := options(t, w)
			opt.MaxBytes, opt.Grace, opt.MaxAge = 1, 0, 0
			j := mustOpen(t, opt)
			for i := range uint64(5) {
				add(t, j, engine(i+1, 1, 0))
			}
			eventually(t, "compile", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.compiled) == 4 })
			mustClose(t, j)
			names := segments(t, opt.Directory)
			for _, name := range names[:2] {
				old := time.Now().Add(-2 * time.Hour)
				if err := os.Chtimes(name, old, old); err != nil {
					t.Fatal(err)
				}
			}
			opt.Retention, opt.MaxBytes = c.limit, 1<<30
			j = mustOpen(t, opt)
			eventually(t, "retention", func() bool { return len(segments(t, opt.Directory)) == c.left+1 })
			mustClose(t, j)
			w.good(t)
			names = segments(t, opt.Directory)
			traces, err := filepath.Glob(filepath.Join(opt.Directory, "*.jsonl"))
			if err != nil || len(names) != c.left+1 || len(traces) != c.left || len(w.removed) != 4-c.left {
				t.Errorf("%d segments, %d traces, %d removed; want %d closed", len(names), len(traces), len(w.removed), c.left)
			}
		})
	}
}

// Setting the clock years ahead does not make segments old. Here the times of the files are set far back instead, all to the same time.
func TestRetentionWhenClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(watcher)
		opt := options(t, w)
		opt.Retention.MaxAge = 3*time.Hour + time.Minute
		j := mustOpen(t, opt)
		for span := range uint64(3) {
			add(t, j, engine(1, span+1, 0))
			time.Sleep(time.Hour)
		}
		settle(t, j)
		age := func() {
			for _, name := range segments(t, opt.Directory) {
				if err := os.Chtimes(name, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
					t.Fatal(err)
				}
			}
		}
		age()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(segments(t, opt.Directory)); n != 4 {
			t.Fatalf("%d segments, want all three, and the open one", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(segments(t, opt.Directory)); n != 3 {
			t.Errorf("%d segments after four hours, want one removed", n)
		}
		// The next process knows only what the files show about each other.
		mustClose(t, j)
		age()
		j = mustOpen(t, opt)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if n := len(segments(t, opt.Directory)); n != 3 {
			t.Errorf("%d segments three hours after the start, want as many as before", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(segments(t, opt.Directory)); n != 1 {
			t.Errorf("%d segments after four hours, want the open one", n)
		}
		mustClose(t, j)
		w.good(t)
	})
}

const victimDirectory = "MOONLOOP_TEST_VICTIM"

// victim is a process that writes until it is killed. It prints what was acknowledged.
func victim(dir string) {
	opt := Options{Directory: dir, Name: "test", MaxBytes: 8000, Grace: 2 * time.Millisecond, Compile: &capture.Options{}}
	j, err := Open(opt)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	first, _ := strconv.ParseUint(os.Getenv(victimDirectory+"_FROM"), 10, 64)
	for i := first; ; i++ {
		var b journal.Batch
		err := b.Add(engine(1+i%50, i, 0))
		if err == nil {
			_, err = j.Append(&b)
		}
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

// TestKill kills the writer at random instants, cuts and compiling included.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	self, err := os.Executable()
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "journal")
	acknowledged := map[uint64]bool{}
	next := uint64(1)
	for range 12 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), victimDirectory+"="+dir, fmt.Sprintf("%s_FROM=%d", victimDirectory, next))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for left := 20 + rand.IntN(300); left > 0 && lines.Scan(); left-- {
			n, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("the writer says: %s", lines.Text())
			}
			acknowledged[n], next = true, n+1
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it printed before
			if n, err := strconv.ParseUint(lines.Text(), 10, 64); err == nil {
				acknowledged[n], next = true, n+1
			}
		}
		_ = cmd.Wait() // it was killed
	}
	j := mustOpen(t, Options{Directory: dir, Name: "test", Compile: &capture.Options{}})
	eventually(t, "compile", func() bool {
		left, _ := filepath.Glob(filepath.Join(dir, "*.pending"))
		return len(left) == 0
	})
	mustClose(t, j)

	names := segments(t, dir)
	if len(names) < 5 {
		t.Fatalf("%d segments: too few to show anything", len(names))
	}
	lines := bytes.Count(compileAll(t, names...), []byte("\n"))
	spans := map[mooncake.SpanRef]bool{}
	for _, name := range names {
		for ref := range records(t, name) {
			spans[ref] = true
		}
	}
	for n := range acknowledged {
		if !spans[ref(1+n%50, n)] {
			t.Errorf("span %d was acknowledged and is lost", n)
		}
	}
	// Each process may have written one more span than it had reported when it was killed.
	if len(spans) > len(acknowledged)+12 || lines != len(spans) {
		t.Errorf("%d rows of %d spans, %d of them acknowledged", lines, len(spans), len(acknowledged))
	}
}

// TestShortSegment: a closed segment that has become shorter since it was closed is damaged, and reported as such.
func TestShortSegment(t *testing.T) {
	w := new(watcher)
	j := mustOpen(t, options(t, w))
	add(t, j, engine(1, 1, 0))
	add(t, j, engine(2, 1, 0))
	file, i := j.Segment(), j.open.id
	mustClose(t, j)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.writePending(i, info.Size()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, info.Size()-7); err != nil {
		t.Fatal(err)
	}
	res, err := j.compile(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	if res.Inferences != 1 || res.DamageCount != 1 || res.DamageBytes != 7 || len(res.Damage) != 1 || res.Damage[0].Offset != info.Size()-7 {
		t.Errorf("%d records, damage %+v (%d, %d bytes); want 1 record, and 7 bytes missing at the end", res.Inferences, res.Damage, res.DamageCount, res.DamageBytes)
	}
}
