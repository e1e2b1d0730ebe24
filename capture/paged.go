// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"io"
)

// This file has data that grows with the rows and the ids of a trace, and is looked up in any order: arrays of which only a part is in
// memory. Look-ups usually concern recent data: a turn of a conversation needs what the turn before was given.

const (
	pageSize = 4 << 10 // bytes; a page holds as many whole records as there is room for
	// minFrames is the minimum number of frames in memory.
	minFrames = 8
)

// paged is an array of records of one size, initially zero. Beyond its limit of memory it is in a temporary file. After an error, which err
// returns, all records are zero.
type paged struct {
	dir    string
	size   int // bytes of a record
	limit  int // bytes of memory
	file   spill
	frames []frame
	where  []int32 // for each page its frame, +1
	hand   int     // of the clock: the frame that may be replaced next
	err    error
}

// frame is a page in memory.
type frame struct {
	page        int64
	used, dirty bool
	data        []byte
}

func newPaged(dir string, size, limit int) *paged { return &paged{dir: dir, size: size, limit: limit} }

// get returns a record, valid until the next call of get or put. The record must not be changed.
func (p *paged) get(i int64) []byte {
	each := int64(pageSize / p.size)
	if page := i / each; page < int64(len(p.where)) {
		at := int(i%each) * p.size
		return p.load(page).data[at : at+p.size]
	}
	return make([]byte, p.size)
}

// put returns a record to change, valid until the next call of get or put.
func (p *paged) put(i int64) []byte {
	each := int64(pageSize / p.size)
	page, at := i/each, int(i%each)*p.size
	for page >= int64(len(p.where)) {
		p.where = append(p.where, 0)
	}
	f := p.load(page)
	f.dirty = true
	return f.data[at : at+p.size]
}

// load returns the frame of a page.
func (p *paged) load(page int64) *frame {
	if at := p.where[page]; at > 0 {
		f := &p.frames[at-1]
		f.used = true
		return f
	}
	at := p.free()
	f := &p.frames[at]
	*f = frame{page: page, used: true, data: f.data}
	clear(f.data)
	p.where[page] = int32(at + 1) //nolint:gosec // bounded by memory
	if p.file.file != nil && page*pageSize < p.file.size && p.err == nil {
		if _, err := p.file.file.ReadAt(f.data, page*pageSize); err != nil && !errors.Is(err, io.EOF) {
			p.err = fmt.Errorf("what rows share cannot be read back from disk: %w", err)
		}
	}
	return f
}

// free returns an empty frame.
func (p *paged) free() int {
	if n := len(p.frames); n < max(p.limit/pageSize, minFrames) {
		p.frames = append(p.frames, frame{data: make([]byte, pageSize)})
		return n
	}
	for {
		p.hand = (p.hand + 1) % len(p.frames)
		f := &p.frames[p.hand]
		if f.used {
			f.used = false
			continue
		}
		p.where[f.page] = 0
		if f.dirty && p.err == nil {
			p.err = p.write(f)
		}
		return p.hand
	}
}

func (p *paged) write(f *frame) error {
	if err := p.file.open(p.dir); err != nil {
		return err
	}
	n, err := p.file.file.WriteAt(f.data, f.page*pageSize)
	p.file.size = max(p.file.size, f.page*pageSize+int64(n))
	if err != nil {
		return fmt.Errorf("what rows share cannot be kept on disk: %w", err)
	}
	return nil
}

func (p *paged) close() {
	if p != nil {
		p.file.close()
		p.frames, p.where = nil, nil
	}
}
