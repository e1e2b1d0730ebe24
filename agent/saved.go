// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file saves the requests of a replay: each body, byte for byte, as the payload of a row. So other tools can read the prompts, and a
// replay of the file sends the same bodies again, including live replies of the first run.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/mooncake"
)

// The limits of what waits to be saved. Bodies are generated when they are written, so waiting ones are small.
const (
	maxUnsaved      = 1 << 16   // rows
	maxUnsavedBytes = 256 << 20 // of their contents
	// maxUnordered is the maximum number of rows that wait for an earlier one that has not ended, so that the file is in the trace's order.
	maxUnordered = 1 << 13
	// maxSavedBody is the maximum size that a reader accepts on one line with the row's other fields.
	maxSavedBody = mooncake.DefaultMaxLine - 1<<20
)

// savedPrompts writes the bodies that have been sent. Rows are queued when their requests have ended, and written on a separate goroutine,
// so nothing waits for the disk. A nil savedPrompts saves nothing.
type savedPrompts struct {
	file     *mooncake.File
	name     string
	endpoint prompt.Endpoint
	delta    bool // bodies contain earlier replies

	mu    sync.Mutex
	rows  *heap.Heap[unsaved]
	held  int64
	ended bool
	wake  chan struct{}
	gone  sync.WaitGroup

	lost atomic.Int64 // bodies that are not in the file
	next int64        // index of the next row to write, if all before it are known
	said report.Saved
	err  error // the first
}

// unsaved is a queued row. A row without a body was not sent.
type unsaved struct {
	index int64
	row   *mooncake.Row
	model string
	body  send.Body
	held  int64
}

// savedNote is what a saved row has in addition to its payload.
type savedNote struct {
	Row         int64    `json:"row"`
	Endpoint    string   `json:"endpoint"`
	InputLength int64    `json:"input_length,omitempty"`
	HashIDs     []uint64 `json:"hash_ids,omitempty"`
}

// openSaved creates the file, before anything is read or sent. It returns nil if none is wanted.
func openSaved(cfg Config) (*savedPrompts, error) {
	name := cfg.SavePrompts
	if name == "" {
		return nil, nil //nolint:nilnil // nil saves nothing
	}
	if info, err := os.Stat(name); err == nil {
		for _, other := range []string{cfg.Trace.Name, mooncake.MetaName(cfg.Trace.Name)} {
			if trace, err := os.Stat(other); err == nil && os.SameFile(info, trace) {
				return nil, fmt.Errorf("save prompts: %s is a file of the trace: name another file", name)
			}
		}
	}
	create := mooncake.CreateNew
	if cfg.Force {
		create = mooncake.Create
	}
	file, err := create(name)
	if err != nil {
		return nil, fmt.Errorf("save prompts: %w", err)
	}
	s := &savedPrompts{
		file: file, name: name, wake: make(chan struct{}, 1), said: report.Saved{File: name},
		rows: heap.New(func(a, b unsaved) bool { return a.index < b.index }),
	}
	return s, nil
}

// start begins writing the requests of a plan.
func (s *savedPrompts) start(p plan) {
	if s == nil {
		return
	}
	s.endpoint, s.delta = p.requests.Options().Endpoint, p.delta
	s.gone.Go(s.write)
}

// add adds a row whose request has ended, and never waits. Warm-ups have an index below 0.
func (s *savedPrompts) add(rec *measure.Record, body send.Body) {
	if s == nil || rec.Index < 0 {
		return
	}
	u := unsaved{index: rec.Index, row: rec.Row, model: rec.Model, body: body}
	if u.held = body.Size; rec.Row.Kind() == mooncake.KindLength && rec.Carried == 0 && !s.delta { // the body is generated from ids again
		u.held = min(u.held, int64(1<<10+8*len(rec.Row.HashIDs)+16*len(rec.Row.HashRanges)))
	}
	s.mu.Lock()
	if s.rows.Len() < maxUnsaved && (s.held == 0 || s.held+u.held <= maxUnsavedBytes) {
		s.rows.Push(u)
		s.held += u.held
	} else if body.Open != nil {
		s.lost.Add(1)
	}
	s.mu.Unlock()
	s.signal()
}

