// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/mooncake"
)

// Requests writes requests.jsonl: each record's row, with the additional key result. Safe for concurrent use.
//
// Records arrive as requests end, and are written in that order, to [PartialFile], at most flushAfter later, in whole lines, so that
// a killed run leaves all of its records except the last ones. When the run has ended, Close sorts the lines into the trace's order, which
// readers of traces expect, as far as a bounded buffer can restore it. For a record without a Row, only the result is written.
type Requests struct {
	mu     sync.Mutex
	file   *atomicfile.File // under the partial name
	path   string           // the final one
	closed bool
	err    error // the first
	lost   int64
	late   int64 // lines after a later row's line in the final file

	lines   []byte // whole lines that are not in the file yet
	values  values
	timer   *time.Timer
	goesOn  bool  // there are records of an earlier part
	last    int64 // greatest index so far
	ordered bool  // each index was greater than those before
}

const (
	flushAfter = time.Second // a record is in the file at most this long after its request's end
	flushBytes = 64 << 10    // or when this much is buffered
)

// CreateRequests opens requests.jsonl in an existing directory. sidecar is that of the partial file, by which the records of a
// killed run are read; nil = none.
func CreateRequests(dir string, sidecar *mooncake.Meta) (*Requests, error) {
	path := filepath.Join(dir, RequestsFile)
	f, err := createFile(path, partialSuffix)
	if err != nil {
		return nil, err
	}
	q := newRequests(f, path)
	return q, q.describe(sidecar)
}

func newRequests(f *atomicfile.File, path string) *Requests {
	q := &Requests{file: f, path: path, last: -1, ordered: true}
	q.timer = time.AfterFunc(flushAfter, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.flush()
	})
	return q
}

// describe writes the sidecar of the partial file. If that fails, it abandons the records.
func (q *Requests) describe(sidecar *mooncake.Meta) error {
	if sidecar == nil {
		return nil
	}
	if err := sidecar.Save(q.file.Name()); err != nil {
		return errors.Join(err, q.Abandon())
	}
	return nil
}

// Write adds one record. An error of the file system does not stop the run: Close returns the first one, and later records are counted.
func (q *Requests) Write(r *measure.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil || q.closed {
		q.lost++
		return
	}
	lines, err := q.values.appendLine(q.lines, r)
	if err != nil {
		q.err = err
		q.lost++
		return
	}
	if len(q.lines) == 0 {
		q.timer.Reset(flushAfter)
	}
	q.lines = lines
	q.ordered = q.ordered && r.Index > q.last
	q.last = max(q.last, r.Index)
	if len(q.lines) >= flushBytes {
		q.flush()
	}
}

// flush writes the buffered lines to the file.
func (q *Requests) flush() {
	if len(q.lines) == 0 {
		return
	}
	q.timer.Stop()
	if q.err == nil {
		_, q.err = q.file.Write(q.lines)
	}
	if q.err != nil {
		q.lost += int64(bytes.Count(q.lines, []byte("\n")))
	}
	q.lines = q.lines[:0]
	if cap(q.lines) > 16*flushBytes { // after a long row
		q.lines = nil
	}
}

// Disordered returns, once the file is closed, the number of lines that come after a line of a later row.
func (q *Requests) Disordered() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.late
}

// Close completes the file, sorts its lines and renames it to its name. It returns the first error, with the number of records that are not
// in the file; the file then keeps its partial name, with what was written. A second Close does nothing.
func (q *Requests) Close() error {
	return q.end(func() error {
		q.flush()
		if q.err == nil && q.ordered {
			q.err = q.file.Commit()
		} else if q.err == nil {
			if q.err = q.file.Sync(); q.err == nil {
				q.late, q.err = sortRequests(q.file.File, q.path)
			}
			if q.err == nil {
				return q.file.Discard()
			}
		}
		if q.err == nil {
			return nil
		}
		_ = q.file.Close()
		err := incomplete(q.path, q.file, q.err)
		if q.lost > 0 {
			return fmt.Errorf("%d records are not in %s: %w", q.lost, RequestsFile, err)
		}
		return err
	})
}

// Abandon closes the file of a run that failed to start, and removes it, unless it has records of an earlier part.
func (q *Requests) Abandon() error {
	if q.goesOn {
		return q.end(q.file.Close)
	}
	return q.end(q.file.Discard)
}

// end closes the file once, and removes the sidecar of the partial file if that is gone.
func (q *Requests) end(finish func() error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	q.timer.Stop()
	err := finish()
	if _, gone := os.Lstat(q.file.Name()); errors.Is(gone, fs.ErrNotExist) {
		_ = os.Remove(mooncake.MetaName(q.file.Name()))
	}
	return err
}

// appendLine appends the row's object with the result as its last member, and a newline.
func (v *values) appendLine(dst []byte, r *measure.Record) ([]byte, error) {
	var row mooncake.Row
	if r.Row != nil {
		row = *r.Row
		row.Replies = nil // replies refer to rows by their distance in the trace, but here rows may be missing
	}
	dst = mooncake.AppendRow(dst, &row)
	dst = dst[:len(dst)-1]
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ", "...)
	}
	res := v.result(r)
	dst, err := res.append(append(dst, `"result": `...))
	if err != nil {
		return nil, fmt.Errorf("result of row %d cannot be written: %w", r.Index, err)
	}
	return append(dst, '}', '\n'), nil
}
