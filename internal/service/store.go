// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/mooncake"
)

// Names of files in a run's folder in addition to those of agent.Run, and of the lock in the service's folder.
const (
	runFile   = "run.json"
	traceFile = "trace.jsonl" // that came with the request
	lockFile  = ".service.lock"
)

// isID matches a run's id, which is also the name of its folder.
var isID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// maxRunFile bounds the bytes that are read of a run.json, or of the metadata that comes with a trace.
const maxRunFile = 1 << 20

// store is the folder that contains the folders of runs. It allows no access outside it.
type store struct {
	dir    string
	root   *os.Root
	unlock func()
}

func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of results cannot be created: %w; choose another one with --out", err)
	}
	unlock, err := atomicfile.Hold(filepath.Join(dir, lockFile))
	if errors.Is(err, atomicfile.ErrLocked) {
		return nil, fmt.Errorf("folder of results %s: another agent has it; choose another one with --out", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("folder of results cannot be written to: %w; choose another one with --out", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		unlock()
		return nil, fmt.Errorf("folder of results: %w", err)
	}
	return &store{dir, root, unlock}, nil
}

func (s *store) close() {
	_ = s.root.Close()
	s.unlock()
}

// path returns the path of a run's folder.
func (s *store) path(id string) string { return filepath.Join(s.dir, id) }

// load returns the stored runs. Runs that had not ended are marked as interrupted. If this cannot be written, as on a full disk, only warn
// is called: a service that does not start could remove no run to make room.
func (s *store) load(warn func(string)) ([]Run, error) {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("folder of results: %w", err)
	}
	var list []Run
	for _, entry := range entries {
		if !entry.IsDir() || !isID.MatchString(entry.Name()) {
			continue
		}
		it := Run{ID: entry.Name()}
		content, err := s.read(it.ID, runFile)
		if err == nil {
			err = json.Unmarshal(content, &it)
		}
		switch {
		case err != nil || it.ID != entry.Name():
			it = Run{ID: entry.Name(), State: Interrupted, Error: "its " + runFile + " cannot be read"}
			if info, err := entry.Info(); err == nil {
				it.Created = info.ModTime()
			}
		case !it.ended():
			was := it.State
			it.State, it.Error = Interrupted, "the service ended without ending this run; what it had recorded is in "+report.PartialFile
			if err := s.save(it); err != nil {
				warn(fmt.Sprintf("warning: run %s was interrupted, but its %s still says %s: %v; if the disk is full, DELETE /v1/runs/%s or of another run frees room", it.ID, runFile, was, err, it.ID))
			}
		}
		list = append(list, it)
	}
	return list, nil
}

func (s *store) read(id, name string) ([]byte, error) {
	f, err := s.root.Open(path.Join(id, name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxRunFile))
}

// save writes run.json.
func (s *store) save(it Run) error {
	it.Files = nil
	return atomicfile.Write(filepath.Join(s.path(it.ID), runFile), atomicfile.Anything, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(it)
	})
}

// remove removes the folder of a run.
func (s *store) remove(id string) error { return s.root.RemoveAll(id) }

// used returns the size of all files in a run's folder, or in "." and so in all of them, in bytes.
func (s *store) used(folder string) (bytes int64) {
	_ = fs.WalkDir(s.root.FS(), folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // a file that has just been removed takes no room
		}
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// File is a file of a run.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"` // bytes
	URL  string `json:"url"`  // its path in this API
}

// names returns the names of the files of a run that clients can download.
func names(it Run) []string {
	list := []string{
		report.SummaryJSON, report.SummaryCSV, page.SeriesFile, page.SessionsFile, page.File, report.RequestsFile, mooncake.MetaName(report.RequestsFile),
		report.PartialFile, mooncake.MetaName(report.PartialFile),
	}
	if rejected := mooncake.RejectedName(it.Trace); !slices.Contains(list, rejected) {
		list = append(list, rejected)
	}
	return list
}

// files lists the files of a run.
func (s *store) files(it Run) (list []File) {
	for _, name := range names(it) {
		if info, err := s.root.Stat(path.Join(it.ID, name)); err == nil && info.Mode().IsRegular() {
			list = append(list, File{name, info.Size(), "/v1/runs/" + it.ID + "/files/" + name})
		}
	}
	return list
}
