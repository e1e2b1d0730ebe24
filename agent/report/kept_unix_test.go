// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package report_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
)

// TestKeptPipes: a pipe in place of a file of a run that was cut short is refused at once. Opening it would wait forever.
func TestKeptPipes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{report.PartialFile, report.JournalFile} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, records := report.ReadKept(dir, func(*measure.Record) (bool, error) { return true, nil })
	_, _, beginning := report.ReadBeginning(dir)
	_, journal := report.ReadJournal(dir, func(int64, time.Duration, int) {}, func(int64) {})
	for what, err := range map[string]error{"records": records, "beginning": beginning, "journal": journal} {
		if err == nil || !strings.Contains(err.Error(), "a pipe or a device") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
