// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// outputs are the files that one call writes: a trace, those of replays next to it, and their sidecars. They prevent accidental replacement:
// existing files are replaced only with force, and files that are read, or belong to another trace, never.
type outputs struct {
	out    string // the trace of production
	force  bool
	runs   bool          // there may be traces of replays
	inputs []fs.FileInfo // files that are read

	begun map[string]bool // names of this call, in lower case, because some file systems ignore case
}

// read records a file that is read, and reports whether it was recorded before, under any name. A missing file is not recorded.
func (o *outputs) read(name string) (again bool) {
	again = o.reads(name)
	if info, err := os.Stat(name); err == nil {
		o.inputs = append(o.inputs, info)
	}
	return again
}

// check returns why the files cannot be written, as far as is known in advance.
func (o *outputs) check() error {
	if o.out == "" {
		return hintError{errors.New("--out: no trace to write is given"), "name a file: --out trace.jsonl"}
	}
	if _, err := os.Stat(filepath.Dir(o.out)); err != nil {
		return fmt.Errorf("--out %s cannot be created: %w", o.out, err)
	}
	file, err := o.create(o.out)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	clear(o.begun)
	if err := file.Close(); err != nil || !o.runs {
		return err
	}
	there, err := capture.RunFiles(o.out)
	if err != nil {
		return err
	}
	for _, name := range there {
		if o.reads(name) {
			return fmt.Errorf("--out %s: %s is an input, and also the name that a replay's trace would get: name another trace", o.out, name)
		}
	}
	if len(there) > 0 && !o.force {
		return exists(fmt.Errorf("--out: there are traces of replays next to %s already: %s: %w", o.out, there[0], fs.ErrExist))
	}
	return nil
}

// create starts a trace.
func (o *outputs) create(name string) (*mooncake.File, error) {
	lower := strings.ToLower(name)
	if o.begun[lower] {
		return nil, fmt.Errorf("%s: two traces of this call have that name", name)
	}
	for _, file := range []string{name, mooncake.MetaName(name)} {
		if o.reads(file) {
			return nil, fmt.Errorf("%s is an input: name another trace", file)
		}
	}
	if other := o.sibling(name); other != "" {
		return nil, fmt.Errorf("%s is the sidecar of %s, too: name another trace", mooncake.MetaName(name), other)
	}
	start := mooncake.CreateNew
	if o.force {
		start = mooncake.Create
	}
	file, err := start(name)
	if err != nil {
		return nil, exists(err)
	}
	if o.begun == nil {
		o.begun = map[string]bool{}
	}
	o.begun[lower] = true
	return file, nil
}

// exists adds a hint to the error of a file that is there.
func exists(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return hintError{err, "--force replaces what is there, once the new trace is complete"}
	}
	return err
}

func (o *outputs) reads(name string) bool {
	info, err := os.Stat(name)
	return err == nil && slices.ContainsFunc(o.inputs, func(in fs.FileInfo) bool { return os.SameFile(in, info) })
}

// sibling returns another existing trace with the same sidecar: prod.jsonl for prod.jsonl.gz.
func (o *outputs) sibling(name string) string {
	meta := mooncake.MetaName(name)
	if _, err := os.Stat(meta); err != nil {
		return ""
	}
	stem := strings.TrimSuffix(meta, ".meta.json")
	for _, ending := range []string{".jsonl", ".jsonl.gz", ".jsonl.zst", ".jsonl.zstd", ".jsonl.bz2"} {
		other := stem + ending
		if info, err := os.Stat(other); err == nil && info.Mode().IsRegular() && other != name && !o.reads(other) {
			return other
		}
	}
	return ""
}

// file returns the name of the file for the trace of a partition.
func (o *outputs) file(p capture.Partition) string {
	if p.Replay && o.runs {
		return capture.RunFile(o.out, p.Run)
	}
	return o.out
}
