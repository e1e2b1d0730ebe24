// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

// This file writes and reads what is needed to continue a run that was cut short: its configuration, the starts of its parts, and the rows
// that had been sent. It is separate from the records, because a record is written when a request has ended, so requests in flight at a
// crash have none.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
	"github.com/moonloop/moonloop/mooncake"
)

// JournalFile is the journal of a run that is not complete. Its first line is a [Beginning]. [Part]s follow, and a line for each row, which
// is written before the row's request is sent. Like every file of a run, it has no secret and no text of a prompt.
const JournalFile = "resume.jsonl"

// IncompleteJournal is the name of a journal that could not be written, as on a full disk. It lacks requests that were sent, and a resumed
// run would send them again. So it is renamed at once, and --resume refuses it. A torn last line alone does not show that: a journal that was
// written until the process died can have one, too, and its request was not sent.
const IncompleteJournal = JournalFile + incompleteSuffix

const incompleteSuffix = ".incomplete"

// Beginning describes what a resumed part must have in common with its run.
type Beginning struct {
	Version string `json:"schema_version"` // SchemaVersion
	Run     Run    `json:"run"`
	// Config and Sources are the settings of the program, as in summary.json.
	Config   map[string]any    `json:"config,omitempty"`
	Sources  map[string]string `json:"config_sources,omitempty"`
	Trace    Trace             `json:"trace"`
	Schedule Schedule          `json:"schedule"`
	// Checksum is that of the trace's file; empty if there is none, as for a pipe. Lookahead is a digest of the rows that were read before the
	// first one was sent.
	Checksum  string `json:"trace_checksum,omitempty"`
	Lookahead string `json:"lookahead_digest"`
}

// Part is one of the parts of a resumed run. A run that was never cut short has one.
type Part struct {
	Start time.Time `json:"start_time"` // wall-clock time at which it began its schedule
	From  float64   `json:"from_ms"`    // the same time, in the time of the schedule
	// Zero is the schedule's zero on the clock of the records, in ms. It is the same in all parts.
	Zero float64 `json:"zero_ms"`
	// NotSent are rows that were about to be sent in the earlier parts, but were not. Their records no longer count.
	NotSent []int64 `json:"not_sent,omitempty"`
	// Boot changes when the machine is restarted; empty if the system does not provide it.
	Boot string `json:"boot_id,omitempty"`
}

// Journal is the journal of a run. Its methods may be called from any goroutine. A nil Journal does nothing.
type Journal struct {
	mu    sync.Mutex
	file  *os.File
	path  string // its name now
	shift time.Duration
	lost  int64
	err   error // the first; then the file has its incompleteSuffix

	lines []byte        // that wait: of requests that are not due yet
	last  time.Duration // when the last one was added
	due   atomic.Int64  // the first time at which one of the lines must be in the file, in ns; math.MaxInt64 if none waits
	// goesOn says that it is the journal of a resumed run.
	goesOn bool
}

// Begin begins the records and the journal of a run in its directory. It replaces those of an earlier run: its journal is removed first, so
// that the records of one run cannot be mistaken for those of another.
func Begin(dir string, sidecar *mooncake.Meta, b Beginning) (*Requests, *Journal, error) {
	for _, name := range []string{JournalFile, IncompleteJournal} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("output directory cannot be written to: %w; choose another one with --out", err)
		}
	}
	q, err := CreateRequests(dir, sidecar)
	if err != nil {
		return nil, nil, err
	}
	j, err := createJournal(dir, b)
	if err != nil {
		return nil, nil, errors.Join(err, q.Abandon())
	}
	return q, j, nil
}

func createJournal(dir string, b Beginning) (*Journal, error) {
	b.Version = SchemaVersion
	head, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", JournalFile, err)
	}
	path := filepath.Join(dir, JournalFile)
	err = writeFile(path, func(w io.Writer) error { _, err := w.Write(append(head, '\n')); return err })
	if err != nil {
		return nil, err
	}
	return openJournal(path, false)
}

func openJournal(path string, goesOn bool) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600) //nolint:gosec // the user's folder
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", JournalFile, err)
	}
	j := &Journal{file: f, path: path, goesOn: goesOn}
	j.due.Store(math.MaxInt64)
	return j, nil
}

