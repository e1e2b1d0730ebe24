// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// names lists a directory.
func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestFolderHasOneRun: a second run is refused, with or without force, until the first has released the folder. The lock leaves no file.
func TestFolderHasOneRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "out")
	first, err := OpenFolder(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, PartialFile), nil, 0o600); err != nil { // as a running replay has
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		second, err := OpenFolder(dir, force)
		if err == nil || !strings.Contains(err.Error(), "another replay is writing its results there") || !strings.Contains(err.Error(), "--out") {
			t.Errorf("force %t: %v, %v", force, second, err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{PartialFile}) {
		t.Errorf("%v are left", got)
	}
	if err := os.Remove(filepath.Join(dir, PartialFile)); err != nil {
		t.Fatal(err)
	}
	third, err := OpenFolder(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(third.Close(), third.Close()); err != nil {
		t.Error(err)
	}
}

// TestFolderKeepsResults: without force, a folder with a file that a run would replace is refused, and the error names the file. With force,
// opening the folder does not change the file yet. Other files do not matter.
func TestFolderKeepsResults(t *testing.T) {
	for _, name := range []string{
		"summary.json", "summary.csv", "requests.jsonl", "requests.meta.json", "requests.jsonl.partial", "trace.rejected.jsonl",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenFolder(dir, false, "trace.rejected.jsonl")
		if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "--out") {
			t.Errorf("%s: %v", name, err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{name}) {
			t.Errorf("%s: %v are left", name, got)
		}
		f, err := OpenFolder(dir, true, "trace.rejected.jsonl")
		if err != nil {
			t.Fatalf("%s, with force: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
			t.Errorf("%s: %q, %v; want it unchanged until the run replaces it", name, text, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "summary.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFolder(dir, false)
	if err != nil {
		t.Fatalf("a folder of something else: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// TestFolderIsNotLeftEmpty: a run that does not begin leaves no folder that did not exist before.
func TestFolderIsNotLeftEmpty(t *testing.T) {
	top := t.TempDir()
	f, err := OpenFolder(filepath.Join(top, "out"), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, top); len(got) != 0 {
		t.Errorf("%v are left", got)
	}
	if f, err = OpenFolder(top, false); err != nil { // it was there
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(top); err != nil {
		t.Error(err)
	}
}

// TestFolderIsNotTheTraces: records cannot overwrite the trace that they belong to.
func TestFolderIsNotTheTraces(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, RequestsFile)
	if err := os.WriteFile(trace, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFolder(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.CheckInput(trace); err == nil || !strings.Contains(err.Error(), "the trace itself") {
		t.Errorf("error %v", err)
	}
	for _, other := range []string{"-", filepath.Join(dir, "missing"), t.TempDir()} {
		if err := f.CheckInput(other); err != nil {
			t.Errorf("%s: %v", other, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
