// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/convert"
)

// This file makes the trace for "moonloop replay --from" and "--transform", in a temporary folder, with the verbs convert and transform.
// Users of these flags need not run the verbs themselves.

// sourceSteps are the steps that make the trace of a replay from a file.
type sourceSteps struct {
	from  convert.Format
	steps []string // flags of transform, a step each
}

// readingFlags are the flags about reading a trace. They are passed to the first step, which reads it.
var readingFlags = []string{"time-unit", "map", "block-size", "fine-block-size"}

// aTransform accepts flags of transform that make one trace from another.
var aTransform = rule{want: `flags of "moonloop transform", such as "--scale 0.5 --end 20m"`, long: true, flags: true, ok: func(text string) error {
	verb := newTransformCommand()
	err := verb.ParseFlags(strings.Fields(text))
	if errors.Is(err, pflag.ErrHelp) {
		err = errors.New("--help belongs to the verb itself")
	}
	for _, name := range append([]string{"out", "append", "merge", "help"}, readingFlags...) {
		if err == nil && verb.Flags().Changed(name) {
			err = fmt.Errorf("--%s cannot be part of a --transform", name)
		}
	}
	if err == nil && (verb.Flags().NArg() > 0 || verb.Flags().NFlag() == 0) {
		err = errors.New("it has something other than flags, or no flag")
	}
	if err != nil {
		return advice(err.Error() + `; want flags of "moonloop transform", such as "--scale 0.5 --end 20m"`)
	}
	return nil
}}

// make makes the trace, and returns a function that removes it. Without --from and --transform it does nothing.
func (m sourceSteps) make(cmd *cobra.Command, f *replayFlags) (remove func(), err error) {
	remove = func() {}
	if m.from == "" && m.steps == nil {
		return remove, nil
	}
	folder, err := os.MkdirTemp("", "moonloop-replay-*")
	if err != nil {
		return remove, fmt.Errorf("the trace that is made from %s needs a temporary folder: %w; $TMPDIR names another one", publicValue(f.cfg.Trace.Name), err)
	}
	remove = func() { _ = os.RemoveAll(folder) }
	t, stdin := &f.cfg.Trace, cmd.InOrStdin()
	name := t.Name
	base, _, _ := strings.Cut(filepath.Base(publicValue(name)), ".")
	step := func(verb string, args ...string) error {
		into, err := os.MkdirTemp(folder, verb+"-*")
		if err != nil {
			return fmt.Errorf("a temporary folder in %s: %w", folder, err)
		}
		made := filepath.Join(into, strings.Replace(base, "-", "stdin", 1)+".jsonl")
		status := execute(cmd.Context(), newRootCommand(), append([]string{verb, "--out", made}, args...), stdin, io.Discard, cmd.ErrOrStderr())
		name, stdin = made, strings.NewReader("")
		return exitWith(status)
	}
	if m.from != "" {
		args, err := filesOf(name)
		if err != nil {
			return remove, err
		}
		if m.from == convert.Payloads && args[0] != name { // a folder, as for AIPerf
			args = append(args, "--file-sessions")
		}
		args = append([]string{"--from", string(m.from)}, args...)
		if m.from.Keeps() {
			args = append(args, "--prompts", string(convert.PromptsKeep))
		}
		if t.BlockSize > 0 {
			args = append(args, "--block-size", strconv.Itoa(t.BlockSize))
		}
		if err := step("convert", args...); err != nil {
			return remove, err
		}
	}
	for i, flags := range m.steps {
		args := append([]string{name}, strings.Fields(flags)...)
		for _, reading := range readingFlags {
			if flag := cmd.Flags().Lookup(reading); i == 0 && m.from == "" && flag.Changed {
				args = append(args, "--"+reading+"="+flag.Value.String())
			}
		}
		if err := step("transform", args...); err != nil {
			return remove, err
		}
	}
	if m.from != "" || m.steps != nil { // the sidecar has these now
		t.Unit, t.Map, t.BlockSize, t.FineBlockSize = 0, nil, 0, 0
	}
	t.MadeFrom, t.Name = t.Name, name
	return remove, nil
}

// traceNames matches names of files with rows.
var traceNames = regexp.MustCompile(`\.(parquet|(jsonl?|csv)(\.gz|\.zst|\.bz2)?)$`)

// filesOf returns the files of a folder, such as exports of engines; for anything else, its name.
func filesOf(name string) (files []string, err error) {
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return []string{name}, nil
	}
	err = filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && traceNames.MatchString(path) {
			files = append(files, path)
		}
		return err
	})
	if err == nil && files == nil {
		err = fmt.Errorf("%s: there is no file in it whose name ends in .jsonl, .json, .csv or .parquet", quoted(name))
	}
	return files, err
}
