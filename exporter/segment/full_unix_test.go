// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package segment

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// fileLimit limits the size of files, which for a writer is like a full disk, and returns a function that lifts the limit.
func fileLimit(t *testing.T, bytes uint64) (lift func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Skip(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	limit := old
	limit.Cur = bytes
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Skip(err)
	}
	lift = func() { _ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old) }
	t.Cleanup(lift)
	return lift
}

// TestDiskFull fills the disk in the middle of a record, and again in the middle of a cut. The limit applies to a whole process, so the test
// runs in a process of its own.
func TestDiskFull(t *testing.T) {
	const child = "MOONLOOP_TEST_DISK_FULL"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDiskFull$")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("PASS")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	synctest.Test(t, full)
}

func full(t *testing.T) {
	t.Helper()
	w := new(watcher)
	opt := options(t, w)
	opt.MaxAge, opt.MaxBytes = 0, 3000
	j := mustOpen(t, opt)
	written := uint64(0)
	lift := fileLimit(t, 1000)
	var err error
	for ; err == nil && written < 1000; written++ {
		_, err = j.Append(batch(t, engine(1, written+1, 0)))
	}
	written-- // the last one failed
	if !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("got %v after %d records, want the error of the disk", err, written)
	}
	if _, err := j.Append(batch(t, engine(1, written+1, 0))); err == nil {
		t.Fatal("an append to a full disk succeeds")
	}
	lift()
	for ; j.Size() < opt.MaxBytes-200; written++ {
		add(t, j, engine(1, written+1, 0)) // the one that failed is sent again
	}
	time.Sleep(2 * opt.Grace)
	for ; j.Size() < opt.MaxBytes; written++ {
		add(t, j, engine(1, written+1, 0))
	}

	// The cut begins a journal, but there is no room for its first line: the old one continues.
	lift = fileLimit(t, 10)
	if _, err := j.Append(batch(t, engine(1, written+1, 0))); err == nil {
		t.Fatal("an append to a full disk succeeds")
	}
	if len(w.ends()) != 1 || !errors.Is(w.ends()[0].Err, syscall.EFBIG) || len(segments(t, opt.Directory)) != 1 {
		t.Fatalf("cuts %+v, segments %v; want one that failed, and its segment open", w.ends(), segments(t, opt.Directory))
	}
	lift()
	add(t, j, engine(1, written+1, 0))
	if len(w.ends()) != 1 {
		t.Error("the cut is tried again at once")
	}
	time.Sleep(retryCut)
	add(t, j, engine(1, written+2, 0))
	mustClose(t, j)
	if len(w.ends()) != 2 || w.ends()[1].Err != nil {
		t.Errorf("cuts %+v, want the second to succeed", w.ends())
	}
	spans := map[mooncake.SpanRef]bool{}
	for _, name := range segments(t, opt.Directory) {
		for ref := range records(t, name) {
			spans[ref] = true
		}
	}
	if uint64(len(spans)) != written+2 {
		t.Errorf("%d spans, want %d", len(spans), written+2)
	}
	if entries, err := os.ReadDir(opt.Directory); err != nil || len(entries) > 5 {
		t.Errorf("files left behind: %v, %v", entries, err)
	}
}
