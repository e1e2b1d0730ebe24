// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, name, want string) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil || string(got) != want {
		t.Errorf("%s contains %q (%v), want %q", name, got, err, want)
	}
}

// TestCreateNew: neither a trace nor a sidecar is replaced, even one that appears while the file is being written.
func TestCreateNew(t *testing.T) {
	for _, tc := range []struct{ name, there string }{
		{"a trace", "t.jsonl"},
		{"a sidecar", "t.meta.json"},
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "t.jsonl")
		put(t, filepath.Join(dir, tc.there), "before")
		if _, err := CreateNew(name); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s that existed: %v", tc.name, err)
		}
		if err := os.Remove(filepath.Join(dir, tc.there)); err != nil {
			t.Fatal(err)
		}
		f, err := CreateNew(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Write(&Row{InputLength: Some[int64](1)}); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, tc.there), "meanwhile")
		if err := f.Commit(new(Meta)); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s that appeared meanwhile: %v", tc.name, err)
		}
		holds(t, filepath.Join(dir, tc.there), "meanwhile")
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: left %v (%v), want what appeared meanwhile", tc.name, left, err)
		}
	}
	name := filepath.Join(t.TempDir(), "t.jsonl")
	f, err := CreateNew(name)
	if err != nil {
		t.Fatal(err)
	}
	meta := new(Meta)
	if err := errors.Join(f.Write(&Row{InputLength: Some[int64](1)}), f.Commit(meta), f.Close()); err != nil {
		t.Fatal(err)
	}
	if written, err := LoadMeta(name); err != nil || !reflect.DeepEqual(meta, written) || meta.Validate() != nil {
		t.Errorf("after Commit meta is %+v, the file has %+v, %v", meta, written, err)
	}
	if left, err := os.ReadDir(filepath.Dir(name)); err != nil || len(left) != 2 {
		t.Errorf("left %v (%v), want the trace and its sidecar", left, err)
	}
}

// TestCreateRegular: a trace replaces only a regular file.
func TestCreateRegular(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link.jsonl")
	put(t, target, "before")
	if err := os.Symlink(target, link); err != nil {
		t.Skip("no symbolic links here")
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{link: "symbolic link", filepath.Join(dir, "folder"): "directory", os.DevNull: "not a regular file"} {
		if _, err := Create(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
	holds(t, target, "before")
	f, err := Create(filepath.Join(dir, "t.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, "t.jsonl")); err != nil { // after writing has begun
		t.Fatal(err)
	}
	if err := f.Commit(nil); err == nil {
		t.Error("a symbolic link was replaced")
	}
}

// TestSweep: Create removes what a killed writer of the same file left, and nothing else.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, ".t.jsonl.123.tmp"), "")
	for _, other := range []string{".t.jsonl.x.tmp", ".u.jsonl.123.tmp", "t.jsonl.123.tmp", ".t.jsonl..tmp"} {
		put(t, filepath.Join(dir, other), "")
	}
	first, err := Create(filepath.Join(dir, "t.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := Create(filepath.Join(dir, "t.jsonl")) // somebody writes the same file at the same time
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".t.jsonl.123.tmp")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed writer left is still there: %v", err)
	}
	if err := errors.Join(first.Commit(nil), second.Commit(nil)); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 5 {
		t.Errorf("left %v (%v), want the trace and what is somebody else's", left, err)
	}
}

// A row that is written after Commit or Close would be lost in silence.
func TestCommitEnds(t *testing.T) {
	for _, name := range []string{"a.jsonl", "a.jsonl.gz", "a.parquet"} {
		f, err := Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		row, err := ParseRow([]byte(`{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Write(row), f.Commit(nil)); err != nil {
			t.Fatal(err)
		}
		if err := f.Write(row); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: Write after Commit: %v", name, err)
		}
		if err := f.Commit(nil); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: a second Commit: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		if f, err = Create(filepath.Join(t.TempDir(), name)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Write(row); !errors.Is(err, fs.ErrClosed) || f.Rows() != 0 {
			t.Errorf("%s: Write after Close: %v, %d rows", name, err, f.Rows())
		}
		if err := f.Commit(nil); !errors.Is(err, fs.ErrClosed) || strings.Contains(err.Error(), ".tmp") {
			t.Errorf("%s: Commit after Close: %v", name, err)
		}
	}
}
