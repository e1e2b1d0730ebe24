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

// maxRejected is the number of rejected rows from which a quarantine asks whether the file is a trace at all.
const maxRejected = 100

// Rejected is a row that cannot be used, on its way to whoever decides what becomes of it ([ReaderOptions].Reject).
type Rejected struct {
	Fault *RowError // what is wrong with it, with file and line
	Rows  int64     // rows read before it that could be used
	// Text is the line as it was, without its end. It may hold a prompt, and is valid until Reject returns.
	Text []byte
}

// Quarantine is where rows go that cannot be used when the rest of their trace is used all the same: each is counted and,
// if there is a file, kept in it. Its Add is a [ReaderOptions].Reject. It is safe for concurrent use.
//
// The file has a JSON object on each line, with the trace's name (trace), the number of the line in it (line), the key
// that is wrong, if it is one (field), what is wrong (reason), and the line itself, as a string (row) or, where it is not
// valid UTF-8, in base64 (row_base64). It is as confidential as the trace: its lines may hold prompts.
//
// A quarantine is for a few bad rows. When a hundred were rejected and no more than these could be used, the file is
// more likely something else, or of another version, and Add returns an error.
type Quarantine struct {
	mu    sync.Mutex
	name  string
	out   *atomicfile.File // nil without a file
	buf   *bufio.Writer
	count int64
	first *RowError
	done  bool
}

// NewQuarantine creates a quarantine with a file of the given name, which appears when it is committed, readable by its
// owner alone. Without a name there is no file, and rows are counted only.
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

// RejectedName returns the name for the rejected rows of a trace, without a directory: that of the trace, without the suffix of
// a compression and .jsonl, with .rejected.jsonl. For standard input it is stdin.rejected.jsonl.
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

// CheckName reports that the quarantine's file would take the place of the trace that its rows come from, or of the trace's
// sidecar. A quarantine without a file takes no place.
func (q *Quarantine) CheckName(trace string) error {
	at, err := os.Stat(q.name)
	if q.name == "" || err != nil {
		return nil //nolint:nilerr // what is not there cannot be replaced
	}
	for _, name := range []string{trace, MetaName(trace)} {
		if info, err := os.Stat(name); err == nil && os.SameFile(at, info) {
			return fmt.Errorf("quarantine: %s is the trace's own: name another file", q.name)
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

// Add adds a row in. An error says that the row could not be kept, or that there are too many of its kind.
func (q *Quarantine) Add(r Rejected) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count++
	q.first = cmp.Or(q.first, r.Fault)
	if err := q.write(r); err != nil {
		return fmt.Errorf("quarantine: line %d of the trace was not kept in %s: %w", r.Fault.Line, q.name, err)
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
	fault.File, fault.Line = "", 0 // they have keys of their own
	line := quarantined{Trace: r.Fault.File, Line: r.Fault.Line, Field: fault.Field, Reason: fault.Error()}
	if utf8.Valid(r.Text) {
		line.Row = new(string(r.Text))
	} else {
		line.Base64 = r.Text
	}
	enc := json.NewEncoder(q.buf) // which ends each value with a newline
	enc.SetEscapeHTML(false)
	return enc.Encode(line)
}

// rejected returns the number of rows that were rejected, and the first of them.
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

// First returns what was wrong with the first rejected row, or nil.
func (q *Quarantine) First() *RowError {
	_, first := q.rejected()
	return first
}

// Name returns the name of the quarantine's file; empty when it has none.
func (q *Quarantine) Name() string {
	if q == nil {
		return ""
	}
	return q.name
}

// Commit puts the file, complete and synced, under its name. It is there without a rejected row, too, empty: so a file of an
// earlier reading cannot pass for this one's. Rows that come later are errors.
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
