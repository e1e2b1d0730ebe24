// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDirectory); dir != "" {
		victim(dir)
	}
	goleak.VerifyTestMain(m)
}

// watcher is an Observer that records everything.
type watcher struct {
	mu       sync.Mutex
	cuts     []Cut
	compiled []Compilation
	removed  []Removal
	leftover []string
	syncs    int
	syncErrs int
}

func (w *watcher) Synced(_ time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.syncs++; err != nil {
		w.syncErrs++
	}
}
func (w *watcher) Cut(c Cut) { w.mu.Lock(); defer w.mu.Unlock(); w.cuts = append(w.cuts, c) }
func (w *watcher) Compiled(c Compilation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compiled = append(w.compiled, c)
}

func (w *watcher) Removed(r Removal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removed = append(w.removed, r)
}

func (w *watcher) Leftover(f string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leftover = append(w.leftover, f+": "+err.Error())
}

// ends returns the cuts so far.
func (w *watcher) ends() []Cut {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.cuts)
}

// good fails the test if anything went wrong.
func (w *watcher) good(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.cuts {
		if c.Err != nil {
			t.Errorf("cut: %v", c.Err)
		}
	}
	for _, c := range w.compiled {
		if c.Err != nil {
			t.Errorf("compile: %v", c.Err)
		}
	}
	for _, r := range w.removed {
		if r.Err != nil {
			t.Errorf("remove: %v", r.Err)
		}
	}
	if len(w.leftover) > 0 || w.syncErrs > 0 {
		t.Errorf("leftover %v, %d failed syncs", w.leftover, w.syncErrs)
	}
}

// options returns the options of a journal that compiles its segments, with small limits.
func options(t *testing.T, w *watcher) Options {
	t.Helper()
	return Options{
		Directory: filepath.Join(t.TempDir(), "new"), Name: "test", MaxAge: time.Hour, Grace: time.Minute,
		Compile: &capture.Options{Tool: "test"}, Observer: w,
	}
}

func mustOpen(t *testing.T, opt Options) *Journal {
	t.Helper()
	j, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close(context.Background()) })
	return j
}

func mustClose(t *testing.T, j *Journal) {
	t.Helper()
	if err := j.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func add(t *testing.T, j *Journal, records ...journal.Record) {
	t.Helper()
	if _, err := j.Append(batch(t, records...)); err != nil {
		t.Fatal(err)
	}
}

func batch(t testing.TB, records ...journal.Record) *journal.Batch {
	t.Helper()
	var b journal.Batch
	for _, r := range records {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return &b
}

func ref(trace, span uint64) mooncake.SpanRef {
	var r mooncake.SpanRef
	binary.BigEndian.PutUint64(r.TraceID[8:], trace)
	binary.BigEndian.PutUint64(r.SpanID[:], span)
	return r
}

// epoch is in 2025; only the order of starts matters.
const epoch = int64(1_750_000_000) * 1e9

// client is a request as its application sees it: with the session, without the tokens.
func client(trace, span uint64) *journal.Inference {
	start := epoch + int64(trace*1000+span)*1e6
	return &journal.Inference{
		Span: ref(trace, span), Start: start, End: start + 5e8, Session: journal.Session(trace + 1),
		Prompt: journal.Prompt{Identity: journal.None},
	}
}

// engine is the same request as the engine below sees it.
func engine(trace, span, parent uint64) *journal.Inference {
	r := client(trace, span)
	r.Parent = ref(0, parent).SpanID
	r.Session = 0
	r.InputTokens, r.OutputTokens = mooncake.Some[int64](700), mooncake.Some[int64](7)
	r.Prompt = journal.Prompt{Identity: journal.Engine, HashIDs: []uint64{trace, trace<<32 + span}, BlockSize: 512, Domain: 7}
	return r
}

// segments returns the journal files in a directory, oldest first.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func traceFile(file string) string { return strings.TrimSuffix(file, ".journal") + ".jsonl" }

// rows reads the rows of a segment's own trace; none where there is no file.
func rows(t testing.TB, file string) []*mooncake.Row {
	t.Helper()
	b, err := os.ReadFile(traceFile(file))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	r := mooncake.NewReader(bytes.NewReader(b), mooncake.ReaderOptions{})
	var all []*mooncake.Row
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
}

// records counts the records of a journal, by span.
func records(t testing.TB, file string) map[mooncake.SpanRef]int {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	all := map[mooncake.SpanRef]int{}
	for r := journal.NewReader(file, f); ; {
		record, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		switch r := record.(type) {
		case *journal.Inference:
			all[r.Span]++
		case *journal.Link:
			all[r.Span]++
		}
	}
}

// settle waits until everything is compiled. It works only within synctest.
func settle(t *testing.T, j *Journal) {
	t.Helper()
	for range 10_000 {
		synctest.Wait()
		pending, err := filepath.Glob(filepath.Join(j.opt.Directory, "*.pending"))
		if err != nil {
			t.Fatal(err)
		}
		if len(pending) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("segments are still pending")
}

// compileAll compiles journals to one file and returns what is in it.
func compileAll(t testing.TB, journals ...string) []byte {
	t.Helper()
	var sources []capture.Source
	for _, name := range journals {
		sources = append(sources, capture.FileSource(name))
	}
	out := filepath.Join(t.TempDir(), "all.jsonl")
	if _, err := capture.Compile(t.Context(), capture.Options{TempDir: t.TempDir()}, capture.Files(out), sources...); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
