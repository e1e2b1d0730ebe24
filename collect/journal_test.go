// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJournalFolder(t *testing.T) {
	for trace, want := range map[string]string{
		"prod.jsonl": "prod.journal", "a/prod.jsonl.zst": "a/prod.journal", "prod": "prod.journal", "prod.v2.jsonl.gz": "prod.v2.journal",
	} {
		if got := JournalFolder(trace); got != want {
			t.Errorf("journal of %s is %s, want %s", trace, got, want)
		}
	}
}

// TestRemoveJournal removes only what belongs to the capture, whatever the folder's name.
func TestRemoveJournal(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "[odd] *")
	if sources, err := Journals(folder); err != nil || len(sources) > 0 {
		t.Errorf("no folder: %v, %v", sources, err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	put := func(names ...string) {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("capture-2-000002.journal", "capture-1-000001.journal", "capture-1-000001.pending", "capture.lock", "mooncake-1-000001.journal", "notes.txt")
	if err := os.Mkdir(filepath.Join(folder, ".capture.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	sources, err := Journals(folder)
	if err != nil || len(sources) != 2 || filepath.Base(sources[0].Name) != "capture-1-000001.journal" {
		t.Errorf("journals %v, %v", sources, err)
	}
	if err := RemoveJournal(folder); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if diff := cmp.Diff([]string{"mooncake-1-000001.journal", "notes.txt"}, left); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	for _, name := range left {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	put("capture-1-000001.journal")
	if err := RemoveJournal(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder stays: %v", err)
	}
}

// TestJournalTaken: two collectors cannot write one journal.
func TestJournalTaken(t *testing.T) {
	config := Config{HTTP: "127.0.0.1:0", Journal: filepath.Join(t.TempDir(), "journal")}
	p, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Start(t.Context(), config)
	if !errors.Is(err, ErrJournal) {
		t.Errorf("error %v, want %v", err, ErrJournal)
		if err == nil {
			_ = second.Stop(t.Context())
		}
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
