// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/capture"
)

// journalName is the beginning of the names of the files in a journal folder.
const journalName = "capture"

// JournalFolder returns the journal folder of a trace: prod.journal for prod.jsonl.zst.
func JournalFolder(trace string) string {
	for _, suffix := range []string{".gz", ".zst", ".zstd", ".jsonl"} {
		trace = strings.TrimSuffix(trace, suffix)
	}
	return trace + ".journal"
}

// Journals returns the files of a journal folder, oldest first; none if there is no such folder.
func Journals(folder string) ([]capture.Source, error) {
	names, err := journalFiles(folder, journalName+"-*.journal")
	var sources []capture.Source
	for _, name := range names {
		sources = append(sources, capture.FileSource(name))
	}
	return sources, err
}

// RemoveJournal removes the files of a journal, and the folder unless it has other files.
func RemoveJournal(folder string) error {
	names, err := journalFiles(folder, journalName+"-*", journalName+".lock", "."+journalName+".tmp")
	errs := []error{err}
	for _, name := range names {
		errs = append(errs, os.RemoveAll(name))
	}
	_ = os.Remove(folder) // fails if it has other files
	return errors.Join(errs...)
}

// journalFiles returns the entries of a folder whose names match one of the patterns. The folder's own name is not a pattern.
func journalFiles(folder string, patterns ...string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		if slices.ContainsFunc(patterns, func(pattern string) bool {
			match, _ := filepath.Match(pattern, entry.Name()) // the patterns are ours, and valid
			return match
		}) {
			names = append(names, filepath.Join(folder, entry.Name()))
		}
	}
	return names, err
}
