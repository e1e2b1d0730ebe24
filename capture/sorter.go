// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bufio"
	"bytes"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	chunkSize = 256 << 10 // of the sorter's memory
	fanIn     = 32        // runs that are merged at once; each has a buffer of runBuffer
	runBuffer = 32 << 10
	itemCost  = 40 // bytes of memory for an item beside its own
)

// sorter sorts items by their bytes. Beyond its limit of memory it writes sorted runs to a temporary file and merges
// them. Its result depends on the items only, not on their order or the limit.
type sorter struct {
	limit int
	dir   string

	items  []item
	chunks [][]byte // all but the last are full
	free   [][]byte
	used   int

	file  spill
	runs  [][]run // by level: fanIn runs of one level become one of the next
	write *bufio.Writer
}

type item struct {
	head uint64 // the first eight bytes, so that most comparisons touch no other memory
	b    []byte
}

// run is a sorted stretch of the file.
type run struct{ offset, size int64 }

func newSorter(dir string, limit int) *sorter { return &sorter{dir: dir, limit: limit} }

// add copies an item.
func (s *sorter) add(key, value []byte) error {
	n := len(key) + len(value)
	if s.used > 0 && s.used+n+itemCost > s.limit {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.used += n + itemCost
	b := append(append(s.alloc(n), key...), value...)
	var head [8]byte
	copy(head[:], b)
	s.items = append(s.items, item{binary.BigEndian.Uint64(head[:]), b})
	return nil
}

// alloc returns an empty slice with room for n bytes.
func (s *sorter) alloc(n int) []byte {
	if n > chunkSize/8 {
		return make([]byte, 0, n)
	}
	last := len(s.chunks) - 1
	if last < 0 || cap(s.chunks[last])-len(s.chunks[last]) < n {
		var c []byte
		if k := len(s.free); k > 0 {
			c, s.free = s.free[k-1], s.free[:k-1]
		} else {
			c = make([]byte, 0, chunkSize)
		}
		s.chunks = append(s.chunks, c)
		last++
	}
	at := len(s.chunks[last])
	s.chunks[last] = s.chunks[last][:at+n]
	return s.chunks[last][at : at : at+n]
}

func (s *sorter) sort() {
	slices.SortFunc(s.items, func(a, b item) int {
		switch {
		case a.head < b.head:
			return -1
		case a.head > b.head:
			return 1
		}
		return bytes.Compare(a.b, b.b)
	})
}

// spill writes what is in memory as a run.
func (s *sorter) spill() error {
	s.sort()
	err := s.writeRun(0, func(put func([]byte) error) error {
		for _, it := range s.items {
			if err := put(it.b); err != nil {
				return err
			}
		}
		return nil
	})
	clear(s.items)
	s.items, s.used = s.items[:0], 0
	for _, c := range s.chunks {
		s.free = append(s.free, c[:0])
	}
	s.chunks = s.chunks[:0]
	return err
}

// writeRun appends a run to the file, and merges the runs of its level when there are too many.
func (s *sorter) writeRun(level int, fill func(put func([]byte) error) error) error {
	if err := s.file.open(s.dir); err != nil {
		return err
	}
	r := run{offset: s.file.size}
	if s.write == nil {
		s.write = bufio.NewWriterSize(&s.file, runBuffer)
	}
	err := fill(func(b []byte) error {
		var n [binary.MaxVarintLen64]byte
		if _, err := s.write.Write(binary.AppendUvarint(n[:0], uint64(len(b)))); err != nil {
			return err
		}
		_, err := s.write.Write(b)
		return err
	})
	if err = errors.Join(err, s.write.Flush()); err != nil {
		return fmt.Errorf("records cannot be sorted on disk: %w", err)
	}
	r.size = s.file.size - r.offset
	if level == len(s.runs) {
		s.runs = append(s.runs, nil)
	}
	s.runs[level] = append(s.runs[level], r)
	if len(s.runs[level]) < fanIn {
		return nil
	}
	old := s.runs[level]
	s.runs[level] = nil
	return s.writeRun(level+1, func(put func([]byte) error) error {
		return s.merge(context.Background(), old, put)
	})
}

// each calls visit for every item in order; the item is valid until visit returns. The sorter is empty after that.
func (s *sorter) each(ctx context.Context, visit func([]byte) error) error {
	defer s.close()
	if s.file.file == nil {
		s.sort()
		for i, it := range s.items {
			if i%1024 == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := visit(it.b); err != nil {
				return err
			}
			s.items[i].b = nil
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	s.items, s.free, s.chunks = nil, nil, nil // the next stage needs the memory
	// From the highest level down, so that the small runs are merged before the large ones are read.
	for level := 0; ; level++ {
		left := 0
		for _, runs := range s.runs {
			left += len(runs)
		}
		if left <= fanIn {
			return s.merge(ctx, slices.Concat(s.runs...), visit)
		}
		old := s.runs[level]
		s.runs[level] = nil
		if len(old) == 0 {
			continue
		}
		err := s.writeRun(level+1, func(put func([]byte) error) error { return s.merge(ctx, old, put) })
		if err != nil {
			return err
		}
	}
}

func (s *sorter) merge(ctx context.Context, runs []run, visit func([]byte) error) error {
	var h sources
	for _, r := range runs {
		src := &source{r: bufio.NewReaderSize(io.NewSectionReader(s.file.file, r.offset, r.size), runBuffer)}
		if ok, err := src.next(); err != nil {
			return err
		} else if ok {
			h = append(h, src)
		}
	}
	heap.Init(&h)
	for n := 0; len(h) > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := visit(h[0].item); err != nil {
			return err
		}
		switch ok, err := h[0].next(); {
		case err != nil:
			return err
		case ok:
			heap.Fix(&h, 0)
		default:
			heap.Pop(&h)
		}
	}
	return nil
}

// close frees memory and file.
func (s *sorter) close() {
	s.file.close()
	s.items, s.free, s.chunks, s.runs, s.write = nil, nil, nil, nil, nil
}

// source is a run that is being read.
type source struct {
	r    *bufio.Reader
	item []byte
}

func (s *source) next() (bool, error) {
	n, err := binary.ReadUvarint(s.r)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err == nil {
		s.item = slices.Grow(s.item[:0], int(n))[:n] //nolint:gosec // a length that writeRun wrote
		_, err = io.ReadFull(s.r, s.item)
	}
	if err != nil {
		return false, fmt.Errorf("records sorted on disk cannot be read back: %w", err)
	}
	return true, nil
}

// sources is a heap by item.
type sources []*source

func (h sources) Len() int           { return len(h) }
func (h sources) Less(i, j int) bool { return bytes.Compare(h[i].item, h[j].item) < 0 }
func (h sources) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *sources) Push(x any)        { *h = append(*h, x.(*source)) }
func (h *sources) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
