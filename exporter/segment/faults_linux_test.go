// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// A strike makes the file system fail for a journal, until lift.
type strike struct {
	name string
	hit  func(t *testing.T, j *Journal) (lift func())
	// mayPass marks a fault that the journal perhaps never meets, or can work around: perhaps no append, cut or compilation fails.
	mayPass bool
}

// strikes are what can go wrong with a disk, caused by the kernel itself: no part of the journal knows that it is tested.
func strikes() (all []strike) {
	for more := uint64(0); more < 320; more += 23 { // while records, the mark of a cut or a trace is written
		all = append(all, strike{fmt.Sprintf("a file may grow by %d bytes, then the disk is full", more), func(t *testing.T, j *Journal) func() {
			t.Helper()
			return fileLimit(t, uint64(j.Size())+more)
		}, more > 280})
	}
	for most := uint64(0); most < 500; most += 92 {
		all = append(all, strike{fmt.Sprintf("the disk is full at %d bytes", most), func(t *testing.T, _ *Journal) func() {
			t.Helper()
			return fileLimit(t, most)
		}, false})
	}
	for spare := range uint64(3) {
		all = append(all, strike{fmt.Sprintf("all but %d file descriptors are taken", spare), func(t *testing.T, _ *Journal) func() {
			t.Helper()
			return descriptorLimit(t, spare)
		}, spare > 0})
	}
	block := func(names ...string) func() {
		for _, name := range names {
			_ = os.MkdirAll(filepath.Join(name, "in the way"), 0o700)
		}
		return func() {
			for _, name := range names {
				_ = os.RemoveAll(name)
			}
		}
	}
	return append(
		all,
		strike{"the temporary folder cannot be made", func(t *testing.T, j *Journal) func() {
			t.Helper()
			if err := os.RemoveAll(j.opt.temp()); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(j.opt.temp(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Remove(j.opt.temp()) }
		}, false},
		strike{"the mark of a closed segment cannot be given its name", func(_ *testing.T, j *Journal) func() {
			return block(j.opt.path(j.open.id, pendingSuffix))
		}, false},
		strike{"the next journal cannot be given its name", func(_ *testing.T, j *Journal) func() {
			var names []string
			for second := range 30 {
				for n := range int64(4) {
					names = append(names, j.opt.path(id{j.opt.Name, time.Now().UTC().Truncate(time.Second).Add(time.Duration(second) * time.Second), j.number + 1 + n}, journalSuffix))
				}
			}
			return block(names...)
		}, false},
		strike{"a trace cannot be given its name", func(_ *testing.T, j *Journal) func() {
			return block(j.opt.path(j.open.id, traceSuffix))
		}, false},
		strike{"the open journal can neither be written nor made durable", func(_ *testing.T, j *Journal) func() {
			_ = j.open.w.Close() // each sync fails from now on
			return func() {}
		}, false},
	)
}

// descriptorLimit limits the file descriptors so that only this number of further ones can be opened.
func descriptorLimit(t *testing.T, spare uint64) (lift func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Skip(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	// One of those counted was the folder itself, open only for the count. The limit is on descriptor numbers, which have no gaps here.
	limit := old
	limit.Cur = uint64(len(open)) - 1 + spare
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Skip(err)
	}
	return func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old) }
}

// TestFaults writes while the file system fails and after it has recovered, and continues after a simulated crash: what was acknowledged
// exists, nothing exists twice, and no file has its name before it is complete. Limits apply to a whole process, so the test runs in a
// process of its own.
func TestFaults(t *testing.T) {
	const child = "MOONLOOP_TEST_FAULTS"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFaults$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || bytes.Count(out, []byte("--- PASS: TestFaults/")) != len(strikes()) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, s := range strikes() {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { endure(t, s) })
		})
	}
}

func endure(t *testing.T, s strike) {
	t.Helper()
	w := new(watcher)
	opt := options(t, w)
	opt.MaxAge, opt.MaxBytes, opt.Grace = 0, 300, 2*time.Second
	j := mustOpen(t, opt)
	acknowledged, failures := map[mooncake.SpanRef]bool{}, 0
	n := uint64(0)
	write := func() error {
		n++
		r := engine(1+n/4, n, 0)
		_, err := j.Append(batch(t, r))
		if err == nil {
			acknowledged[r.Span] = true
		} else if !strings.Contains(err.Error(), opt.Directory) {
			t.Errorf("the error does not say where: %v", err)
		}
		time.Sleep(time.Second)
		return err
	}
	for range 12 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	lift := s.hit(t, j)
	for range 10 {
		if write() != nil {
			failures++
		}
	}
	synctest.Wait()
	lift()
	for _, c := range w.ends() {
		if c.Err != nil || c.Cause != nil {
			failures++
		}
	}
	for _, c := range w.compiled {
		if c.Err != nil {
			failures++
		}
	}
	if failures == 0 && !s.mayPass {
		t.Error("nothing failed: this test would see no loss")
	}
	time.Sleep(retryCut)
	for range 12 {
		if err := write(); err != nil {
			t.Errorf("the journal does not continue after the fault: %v", err)
		}
	}
	crash(j)

	next := new(watcher)
	opt.Observer = next
	j = mustOpen(t, opt)
	settle(t, j)
	last := j.Segment()
	mustClose(t, j)
	next.good(t)
	checkDirectory(t, opt.Directory, last, acknowledged)
}

