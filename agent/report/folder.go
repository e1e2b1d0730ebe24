// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/mooncake"
)

// lockFile is the file that a run locks in its output directory. It is removed at the end of the run.
const lockFile = ".replay.lock"

// Folder is an output directory that only one run uses at a time. So no second run mixes its records with the first one's, and no result of
// an earlier run is lost silently.
type Folder struct {
	dir    string
	made   bool // it did not exist before
	unlock func()
}

// OpenFolder locks a directory for one run, and creates it if it is absent. It returns an error if another run has locked it, and, unless
// force is set, [fs.ErrExist] if it has a file that the run would write: those of this package, and the given names. With force, each of
// them is replaced when the new one is complete, except for [PartialFile], which starts empty with the run. Nothing else is changed.
func OpenFolder(dir string, force bool, further ...string) (*Folder, error) {
	_, err := os.Stat(dir)
	f := &Folder{dir: dir, made: errors.Is(err, fs.ErrNotExist)}
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	f.unlock, err = atomicfile.Hold(filepath.Join(dir, lockFile))
	switch {
	case errors.Is(err, atomicfile.ErrLocked):
		return nil, fmt.Errorf("output directory %s: another replay is writing its results there; wait for its end, or choose another directory with --out", dir)
	case err != nil:
		f.unlock = func() {}
		return nil, errors.Join(fmt.Errorf("output directory cannot be written to: %w; choose another one with --out", err), f.Close())
	case force:
		return f, nil
	}
	for _, name := range append([]string{
		PartialFile, JournalFile, IncompleteJournal, SummaryJSON, SummaryCSV, RequestsFile, page.File, page.SeriesFile, page.SessionsFile, mooncake.MetaName(RequestsFile), mooncake.MetaName(PartialFile),
	}, further...) {
		_, err := os.Lstat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			err = fmt.Errorf("output directory: %w; choose another one with --out", err)
		case name == PartialFile, name == JournalFile:
			err = fmt.Errorf("output directory %s: %s: %w, and has the records of a run that did not end; resume it with --resume %s, move it away, or choose another directory with --out", dir, name, fs.ErrExist, dir)
		default:
			err = fmt.Errorf("output directory %s: %s: %w, and the run would replace it; choose another directory with --out", dir, name, fs.ErrExist)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReopenFolder locks a directory for the rest of a run that was cut short in it.
func ReopenFolder(dir string) (*Folder, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("the folder of a run that was cut short: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder: name the folder of a run that was cut short", dir)
	}
	f, err := OpenFolder(dir, true)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, JournalFile)); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(Unbroken(dir), f.Close())
	}
	return f, nil
}

// Unbroken returns the error for a directory without a journal: why it has no run that can be continued.
func Unbroken(dir string) error {
	_, err := os.Stat(filepath.Join(dir, SummaryJSON))
	_, partial := os.Stat(filepath.Join(dir, PartialFile))
	_, incomplete := os.Stat(filepath.Join(dir, IncompleteJournal))
	switch {
	case incomplete == nil:
		return fmt.Errorf("the run in %s cannot be resumed: requests that it sent are not in its %s, which could not be written (was the disk full?), so they would be sent twice; start the run again", dir, JournalFile)
	case partial == nil:
		return fmt.Errorf("%s has the records of a run but no %s: an earlier version of moonloop made it, or that file was removed; start the run again", dir, JournalFile)
	case err == nil:
		return fmt.Errorf("the run in %s is complete: there is nothing to resume", dir)
	}
	return fmt.Errorf("%s has no %s: no run was cut short there; name the folder that was given to --out", dir, JournalFile)
}

// CheckInput returns an error if a trace is one of the files that the run would replace.
func (f *Folder) CheckInput(trace string) error {
	in, err := os.Stat(trace)
	if err != nil {
		return nil //nolint:nilerr // what does not exist, or is not a file, cannot be replaced
	}
	for _, name := range []string{SummaryJSON, SummaryCSV, RequestsFile, PartialFile} {
		if out, err := os.Stat(filepath.Join(f.dir, name)); err == nil && os.SameFile(in, out) {
			return fmt.Errorf("output directory %s: its %s is the trace itself; choose another directory with --out", f.dir, name)
		}
	}
	return nil
}

// Close unlocks the directory. If it was created by OpenFolder and is still empty, it is removed.
func (f *Folder) Close() error {
	if f == nil || f.unlock == nil {
		return nil
	}
	f.unlock()
	f.unlock = nil
	if f.made {
		_ = os.Remove(f.dir) // fails, as it should, unless it is empty
	}
	return nil
}