// signal wakes the goroutine that writes.
func (s *savedPrompts) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// write writes rows until the end.
func (s *savedPrompts) write() {
	for {
		u, due, over := s.pop()
		switch {
		case due:
			s.writeRow(u)
		case over:
			return
		default:
			<-s.wake
		}
	}
}

// pop removes and returns the row to write: the next one of the trace, or the first one if too many wait, or if all have arrived.
func (s *savedPrompts) pop() (u unsaved, due, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows.Len() == 0 {
		return u, false, s.ended
	}
	if s.rows.First().index > s.next && !s.ended && s.rows.Len() <= maxUnordered && s.held <= maxUnsavedBytes/2 {
		return u, false, false
	}
	u = s.rows.Pop()
	s.held -= u.held
	return u, true, false
}

// writeRow writes a row.
func (s *savedPrompts) writeRow(u unsaved) {
	if u.body.Open != nil {
		if u.index < s.next {
			s.said.Disordered++
		}
		if err := s.line(u); err != nil {
			s.lost.Add(1)
			if s.err == nil {
				s.err = err
			}
		}
	}
	s.next = max(s.next, u.index+1)
}

func (s *savedPrompts) line(u unsaved) error {
	if u.body.Size > maxSavedBody {
		return fmt.Errorf("row %d: its body of %d bytes is longer than a reader of traces accepts", u.index, u.body.Size)
	}
	if s.err != nil {
		return s.err // the disk is full: no row after a gap
	}
	body := bytes.NewBuffer(make([]byte, 0, u.body.Size))
	if _, err := io.Copy(body, u.body.Open()); err != nil {
		return err
	}
	note := savedNote{Row: u.index, Endpoint: string(s.endpoint), InputLength: u.row.InputLength.V, HashIDs: u.row.HashIDs}
	raw, err := json.Marshal(note)
	if err != nil {
		return err
	}
	row := mooncake.Row{
		Timestamp: u.row.Timestamp, Delay: u.row.Delay, OutputLength: u.row.OutputLength, Payload: body.Bytes(),
		SessionID: u.row.SessionID, RequestID: u.row.RequestID, Model: u.model, Class: u.row.Class, OTel: u.row.OTel, Observed: u.row.Observed,
		Foreign: map[string]json.RawMessage{"sent": raw},
	}
	if err := s.file.Write(&row); err != nil {
		return err
	}
	s.said.Rows++
	s.said.Bytes += int64(body.Len())
	return nil
}

// finish writes the queued rows, and renames the file and its sidecar to their names. It returns the part of the report about it.
func (s *savedPrompts) finish(meta mooncake.Meta) (*report.Saved, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // nothing was to be saved
	}
	s.stop()
	err := s.err
	s.said.Lost = s.lost.Load()
	if s.said.Rows == 0 {
		return &s.said, errors.Join(err, s.file.Close())
	}
	meta.Rows = s.said.Rows
	if s.said.Lost > 0 {
		meta.Dropped = append(meta.Dropped, mooncake.Dropped{What: "rows", Reason: "not saved", Count: s.said.Lost})
	}
	if err = errors.Join(err, s.file.Commit(&meta)); err != nil {
		err = fmt.Errorf("save prompts: %w", err)
	}
	return &s.said, err
}

// close discards the file of a run that failed to start; it does nothing after finish.
func (s *savedPrompts) close() {
	if s == nil {
		return
	}
	s.stop()
	_ = s.file.Close()
}

// stop ends the writing when all queued rows have been written, and waits for that.
func (s *savedPrompts) stop() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.signal()
	s.gone.Wait()
}