// Begin records the beginning of a part. From then on, shift is added to the times of [Journal.Sent], to convert them to the clock of the
// records.
func (j *Journal) Begin(p Part, shift time.Duration) error {
	if j == nil {
		return nil
	}
	p.Boot = bootID()
	line, err := json.Marshal(p)
	if err == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.shift = shift
		j.flush()
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", JournalFile, err)
	}
	return nil
}

// ahead is how long before a request is due its line is written, if another line is written at that time.
const ahead = time.Millisecond

// Sent records that a row's request is about to be sent, at a time of the clock. The kernel has the record before [Journal.Due] returns
// for that time, or, if the time has come, before Sent returns; so the record survives the process. That costs a system call. So if
// requests follow each other closely, one call also writes the lines of those that are due soon.
func (j *Journal) Sent(row int64, at time.Duration, clk clock.Clock) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		j.lost++
		return
	}
	j.lines = strconv.AppendInt(append(j.lines, `{"sent":`...), row, 10)
	j.lines = strconv.AppendFloat(append(j.lines, `,"at":`...), millis(at+j.shift), 'f', 3, 64)
	j.lines = append(j.lines, '}', '\n')
	j.due.Store(min(j.due.Load(), int64(at)))
	// The clock is read after due is stored: either Due sees the line, or Due was called for a time before the one that is read here.
	now := clk.Now()
	lonely := now-j.last > ahead/2
	if j.last = now; lonely || now >= time.Duration(j.due.Load())-ahead {
		j.flush()
	}
}

// Due returns as soon as the kernel has the records of all requests that are due by now, the current time. It must be called before one of
// them is sent.
func (j *Journal) Due(now time.Duration) {
	if j == nil || now < time.Duration(j.due.Load()) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flush()
}

// flush writes the lines that wait. The caller holds the lock.
func (j *Journal) flush() {
	written := 0
	if len(j.lines) > 0 && j.err == nil {
		if written, j.err = appendNow(j.file, j.lines); j.err != nil {
			j.path += incompleteSuffix
			j.err = errors.Join(j.err, os.Rename(j.file.Name(), j.path))
		}
	}
	if j.err != nil {
		j.lost += int64(bytes.Count(j.lines[written:], []byte("\n")))
	}
	j.lines = j.lines[:0]
	j.due.Store(math.MaxInt64)
}

// Abandon closes the journal of a run that failed to start, and removes it, unless it has an earlier part. After Close it does nothing.
func (j *Journal) Abandon() error {
	if j == nil {
		return nil
	}
	return j.Close(j.goesOn)
}

// Complete returns an error if the journal lacks requests, so that the run cannot be resumed. It must be called after the last request.
func (j *Journal) Complete() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flush()
	if j.err == nil {
		return nil
	}
	return fmt.Errorf("%d requests are not in %s: %w", j.lost, JournalFile, j.err)
}

// Close closes the journal, and removes it unless it is kept for resuming. A second Close does nothing.
func (j *Journal) Close(keep bool) error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		return nil
	}
	j.flush()
	err := j.file.Close()
	if !keep {
		err = errors.Join(err, os.Remove(j.path))
	}
	j.file = nil
	return err
}

// Journaled is the content of a journal.
type Journaled struct {
	Beginning
	Parts []Part // empty: the run was cut short before its schedule began
	whole int64  // size of its whole lines
}

// ReadBeginning returns the first line of a run's journal unchanged. The error is [os.ErrNotExist] if there is none.
func ReadBeginning(dir string) (line []byte, b Beginning, err error) {
	f, err := atomicfile.Open(filepath.Join(dir, JournalFile))
	if err != nil {
		return nil, b, err
	}
	defer func() { _ = f.Close() }() // it was only read
	line, err = bufio.NewReaderSize(io.LimitReader(f, maxBeginning), 1<<16).ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, b, fmt.Errorf("%s cannot be read: %w", f.Name(), err)
	}
	in := json.NewDecoder(bytes.NewReader(line))
	in.UseNumber() // numbers are kept literally
	if err = in.Decode(&b); err == nil && b.Version != SchemaVersion {
		err = fmt.Errorf("schema_version is %q, want %q: another version of moonloop wrote it; resume the run with that version", b.Version, SchemaVersion)
	}
	if err != nil {
		return nil, b, fmt.Errorf("%s: line 1: %w", f.Name(), jsonrows.Explain(err))
	}
	return line, b, nil
}