// checkDirectory checks the final content of a directory: closed segments that are compiled, and the last one, which is not.
func checkDirectory(t *testing.T, dir, last string, acknowledged map[mooncake.SpanRef]bool) {
	t.Helper()
	spans, compiled := map[mooncake.SpanRef]bool{}, map[mooncake.SpanRef]string{}
	for _, journal := range segments(t, dir) {
		for ref := range records(t, journal) { // which fails on damage
			spans[ref] = true
		}
		for _, row := range rows(t, journal) {
			if other, twice := compiled[row.OTel]; twice {
				t.Errorf("span %x is a row of %s and of %s", row.OTel.SpanID, other, filepath.Base(journal))
			}
			compiled[row.OTel] = filepath.Base(journal)
		}
	}
	for ref := range acknowledged {
		if !spans[ref] {
			t.Errorf("span %x was acknowledged and is lost", ref.SpanID)
		}
	}
	for ref := range records(t, last) {
		compiled[ref] = "the segment that is open"
	}
	for ref := range spans {
		if compiled[ref] == "" {
			t.Errorf("span %x is in a closed journal and in no trace", ref.SpanID)
		}
	}
	if lines := bytes.Count(compileAll(t, segments(t, dir)...), []byte("\n")); lines != len(spans) {
		t.Errorf("all journals give %d rows of %d spans", lines, len(spans))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch name := filepath.Join(dir, e.Name()); {
		case strings.HasSuffix(name, traceSuffix):
			if meta, err := mooncake.LoadMeta(name); err != nil || meta == nil {
				t.Errorf("%s has no sidecar: %v", e.Name(), err)
			}
		case strings.HasSuffix(name, ".meta.json"):
			if !exists(strings.TrimSuffix(name, ".meta.json") + traceSuffix) {
				t.Errorf("%s has no trace", e.Name())
			}
		case strings.HasSuffix(name, journalSuffix), strings.HasSuffix(name, ".lock"):
		default:
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// TestPowerLoss loses what was written but not made durable: from any byte on, or as zeros, as in file systems that record a file's length
// before its bytes.
func TestPowerLoss(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(lost []byte) []byte
	}{
		{"nothing of it is there", func([]byte) []byte { return nil }},
		{"a byte", func(b []byte) []byte { return b[:1] }},
		{"a quarter of it", func(b []byte) []byte { return b[:len(b)/4] }},
		{"all but a byte", func(b []byte) []byte { return b[:len(b)-1] }},
		{"zeros in its place", func(b []byte) []byte { return make([]byte, len(b)) }},
		{"half of it, and zeros", func(b []byte) []byte { return append(bytes.Clone(b[:len(b)/2]), make([]byte, len(b)/2)...) }},
		{"its end without its beginning", func(b []byte) []byte { return append(make([]byte, len(b)/3), b[len(b)/3:]...) }},
		{"another file's bytes", func(b []byte) []byte { return bytes.Repeat([]byte{0xa5}, len(b)) }},
		{"all of it", func(b []byte) []byte { return b }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opt := options(t, new(watcher))
				opt.MaxAge = 0
				j := mustOpen(t, opt)
				acknowledged := map[mooncake.SpanRef]bool{}
				write := func(n uint64) {
					add(t, j, engine(n, 1, 0))
					acknowledged[ref(n, 1)] = true
				}
				write(1)
				write(2)
				size := j.Size()
				if size > math.MaxInt32 || size != j.open.safe {
					t.Fatalf("%d bytes, %d of them durable", size, j.open.safe)
				}
				var batch journal.Batch // of which nobody was told that it is durable
				for n := range uint64(3) {
					if err := batch.Add(engine(10+n, 1, 0)); err != nil {
						t.Fatal(err)
					}
				}
				if err := j.open.w.AppendBatch(&batch); err != nil {
					t.Fatal(err)
				}
				file := j.Segment()
				crash(j)
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, append(b[:size:size], c.lose(b[size:])...), 0o600); err != nil {
					t.Fatal(err)
				}

				j = mustOpen(t, opt)
				write(3)
				last := j.Segment()
				mustClose(t, j)
				if last != file {
					t.Errorf("continues with %s, want %s", last, file)
				}
				got := tolerantRecords(t, file)
				for ref := range acknowledged {
					if got[ref] != 1 {
						t.Errorf("span %x was acknowledged and is there %d times", ref.TraceID, got[ref])
					}
				}
				for ref, n := range got {
					if trace := ref.TraceID[15]; n > 1 || !acknowledged[ref] && (trace < 10 || trace > 12) {
						t.Errorf("span %x was never written, or is there %d times", ref.TraceID, n)
					}
				}
			})
		})
	}
}

// tolerantRecords counts the records of a journal that may be torn.
func tolerantRecords(t *testing.T, file string) map[mooncake.SpanRef]int {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	all := map[mooncake.SpanRef]int{}
	for r := journal.NewReader(file, f); ; {
		rec, err := r.Next()
		if _, damaged := errors.AsType[*journal.Damage](err); err != nil && !damaged {
			return all
		}
		if i, ok := rec.(*journal.Inference); ok {
			all[i.Span]++
		}
	}
}
