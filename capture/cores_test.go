// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCores: the traces, their sidecars and the result are the same with any number of cores, in memory and on disk.
func TestCores(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	records := everything(t, true)
	sources := make([]Source, 0, 5)
	for i, j := range deal(rng, records, 5) {
		sources = append(sources, buffer(fmt.Sprint(i), j))
	}
	torn := sources[1].Size - 9
	sources[1] = buffer("1", bytesOf(t, sources[1])[:torn])
	beside := []Source{buffer("before", journalOf(records[:20]...)), buffer("after", journalOf(records[20:40]...))}
	for _, o := range []Options{{Memory: 1 << 14}, {Memory: 1}, {}, {Before: beside[:1], After: beside[1:]}} {
		o.TempDir = t.TempDir()
		if err := o.complete(); err != nil {
			t.Fatal(err)
		}
		var want memory
		var wantRes Result
		for cores := 1; cores <= 3; cores++ {
			m := memory{}
			res, err := compile(t.Context(), o, m.sink, cores, sources)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "temporary files that are open", 0, openIn(t, o.TempDir))
			if cores == 1 {
				want, wantRes = m, res
				continue
			}
			equal(t, "files", len(want), len(m))
			for name, b := range want {
				if !bytes.Equal(b, m[name]) {
					t.Errorf("%d bytes of memory, %d cores: %s differs:\n%s", o.Memory, cores, name, firstDifference(b, m[name]))
				}
			}
			equal(t, fmt.Sprintf("%d bytes of memory, %d cores: result", o.Memory, cores), wantRes, res)
		}
	}
}

// bytesOf returns the content of a source.
func bytesOf(t *testing.T, s Source) []byte {
	t.Helper()
	r, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// openIn returns how many files of a folder this process has open, where the system tells.
func openIn(t *testing.T, dir string) (n int) {
	t.Helper()
	const descriptors = "/proc/self/fd"
	all, err := os.ReadDir(descriptors)
	if err != nil {
		t.Log(err)
	}
	for _, fd := range all {
		if name, err := os.Readlink(filepath.Join(descriptors, fd.Name())); err == nil && strings.HasPrefix(name, dir) {
			n++
		}
	}
	return n
}

// TestCoresStop: a compile that is cancelled in any stage, or that cannot read a journal, stops on all cores with that error, closes its
// temporary files, and returns what it has counted.
func TestCoresStop(t *testing.T) {
	broken := errors.New("broken")
	var sources []Source
	for i, j := range deal(rand.New(rand.NewPCG(5, 4)), everything(t, true), 4) {
		sources = append(sources, buffer(fmt.Sprint(i), j))
	}
	o := Options{Memory: 1 << 14, TempDir: t.TempDir()}
	for at := range 4 {
		some := append([]Source{}, sources...)
		some[at].Open = func() (io.ReadCloser, error) { return nil, broken }
		for cores := 1; cores <= 3; cores++ {
			_, err := compile(t.Context(), o, memory{}.sink, cores, some)
			if !errors.Is(err, broken) {
				t.Errorf("%d cores, journal %d cannot be read: %v", cores, at, err)
			}
			equal(t, "temporary files that are open", 0, openIn(t, o.TempDir))
		}
	}
	for _, stage := range []Stage{StageRead, StageGroup, StageJoin, StageTurns, StageText} {
		for cores := 1; cores <= 3; cores++ {
			ctx, cancel := context.WithCancelCause(t.Context())
			met := false
			o.Progress = func(s Stage, _, _ int64) {
				if s == stage {
					met = true
					cancel(broken)
				}
			}
			res, err := compile(ctx, o, memory{}.sink, cores, sources)
			cancel(nil)
			if !errors.Is(err, broken) || !met {
				t.Errorf("%d cores, cancelled at %q (met: %t): %v", cores, stage, met, err)
			}
			equal(t, "temporary files that are open", 0, openIn(t, o.TempDir))
			if stage != StageRead && (res.Journals != 4 || res.Inferences == 0) {
				t.Errorf("%d cores, cancelled at %q: %d journals with %d requests were read", cores, stage, res.Journals, res.Inferences)
			}
		}
	}
}

// TestLeft: what shards leave for each other is in memory while there is room for it, and each part is found again there, or on disk.
func TestLeft(t *testing.T) {
	const items, each, parts = 1000, 10, 7
	p := &process{left: map[string]*sorter{}, room: items*each*2 + items}
	defer p.close()
	leave := func(name string) {
		s := newSorter(t.TempDir(), 1<<20)
		s.parts = parts
		for i := range uint64(items) {
			if err := s.addWordsOf(i*i, i); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.leave(s, name, 3); err != nil {
			t.Fatal(err)
		}
		equal(t, "items that are still there", true, s.used == 0 && s.items == nil)
	}
	for _, name := range []string{"a", "b"} {
		leave(name)
	}
	equal(t, "the first is on disk", false, p.left["a"].file.File != nil)
	equal(t, "the second is on disk", true, p.left["b"].file.File != nil)
	p.remove("a")
	leave("c")
	equal(t, "the third is on disk", false, p.left["c"].file.File != nil)
	for _, name := range []string{"b", "c"} {
		found := 0
		for part := range parts {
			s := newSorter(t.TempDir(), 1<<20)
			before, err := p.take(s, name, part, part+1)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "items before the part", int64(found), before)
			many := int64(0)
			err = s.each(t.Context(), func(b []byte) error {
				if found, many = found+1, many+1; partOf(b, parts) != part {
					t.Errorf("an item of part %d is in part %d", partOf(b, parts), part)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "items of the part", s.count, many)
		}
		equal(t, "items of all parts", items, found)
	}
}