// maxBeginning is the maximum length of the first line of a journal, in bytes. It usually has about ten thousand.
const maxBeginning = 4 << 20

// ReadJournal reads a run's journal. It calls sent for each row that was about to be sent, with its time on the clock of the records and
// the number of its part, from 0; and notSent for each such row that was not sent after all. The last line may be torn; then it is ignored.
func ReadJournal(dir string, sent func(row int64, at time.Duration, part int), notSent func(row int64)) (*Journaled, error) {
	head, b, err := ReadBeginning(dir)
	if err != nil {
		return nil, err
	}
	in := &Journaled{Beginning: b, whole: int64(len(head))}
	name := filepath.Join(dir, JournalFile)
	f, err := atomicfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if _, err := f.Seek(in.whole, io.SeekStart); err != nil {
		return nil, err
	}
	in.whole, err = wholeLines(f, name, in.whole, 1, func(line []byte) error {
		if row, at, ok := parseNote(line); ok {
			if len(in.Parts) == 0 {
				return errors.New("a row was sent before the schedule began")
			}
			sent(row, at, len(in.Parts)-1)
			return nil
		}
		var p Part
		if err := json.Unmarshal(line, &p); err != nil {
			return err
		}
		if p.Start.IsZero() {
			return errors.New("it is neither a row that was sent nor the beginning of a part")
		}
		if !bearable(p.From) || p.From < 0 || !bearable(p.Zero) {
			return fmt.Errorf("a part that begins at %v ms of a schedule whose zero is %v: no run lasts that long", p.From, p.Zero)
		}
		for _, row := range p.NotSent {
			notSent(row)
		}
		in.Parts = append(in.Parts, p)
		return nil
	})
	return in, err
}

// parseNote reads the lines that Sent writes, which are most of a journal.
func parseNote(line []byte) (row int64, at time.Duration, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"sent":`))
	number, rest, found := bytes.Cut(rest, []byte(`,"at":`))
	ms, closed := bytes.CutSuffix(rest, []byte("}"))
	row, err := strconv.ParseInt(string(number), 10, 64)
	v, err2 := strconv.ParseFloat(string(ms), 64)
	return row, nanos(v), ok && found && closed && row >= 0 && err == nil && err2 == nil && bearable(v)
}

// bearable reports whether a time in ms is possible in a run: within 30 years.
func bearable(ms float64) bool { return ms >= -1e12 && ms <= 1e12 }

// Reopen continues a journal that has been read. A torn last line is cut off.
func (in *Journaled) Reopen(dir string) (*Journal, error) {
	path := filepath.Join(dir, JournalFile)
	if err := os.Truncate(path, in.whole); err != nil {
		return nil, fmt.Errorf("%s cannot be written: %w", JournalFile, err)
	}
	return openJournal(path, true)
}

// Wall converts a time on the clock of the records to wall-clock time, given its part.
func (p Part) Wall(at time.Duration) time.Time { return p.Start.Add(at - nanos(p.Zero+p.From)) }

// SameBoot reports whether the machine has not been restarted since the part began, as far as it is known.
func (p Part) SameBoot() bool { return p.Boot == bootID() }

// wholeLines calls yield with each remaining line of a file, without its line end, and returns the size of the whole lines. It ignores a
// torn last line: one without a line end, or one that yield refuses. Errors name the file and the line. The bytes of a line are valid until
// yield returns.
func wholeLines(f io.Reader, name string, from int64, before int, yield func(line []byte) error) (whole int64, err error) {
	in := jsonrows.NewLines(bufio.NewReaderSize(f, 1<<18), lines.Longest)
	whole = from
	var torn error
	for n := before + 1; ; n++ {
		line, err := in.Next()
		if errors.Is(err, io.EOF) || err == nil && line[len(line)-1] != '\n' {
			return whole, nil
		}
		if torn != nil { // a line follows, so it was not the last
			return whole, torn
		}
		if err != nil {
			return whole, fmt.Errorf("%s: line %d: %w", name, n, err)
		}
		if err := yield(line[:len(line)-1]); err != nil {
			torn = fmt.Errorf("%s: line %d: %w", name, n, jsonrows.Explain(err))
			continue
		}
		whole += int64(len(line))
	}
}

// bootID returns a value that changes when the machine is restarted; empty if the system does not provide one.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(id))
}
