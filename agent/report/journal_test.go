// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// Whatever the order of times, a request's line is in the file before the request may be sent; lines that follow each other closely share
// a write.
func TestJournalHasWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j, err := createJournal(dir, Beginning{})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Begin(Part{Start: clock.New().Start()}, 0); err != nil {
			t.Fatal(err)
		}
		inFile := func() int {
			text, err := os.ReadFile(filepath.Join(dir, JournalFile))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Count(string(text), `{"sent":`)
		}
		clk := clock.New()
		const ms = time.Millisecond
		time.Sleep(time.Second)
		now := clk.Now()

		j.Sent(0, now+20*ms, clk)
		if n := inFile(); n != 1 {
			t.Errorf("%d lines, want the line after a pause to be written at once", n)
		}
		for i := range int64(5) {
			j.Sent(1+i, now+20*ms-time.Duration(i)*ms/10, clk) // the last one is due first
		}
		if n := inFile(); n != 1 {
			t.Errorf("%d lines, though there is time", n)
		}
		j.Due(now + 19*ms)
		if n := inFile(); n != 1 {
			t.Errorf("%d lines, though none is due", n)
		}
		j.Due(now + 20*ms - 4*ms/10)
		if n := inFile(); n != 6 {
			t.Errorf("%d lines when the first of 5 is due, want all", n)
		}

		j.Sent(6, now+20*ms, clk)
		j.Sent(7, now, clk)
		if n := inFile(); n != 8 {
			t.Errorf("%d lines: a request that is due must be in the file at once, with those before", n)
		}
		j.Sent(8, now+20*ms, clk)
		for range 10 { // without a pause, until the line is near its time
			time.Sleep(ahead / 4)
			j.Sent(9, now+40*ms, clk)
		}
		if n := inFile(); n != 8 {
			t.Errorf("%d lines, though there is time", n)
		}
		for clk.Now() < now+20*ms-ahead {
			time.Sleep(ahead / 4)
			j.Sent(9, now+40*ms, clk)
		}
		if inFile() < 9 {
			t.Error("a line that is nearly due must be written, too")
		}
		j.Sent(10, now+50*ms, clk)
		if err := j.Close(true); err != nil {
			t.Fatal(err)
		}
		rows := map[int64]bool{}
		if _, err := ReadJournal(dir, func(row int64, _ time.Duration, _ int) { rows[row] = true }, func(int64) {}); err != nil || len(rows) != 11 {
			t.Errorf("%d rows, %v", len(rows), err)
		}
	})
}

// TestJournalThatCannotBeWritten: a journal that lacks requests says how many, and its folder is refused: a resumed run would send them
// again. A new run in the folder begins a new journal.
func TestJournalThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	j, err := createJournal(dir, Beginning{})
	if err != nil {
		t.Fatal(err)
	}
	clk := clock.New()
	if err := j.Begin(Part{Start: clk.Start()}, 0); err != nil {
		t.Fatal(err)
	}
	j.Sent(0, clk.Now(), clk)
	if err := j.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := j.file.Close(); err != nil { // every write fails from here on
		t.Fatal(err)
	}
	j.Sent(1, clk.Now(), clk)
	j.Sent(2, clk.Now(), clk)
	refused := func() {
		t.Helper()
		f, err := ReopenFolder(dir)
		if err == nil || !strings.Contains(err.Error(), "cannot be resumed: requests that it sent are not in its resume.jsonl") {
			t.Errorf("the folder is not refused: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	refused() // even if the run is killed now
	if err := j.Complete(); err == nil || !strings.Contains(err.Error(), "2 requests are not in resume.jsonl: ") {
		t.Error(err)
	}
	_ = j.Close(true) // the file is closed
	refused()
	q, again, err := Begin(dir, nil, Beginning{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := ReopenFolder(dir)
	if err != nil {
		t.Error(err)
	}
	if err := errors.Join(f.Close(), q.Abandon(), again.Close(false)); err != nil {
		t.Error(err)
	}
}
