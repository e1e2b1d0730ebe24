// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// This file has "moonloop replay --resume DIR": the settings of a run that was cut short come from its folder, and the run continues. With
// --runs, the run that was cut short continues, followed by those that had not begun.

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/atomicfile"
)

// resumeFlags are the flags that may be given again: those that no file has, those for locations, and those for the display.
const resumeFlags = "resume trace url header header-env api-key-env api-key-file ca-file cert-file key-file insecure-skip-verify extra-inputs " +
	"dataset tokenizer quarantine save-prompts wait-ready start-at otlp-endpoint otlp-protocol " +
	"no-report-page xlsx parquet slice trace-url percentiles table progress print-config"

// dropped are settings that a resumed run does not have, or takes from its folder.
const dropped = "start-at force out dry-run"

// mayGoOn reports whether a flag may be given together with --resume.
func mayGoOn(flag string) bool { return slices.Contains(strings.Fields(resumeFlags), flag) }

// storedSettings are those of a run, in the form of a settings file.
type storedSettings struct {
	file    string
	content string
}

// readStored finds the settings of the run to continue, and refuses flags that a resumed run cannot have.
func (f *replayFlags) readStored(cmd *cobra.Command) error {
	switch info, err := os.Stat(f.resume); {
	case err != nil:
		return fmt.Errorf("--resume %s: %s; name the folder that was given to --out", quoted(f.resume), reason(err))
	case !info.IsDir():
		return fmt.Errorf("--resume %s: this is not a folder; name the one that was given to --out", quoted(f.resume))
	}
	var others []string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if !mayGoOn(flag.Name) {
			others = append(others, "--"+flag.Name)
		}
	})
	if others != nil {
		return fmt.Errorf("--resume: a resumed run has the settings in its folder; leave %s out", strings.Join(others, ", "))
	}
	line, b, err := report.ReadBeginning(f.resume)
	if err == nil {
		f.stored = storedSettings{filepath.Join(f.resume, report.JournalFile), string(line)}
		f.began = &b
	} else if errors.Is(err, fs.ErrNotExist) {
		if f.stored, err = storedOfRuns(f.resume); err == nil && f.stored.content == "" {
			err = report.Unbroken(f.resume)
		}
	}
	if err == nil && len(b.Config) == 0 && f.began != nil {
		err = fmt.Errorf("%s: it has no settings: a program other than moonloop replay made the run, and has to resume it", f.stored.file)
	}
	return err
}

// storedOfRuns finds the settings of the runs of --runs in a folder; they are empty if there are none.
func storedOfRuns(dir string) (s storedSettings, err error) {
	folders, err := filepath.Glob(filepath.Join(dir, "run-*"))
	if err != nil {
		return s, err
	}
	for _, folder := range folders {
		if line, _, err := report.ReadBeginning(folder); err == nil {
			return storedSettings{filepath.Join(folder, report.JournalFile), string(line)}, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
	}
	name := filepath.Join(runFolder(dir, 1), report.SummaryJSON)
	content, err := atomicfile.ReadFile(name, page.MaxSummary)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	return storedSettings{name, string(content)}, err
}

// values returns the stored settings by flag.
func (s storedSettings) values(known []*pflag.Flag) (map[string]given, error) {
	if s.content == "" {
		return map[string]given{}, nil
	}
	found, err := parsedSettings(s.file, s.content, known)
	maps.DeleteFunc(found, func(name string, _ given) bool { return slices.Contains(strings.Fields(dropped), name) })
	return found, err
}

// goOn sets what a resumed run takes from its folder.
func (f *replayFlags) goOn() error {
	c := &f.cfg
	c.Out = f.resume
	if f.began != nil { // this run may be one of several of --runs, with its own seed
		f.runs, c.Resume, c.Prompt.Seed = 1, true, f.began.Schedule.Seed
		return nil
	}
	if f.runs < 2 {
		c.Resume = true
		return nil
	}
	for i := 1; i <= f.runs; i++ {
		if stateOf(runFolder(c.Out, i)) != runOver {
			return nil
		}
	}
	return fmt.Errorf("all %d runs in %s are complete: there is nothing to resume", f.runs, quoted(c.Out))
}

// The states of a run of --runs.
const (
	runToCome = iota
	runBroken
	runOver
)

func stateOf(dir string) int {
	for _, name := range []string{report.JournalFile, report.IncompleteJournal} { // the second one is refused, and not replaced by a new run
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return runBroken
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, report.SummaryJSON)); err == nil {
		return runOver
	}
	return runToCome
}

// resumeAdvice describes how to continue a run that did not come to its end; "" for other runs.
func resumeAdvice(dir string) string {
	if _, err := os.Lstat(filepath.Join(dir, report.JournalFile)); err != nil {
		return ""
	}
	return "the run is not complete; to resume it: moonloop replay --resume " + shellWord(dir) + "\n"
}
