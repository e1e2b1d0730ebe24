// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	return got
}

// TestCreateAs: the name appears with Commit; Close alone keeps what was written, Discard removes it.
func TestCreateAs(t *testing.T) {
	for _, c := range []struct {
		what string
		end  func(f *File) error
		want string
	}{
		{"commit", (*File).Commit, "name"},
		{"close", func(f *File) error { return f.Close() }, "name.partial"},
		{"discard", (*File).Discard, ""},
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "name")
		if err := os.WriteFile(name+".partial", []byte("what a killed writer left"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := CreateAs(name+".partial", name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("new"); err != nil {
			t.Fatal(err)
		}
		if err := c.end(f); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		got := names(t, dir)
		if c.want == "" && len(got) == 0 {
			continue
		}
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s left %v, want %q", c.what, got, c.want)
			continue
		}
		if text, err := os.ReadFile(filepath.Join(dir, got[0])); err != nil || string(text) != "new" {
			t.Errorf("%s: %q (%v)", c.what, text, err)
		}
	}
}

// TestDiscardAfterCommit: a deferred Discard does not remove what was committed.
func TestDiscardAfterCommit(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "name"), Nothing)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Commit(), f.Discard()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 1 || got[0] != "name" {
		t.Errorf("left %v", got)
	}
	if _, err := Create(filepath.Join(dir, "name"), Nothing); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want %v", err, fs.ErrExist)
	}
}

// TestReopen: new content is appended to what existed, and all of it gets the name.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "name")
	for _, text := range []string{"one ", "two"} {
		f, err := Reopen(name+".partial", name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		end := f.Close // as a killed process would end
		if text == "two" {
			end = f.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "one two" || len(names(t, dir)) != 1 {
		t.Errorf("%q, %v; %v", text, err, names(t, dir))
	}
}
