// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/mooncake"
)

// Requests writes requests.jsonl: each record's row, with the key result beside its fields. Safe for concurrent use.
//
// Records come as requests end; the lines are in the trace's order, which is what a reader of traces wants, as far as a
// bounded buffer can restore it: a long request holds back the rows after it until the buffer is full. In a shard, which
// lacks rows, the buffer is always full. A row without a Row writes its result alone.
type Requests struct {
	mu     sync.Mutex
	file   *partial
	closed bool
	err    error // the first
	rows   int64 // written, or in the buffer
	lost   int64
	late   int64 // written after a later row
	last   int64 // index of the last row written

	held      lines
	heldBytes int
	spare     []byte
}

// The bounds of the buffer that restores the trace's order.
const (
	maxHeld      = 8192
	maxHeldBytes = 16 << 20
)

// CreateRequests opens requests.jsonl in the directory, which is created if it is absent.
func CreateRequests(dir string) (*Requests, error) {
	f, err := create(dir, RequestsFile)
	if err != nil {
		return nil, err
	}
	return &Requests{file: f, last: -1}, nil
}

// Write adds one record. An error of the file system does not stop the run: the first is kept for Close, the
// records after it are counted.
func (q *Requests) Write(r *measure.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil || q.closed {
		q.lost++
		return
	}
	text, err := appendLine(q.spare[:0], r)
	q.spare = nil
	if err != nil {
		q.err = err
		q.lost++
		return
	}
	q.rows++
	q.heldBytes += len(text)
	heap.Push(&q.held, line{r.Index, text})
	for len(q.held) > 0 && (q.held[0].index == q.last+1 || len(q.held) > maxHeld || q.heldBytes > maxHeldBytes) {
		q.writeFirst()
	}
}

// Lost returns the number of records that are not in the file because of an error.
func (q *Requests) Lost() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost
}

// Disordered returns the number of lines that stand after a line of a later row.
func (q *Requests) Disordered() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.late
}

// Close writes what is held back and gives the file its name. It returns the first error of the whole file, with the
// number of records that are not in it. A second Close does nothing.
func (q *Requests) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	for len(q.held) > 0 {
		q.writeFirst()
	}
	err := q.file.finish(q.err)
	if err != nil && q.lost > 0 {
		return fmt.Errorf("%d records are not in %s: %w", q.lost, RequestsFile, err)
	}
	return err
}

func (q *Requests) writeFirst() {
	first := heap.Pop(&q.held).(line)
	q.heldBytes -= len(first.text)
	if q.err != nil {
		q.rows--
		q.lost++
		return
	}
	if first.index < q.last {
		q.late++
	}
	q.last = max(q.last, first.index)
	if _, err := q.file.Write(first.text); err != nil {
		q.err = err
		q.rows--
		q.lost++
	}
	q.spare = first.text
}

// line is one encoded record.
type line struct {
	index int64
	text  []byte
}

// lines is a heap by index.
type lines []line

func (l lines) Len() int           { return len(l) }
func (l lines) Less(i, j int) bool { return l[i].index < l[j].index }
func (l lines) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *lines) Push(x any)        { *l = append(*l, x.(line)) }
func (l *lines) Pop() any {
	last := (*l)[len(*l)-1]
	(*l)[len(*l)-1] = line{}
	*l = (*l)[:len(*l)-1]
	return last
}

// appendLine appends the row's object with the result as its last member, and a newline.
func appendLine(dst []byte, r *measure.Record) ([]byte, error) {
	result, err := json.Marshal(newResult(r))
	if err != nil {
		return dst, fmt.Errorf("result of row %d cannot be written: %w", r.Index, err)
	}
	if r.Row == nil {
		return append(append(append(dst, `{"result": `...), result...), '}', '\n'), nil
	}
	dst = mooncake.AppendRow(dst, r.Row)
	if len(dst) < 2 || dst[len(dst)-1] != '}' {
		return dst, errors.New("a row must be an object")
	}
	dst = dst[:len(dst)-1]
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ", "...)
	}
	dst = append(append(dst, `"result": `...), result...)
	return append(dst, '}', '\n'), nil
}
