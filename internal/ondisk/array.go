// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package ondisk

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"unsafe"
)

// This file has arrays of which only a part is in memory. They store what grows with the rows and the ids of a trace and is looked up in
// random order. Look-ups usually concern recent data: a turn of a conversation needs what the previous turn was given.

const (
	// The maximum size of pages, in bytes. A page has as many records as fit, rounded down to a power of two.
	pageSize  = 4 << 10
	smallPage = 1 << 10
	// minFrames is the minimum number of frames, whatever the limit of memory.
	minFrames = 8
)

// Array is an array of records, zero at first. What exceeds its limit of memory is in a temporary file. Records fit into a page, and have
// no pointers: they are written to the file as they are in memory. After an error, records may be zero, and Err returns the error. A nil
// Array has no records and no error.
type Array[T any] struct {
	dir    string
	limit  int // frames; 0 = no limit
	shift  int // from an index to its page
	file   File
	frames []frame[T]
	where  []int32 // for each page, the index of its frame + 1; 0 if the page is not in memory
	hand   int     // the hand of the clock algorithm: the frame that was looked at last
	err    error
}

// frame is a page in memory.
type frame[T any] struct {
	page        int64
	used, dirty bool
	data        []T
}

// NewArray returns an array that uses about this many bytes of memory, and a temporary file in dir for the rest; with 0 bytes, it uses only
// memory.
func NewArray[T any](dir string, memory int) *Array[T] { return newArray[T](dir, memory, pageSize) }

// NewScattered is like [NewArray], for records that are not looked up together with their neighbours: its pages are small, so that memory
// has more of the records in use. Each page uses 4 bytes of memory while it is on disk.
func NewScattered[T any](dir string, memory int) *Array[T] {
	return newArray[T](dir, memory, smallPage)
}

func newArray[T any](dir string, memory, page int) *Array[T] {
	var record T
	a := &Array[T]{dir: dir, shift: bits.Len(uint(page)/uint(unsafe.Sizeof(record))) - 1}
	if memory > 0 {
		a.limit = max(memory/(int(unsafe.Sizeof(record))<<a.shift+frameCost), minFrames)
	}
	return a
}

// frameCost is the overhead of a page in memory, in bytes.
const frameCost = 48

// At returns a record.
func (a *Array[T]) At(i int64) (record T) {
	if page := i >> a.shift; page < int64(len(a.where)) {
		return a.load(page).data[i&(1<<a.shift-1)]
	}
	return record
}

// Put returns a record that the caller may change until the next call of At or Put.
func (a *Array[T]) Put(i int64) *T {
	page := i >> a.shift
	for page >= int64(len(a.where)) {
		a.where = append(a.where, 0)
	}
	f := a.load(page)
	f.dirty = true
	return &f.data[i&(1<<a.shift-1)]
}

// Err returns why the array has lost its content; nil if it has not.
func (a *Array[T]) Err() error {
	if a == nil {
		return nil
	}
	return a.err
}

// Frames returns how many pages are in memory, and how many bytes on disk.
func (a *Array[T]) Frames() (frames int, disk int64) { return len(a.frames), a.file.Size }

// load returns the frame of a page.
func (a *Array[T]) load(page int64) *frame[T] {
	if at := a.where[page]; at > 0 {
		f := &a.frames[at-1]
		f.used = true
		return f
	}
	at := a.free()
	f := &a.frames[at]
	*f = frame[T]{page: page, used: true, data: f.data}
	a.where[page] = int32(at + 1) //nolint:gosec // bounded by memory
	clear(f.data)
	if offset := page * int64(len(f.bytes())); a.file.File != nil && offset < a.file.Size && a.err == nil {
		if _, err := a.file.File.ReadAt(f.bytes(), offset); err != nil && !errors.Is(err, io.EOF) {
			a.err = fmt.Errorf("what does not fit into memory cannot be read back from disk: %w", err)
		}
	}
	return f
}

// free returns the position of a frame without a page. If memory is full, it evicts a page first.
func (a *Array[T]) free() int {
	if n := len(a.frames); a.limit == 0 || n < a.limit {
		a.frames = append(a.frames, frame[T]{data: make([]T, 1<<a.shift)})
		return n
	}
	for {
		if a.hand++; a.hand == len(a.frames) {
			a.hand = 0
		}
		f := &a.frames[a.hand]
		if f.used {
			f.used = false
			continue
		}
		a.where[f.page] = 0
		if f.dirty && a.err == nil {
			a.err = a.write(f)
		}
		return a.hand
	}
}

func (a *Array[T]) write(f *frame[T]) error {
	if err := a.file.Open(a.dir); err != nil {
		return err
	}
	offset := f.page * int64(len(f.bytes()))
	n, err := a.file.File.WriteAt(f.bytes(), offset)
	a.file.Size = max(a.file.Size, offset+int64(n))
	if err != nil {
		return fmt.Errorf("what does not fit into memory cannot be kept on disk: %w", err)
	}
	return nil
}

// bytes returns the records of a page as they are in memory. The file needs no other format, since only this process reads it.
func (f *frame[T]) bytes() []byte {
	var record T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f.data))), len(f.data)*int(unsafe.Sizeof(record))) //nolint:gosec // records have no pointers
}

// Close frees memory and disk.
func (a *Array[T]) Close() {
	if a != nil {
		a.file.Close()
		*a = Array[T]{dir: a.dir, limit: a.limit, shift: a.shift, err: a.err}
	}
}
