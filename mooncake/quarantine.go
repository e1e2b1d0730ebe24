// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/moonloop/moonloop/internal/atomicfile"
)

// maxRejected is the minimum number of rejected rows for a quarantine to doubt that the file is a trace at all.
const maxRejected = 100

// Rejected is a row that cannot be used. A [ReaderOptions].Reject decides what happens to it.
type Rejected struct {
	Fault *RowError // the error, with file and line
	Rows  int64     // rows read before it that could be used
	// Text is the line without its line end. It may contain a prompt. It is valid until Reject returns.
	Text []byte
}

// Quarantine counts the rows that cannot be used, while the rest of their trace is used, and writes them to a file, if it has one. Its Add
// is a [ReaderOptions].Reject. It is safe for concurrent use.
//
// The file has one JSON object per line: the name of the trace (trace), the line number in it (line), the key with the error, if there is
// one (field), the error (reason), and the line itself, as a string (row) or, if it is not valid UTF-8, in base64 (row_base64). It is as
// confidential as the trace: its lines may contain prompts.
//
// A quarantine is for a few bad rows. If at least 100 rows were rejected, and no more rows than that could be used, the file is probably not a
// trace, or of another version, and Add returns an error.
type Quarantine struct {
	mu    sync.Mutex
	name  string
	out   *atomicfile.File // nil without a file
	buf   *bufio.Writer
	count int64
	first *RowError
	done  bool
}

// NewQuarantine creates a quarantine with a file of the given name. The file appears when it is committed, and only its owner can read it.
// Without a name, rows are only counted.
func NewQuarantine(name string) (*Quarantine, error) {
	q := &Quarantine{name: name}
	if name == "" {
		return q, nil
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("quarantine: %s is not a file: name one that may be replaced", name)
	}
	out, err := atomicfile.Create(name, atomicfile.Regular)
	if err != nil {
		return nil, fmt.Errorf("quarantine: %w; name a file in a directory that exists and can be written", err)
	}
	q.out, q.buf = out, bufio.NewWriter(out)
	return q, nil
}

// RejectedName returns the file name for the rejected rows of a trace, without a directory: the trace's name, with the suffix of a
// compression removed and .jsonl replaced by .rejected.jsonl. For standard input it is stdin.rejected.jsonl.
func RejectedName(trace string) string {
	base := filepath.Base(trace)
	if strings.Contains(trace, "://") {
		base = path.Base(PublicName(trace))
	}
	base = strings.TrimSuffix(MetaName(base), ".meta.json")
	switch base {
	case "-":
		base = "stdin"
	case "", ".", "/":
		base = "trace"
	}
	return base + ".rejected.jsonl"
}

// CheckName returns an error if the quarantine's file would replace the trace from which the rows come, or its sidecar. Without a file it
// returns nil.
func (q *Quarantine) CheckName(trace string) error {
	at, err := os.Stat(q.name)
	if q.name == "" || err != nil {
		return nil //nolint:nilerr // what is not there cannot be replaced
	}
	for _, name := range []string{trace, MetaName(trace)} {
		if info, err := os.Stat(name); err == nil && os.SameFile(at, info) {
			return fmt.Errorf("quarantine: %s is a file of the trace: name another file", q.name)
		}
	}
	return nil
}

// quarantined is a line of the file.
type quarantined struct {
	Trace  string  `json:"trace,omitempty"`
	Line   int64   `json:"line"`
	Field  string  `json:"field,omitempty"`
	Reason string  `json:"reason"`
	Row    *string `json:"row,omitempty"`
	Base64 []byte  `json:"row_base64,omitempty"`
}

// Add adds a row. It returns an error if the row could not be written, or if there are too many such rows.
func (q *Quarantine) Add(r Rejected) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count++
	q.first = cmp.Or(q.first, r.Fault)
	if err := q.write(r); err != nil {
		return fmt.Errorf("quarantine: line %d of the trace was not written to %s: %w", r.Fault.Line, q.name, err)
	}
	if q.count >= maxRejected && q.count >= r.Rows {
		return fmt.Errorf("%d of the first %d rows cannot be used, so this is probably not a Mooncake trace, or one of another version; the first is %w",
			q.count, q.count+r.Rows, q.first)
	}
	return nil
}

func (q *Quarantine) write(r Rejected) error {
	switch {
	case q.done:
		return errors.New("it is closed")
	case q.out == nil:
		return nil
	}
	fault := *r.Fault
	fault.File, fault.Line = "", 0 // the object has keys for these
	line := quarantined{Trace: r.Fault.File, Line: r.Fault.Line, Field: fault.Field, Reason: fault.Error()}
	if utf8.Valid(r.Text) {
		line.Row = new(string(r.Text))
	} else {
		line.Base64 = r.Text
	}
	enc := json.NewEncoder(q.buf) // which adds a newline to each value
	enc.SetEscapeHTML(false)
	return enc.Encode(line)
}

// rejected returns the number of rows that were rejected, and the error of the first of them.
func (q *Quarantine) rejected() (count int64, first *RowError) {
	if q == nil {
		return 0, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count, q.first
}

// Count returns the number of rows that were rejected.
func (q *Quarantine) Count() int64 {
	count, _ := q.rejected()
	return count
}

// First returns the error of the first rejected row, or nil.
func (q *Quarantine) First() *RowError {
	_, first := q.rejected()
	return first
}

// Name returns the name of the quarantine's file; empty if it has none.
func (q *Quarantine) Name() string {
	if q == nil {
		return ""
	}
	return q.name
}

// Commit completes the file, syncs it and renames it to its name. Without a rejected row the file is empty, but exists, so that an older
// file cannot be mistaken for this one. Adding rows after Commit is an error.
func (q *Quarantine) Commit() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	open := q.out != nil && !q.done
	q.done = true
	if !open {
		return nil
	}
	err := q.buf.Flush()
	if err == nil {
		err = q.out.Commit()
	}
	if err != nil {
		return fmt.Errorf("quarantine: %s was not written: %w", q.name, errors.Join(err, q.out.Discard()))
	}
	return nil
}

// Close discards the file unless it was committed.
func (q *Quarantine) Close() error {
	if q == nil || q.out == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done = true
	return q.out.Discard()
}
