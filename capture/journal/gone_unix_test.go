// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A journal whose file no longer has its name is not durable: writing reports ErrGone.
func TestJournalGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		remove func(name string) error
	}{
		{"removed", os.Remove},
		{"removed with its folder", func(name string) error { return os.RemoveAll(filepath.Dir(name)) }},
		{"renamed", func(name string) error { return os.Rename(name, name+".1") }},
		{"replaced", func(name string) error { return errors.Join(os.Remove(name), os.WriteFile(name, nil, 0o600)) }},
		{"a file is where its folder was", func(name string) error {
			dir := filepath.Dir(name)
			return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "folder", "x.journal")
			if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			w, err := OpenWriter(name, WriterOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.Append(&Link{}), w.Sync()); err != nil {
				t.Fatal(err)
			}
			if err := c.remove(name); err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{"append": w.Append(&Link{}), "sync": w.Sync(), "close": w.Close()} {
				if !errors.Is(err, ErrGone) {
					t.Errorf("%s: got %v, want %v", what, err, ErrGone)
				}
			}
		})
	}
}
