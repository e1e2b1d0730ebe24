// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/internal/ondisk"
)

const (
	chunkSize = 256 << 10 // of the sorter's memory
	minFanIn  = 8         // runs that are merged at once; at most as many as memory has room for buffers
	minBuffer = 8 << 10   // of a run that is read, or is written
	maxBuffer = 128 << 10
	itemCost  = 40      // bytes of memory for an item beside its own
	partItems = 1 << 15 // items that are sorted at once
)

// sorter sorts items by their bytes. Beyond its limit of memory it writes sorted runs to a temporary file and merges them. Its result
// depends only on the items, not on their order or the limit.
type sorter struct {
	limit int
	fanIn int
	dir   string

	batch              // what is added now
	other   batch      // what is being written, or empty
	writing chan error // result of writing other; nil if nothing is being written

	key []byte // of addWords

	count    int64 // of items that were added
	stage    Stage // for progress
	progress func(stage Stage, done, total int64)

	// Only used by the writing goroutine while it runs:
	file ondisk.File
	runs []run

	parts int       // into which the items are divided for others, see exchange.go; 0: they stay here
	from  []segment // items from others for this sorter; then nothing is added to it
}

// batch is items in memory.
type batch struct {
	sorted [][]item // parts, each in order, once sorting has ended
	items  []item   // items after those
	spare  [][]item // memory of parts
	chunks [][]byte // all but the last are full
	free   [][]byte
	used   int

	sorting *sync.WaitGroup // sorting of parts, while more is added; nil if there is none
}

// item is a byte string to be sorted.
type item struct {
	head uint64 // eight bytes after those that all items of a part begin with, so that most comparisons touch no other memory
	b    []byte
}

func headOf(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var head [8]byte
	copy(head[:], b)
	return binary.BigEndian.Uint64(head[:])
}

func (a item) compare(b item) int {
	switch {
	case a.head < b.head:
		return -1
	case a.head > b.head:
		return 1
	}
	return bytes.Compare(a.b, b.b)
}

// run is a sorted stretch of the file.
type run struct {
	offset, size int64
	skip         int   // bytes that all items begin with
	cuts         []cut // where its parts begin, if it has parts
}

func newSorter(dir string, limit int) *sorter {
	return &sorter{dir: dir, limit: limit, fanIn: max(limit/minBuffer, minFanIn)}
}

// empty reports whether nothing was added.
func (s *sorter) empty() bool { return s.count == 0 }

// add copies an item.
func (s *sorter) add(key, value []byte) error {
	n := len(key) + len(value)
	if s.used > 0 && s.used+n+itemCost > s.limit/2 {
		if err := s.turn(); err != nil {
			return err
		}
	}
	s.count++
	s.used += n + itemCost
	b := append(append(s.alloc(n), key...), value...)
	if s.items = append(s.items, item{b: b}); len(s.items) == partItems {
		s.cut()
	}
	return nil
}

// addWords adds an item of numbers, which sort like the item.
func (s *sorter) addWords(numbers ...uint64) error {
	s.key = s.key[:0]
	for _, n := range numbers {
		s.key = binary.BigEndian.AppendUint64(s.key, n)
	}
	return s.add(s.key, nil)
}

// addWordsOf adds an item of numbers that belongs to a part, see exchange.go.
func (s *sorter) addWordsOf(part uint64, numbers ...uint64) error {
	s.key = binary.BigEndian.AppendUint16(s.key[:0], uint16(part)) //nolint:gosec // 16 bits
	for _, n := range numbers {
		s.key = binary.BigEndian.AppendUint64(s.key, n)
	}
	return s.add(s.key, nil)
}

// word returns one of the numbers of an item, counted from 0.
func word(item []byte, i int) uint64 { return binary.BigEndian.Uint64(item[8*i:]) }

// alloc returns an empty slice with room for n bytes.
func (s *batch) alloc(n int) []byte {
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

// cut starts sorting what was added since the last part, while more is added.
func (s *batch) cut() {
	part := s.items
	s.sorted, s.items = append(s.sorted, part), nil
	if n := len(s.spare); n > 0 {
		s.items, s.spare = s.spare[n-1], s.spare[:n-1]
	} else if len(part) == partItems { // the next one may be as long
		s.items = make([]item, 0, partItems)
	}
	if s.sorting == nil {
		s.sorting = new(sync.WaitGroup)
	}
	s.sorting.Go(func() { sortItems(part) })
}

// rest waits until all parts are sorted.
func (s *batch) rest() {
	if s.sorting != nil {
		s.sorting.Wait()
	}
}

// cursor returns all items in order.
func (s *batch) cursor() *cursor {
	if len(s.items) > 0 {
		s.cut()
	}
	s.rest()
	switch len(s.sorted) {
	case 0:
		return &cursor{}
	case 1:
		return &cursor{items: s.sorted[0]}
	}
	first := s.sorted[0][0].b
	skip := len(first)
	for _, part := range s.sorted { // in order, so that the first and the last item have the bytes in common that all have
		skip = common(first, part[len(part)-1].b, common(first, part[0].b, skip))
	}
	var sources []*source
	for _, part := range s.sorted {
		src := &source{items: part, skip: skip}
		_ = src.next() // of memory
		sources = append(sources, src)
	}
	return newCursor(sources)
}

// sortItems sorts items by what follows the bytes that all of them begin with.
func sortItems(items []item) {
	first := items[0].b
	skip := len(first)
	for _, it := range items {
		skip = common(first, it.b, skip)
	}
	for i := range items {
		items[i].head = headOf(items[i].b[skip:])
	}
	slices.SortFunc(items, item.compare)
}

// common returns how many of this many leading bytes two strings have in common.
func common(a, b []byte, most int) int {
	most = min(most, len(b))
	if bytes.Equal(a[:most], b[:most]) {
		return most
	}
	n := 0
	for a[n] == b[n] {
		n++
	}
	return n
}

// turn starts sorting and writing the batch, while the next one is filled.
func (s *sorter) turn() error {
	if err := s.wait(); err != nil {
		return err
	}
	s.batch, s.other = s.other, s.batch
	s.writing = make(chan error, 1)
	go func() { s.writing <- s.spill(&s.other) }()
	return nil
}

// wait waits until the writing has ended.
func (s *sorter) wait() (err error) {
	if s.writing != nil {
		err = <-s.writing
		s.writing = nil
	}
	return err
}

// spill writes a batch as a run and empties it.
func (s *sorter) spill(full *batch) error {
	err := s.writeRun(full.cursor().next)
	for _, part := range full.sorted {
		clear(part)
		full.spare = append(full.spare, part[:0])
	}
	full.sorted, full.used = full.sorted[:0], 0
	for _, c := range full.chunks {
		full.free = append(full.free, c[:0])
	}
	full.chunks = full.chunks[:0]
	return err
}

// writeRun appends the items that next returns to the file, as a run.
func (s *sorter) writeRun(next func() ([]byte, error)) error {
	if err := s.file.Open(s.dir); err != nil {
		return err
	}
	r := run{offset: s.file.Size}
	w := bufio.NewWriterSize(&s.file, maxBuffer)
	at := cut{}
	var first []byte
	for {
		b, err := next()
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		if at.count == 0 {
			first, r.skip = bytes.Clone(b), len(b)
		}
		r.skip = common(first, b, r.skip)
		if s.parts > 0 {
			for part := partOf(b, s.parts); len(r.cuts) <= part; {
				r.cuts = append(r.cuts, at)
			}
		}
		var n [binary.MaxVarintLen64]byte
		head := binary.AppendUvarint(n[:0], uint64(len(b)))
		_, _ = w.Write(head)
		if _, err := w.Write(b); err != nil {
			return fmt.Errorf("records cannot be sorted on disk: %w", err)
		}
		at.size += int64(len(head) + len(b))
		at.count++
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("records cannot be sorted on disk: %w", err)
	}
	for s.parts > 0 && len(r.cuts) <= s.parts {
		r.cuts = append(r.cuts, at)
	}
	r.size = s.file.Size - r.offset
	s.runs = append(s.runs, r)
	return nil
}

// each calls visit for every item in order; the item is valid until visit returns. The sorter is empty after that.
func (s *sorter) each(ctx context.Context, visit func([]byte) error) error {
	defer s.close()
	return s.walk(ctx, visit)
}

// walk is like each, but keeps the items for another walk. Nothing can be added after the first one.
func (s *sorter) walk(ctx context.Context, visit func([]byte) error) error {
	c, err := s.cursor()
	if err != nil {
		return err
	}
	for n := int64(0); ; n++ {
		if n%1024 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if s.progress != nil {
				s.progress(s.stage, n, s.count)
			}
		}
		b, err := c.next()
		if err != nil || b == nil {
			return err
		}
		if err := visit(b); err != nil {
			return err
		}
	}
}

// cursor returns all items in order.
func (s *sorter) cursor() (*cursor, error) {
	if err := s.wait(); err != nil {
		return nil, err
	}
	if s.from != nil {
		return s.merge(s.from)
	}
	if s.file.File == nil {
		return s.batch.cursor(), nil
	}
	if err := s.settle(s.fanIn); err != nil {
		return nil, err
	}
	return s.merge(s.segments(s.runs))
}

// settle writes the rest in memory, and leaves at most this many runs.
func (s *sorter) settle(most int) error {
	if err := s.wait(); err != nil {
		return err
	}
	if s.used > 0 {
		if err := s.spill(&s.batch); err != nil {
			return err
		}
	}
	s.batch, s.other = batch{}, batch{} // the next stage needs the memory
	for len(s.runs) > most {
		// No more than needed: what is not merged now need not be read and written once more.
		first := s.runs[:min(s.fanIn, len(s.runs)-most+1)]
		c, err := s.merge(s.segments(first))
		if err != nil {
			return err
		}
		s.runs = s.runs[len(first):]
		if err := s.writeRun(c.next); err != nil {
			return err
		}
	}
	return nil
}

// segments are runs as they are in the file.
func (s *sorter) segments(runs []run) []segment {
	list := make([]segment, len(runs))
	for i, r := range runs {
		list[i] = segment{s.file.File, r.offset, r.size, r.skip}
	}
	return list
}

// segment is a sorted stretch of a file.
type segment struct {
	file         io.ReaderAt
	offset, size int64
	skip         int // bytes that all items begin with, at least
}

// merge merges segments. All memory is theirs, for buffers.
func (s *sorter) merge(segments []segment) (*cursor, error) {
	buffer := min(max(s.limit/max(len(segments), 1), minBuffer), maxBuffer)
	var sources []*source
	skip := math.MaxInt
	for _, r := range segments {
		src := &source{r: bufio.NewReaderSize(io.NewSectionReader(r.file, r.offset, r.size), buffer)}
		if err := src.next(); err != nil {
			return nil, err
		}
		if src.b == nil {
			continue
		}
		sources = append(sources, src)
		skip = common(sources[0].b, src.b, min(skip, r.skip))
	}
	for _, src := range sources {
		src.skip, src.head = skip, headOf(src.b[skip:])
	}
	return newCursor(sources), nil
}

// cursor returns items in order, from memory or from runs.
type cursor struct {
	items []item                    // of one part in memory
	runs  *heap.Tournament[*source] // nil where there is one part
	began bool
}

func newCursor(sources []*source) *cursor {
	return &cursor{runs: heap.NewTournament(sources, (*source).first, (*source).before)}
}

// next returns the next item, valid until the next call; nil after the last one.
func (c *cursor) next() ([]byte, error) {
	if len(c.items) > 0 {
		b := c.items[0].b
		c.items = c.items[1:]
		return b, nil
	}
	if c.runs == nil {
		return nil, nil
	}
	first, ok := c.runs.First()
	if ok && c.began {
		if err := first.next(); err != nil {
			return nil, err
		}
		c.runs.FixFirst()
		first, ok = c.runs.First()
	}
	if !ok {
		return nil, nil
	}
	c.began = true
	return first.b, nil
}

// ahead returns items in order, like a cursor, with a look at the next one.
type ahead struct {
	*cursor
	item []byte // nil after the last
}

// ahead returns all items in order, the first one already read.
func (s *sorter) ahead() (ahead, error) {
	c, err := s.cursor()
	if err != nil {
		return ahead{}, err
	}
	a := ahead{cursor: c}
	return a, a.advance()
}

// advance moves to the next item.
func (a *ahead) advance() (err error) {
	a.item, err = a.next()
	return err
}

// close frees memory and file.
func (s *sorter) close() {
	_ = s.wait() // the caller does not need it any more, or has its error
	s.file.Close()
	s.rest()
	s.batch, s.other, s.runs = batch{}, batch{}, nil
	for _, seg := range s.from {
		if f, ok := seg.file.(io.Closer); ok {
			_ = f.Close() // only read
		}
	}
	s.from = nil
}

// source is a run that is being read, or a part in memory.
type source struct {
	r     *bufio.Reader
	taken int    // bytes of r that are the item
	long  []byte // an item that is longer than r's buffer
	items []item // of a part
	skip  int    // bytes that all items begin with
	item
}

// first returns the first bits of the item, for a tournament.
func (s *source) first() (bits uint64, ok bool) { return s.head, s.b != nil }

func (s *source) before(o *source) bool { return bytes.Compare(s.b, o.b) < 0 }

// next goes on to the next item; b is nil after the last one.
func (s *source) next() error {
	if s.r == nil {
		if s.b = nil; len(s.items) > 0 {
			s.b, s.items = s.items[0].b, s.items[1:]
			s.head = headOf(s.b[s.skip:])
		}
		return nil
	}
	_, _ = s.r.Discard(s.taken) // they are in the buffer
	s.taken = 0
	head, err := s.r.Peek(2) // most items are shorter than 2^14 bytes
	if len(head) == 0 && errors.Is(err, io.EOF) {
		s.b = nil
		return nil
	}
	n, length := binary.Uvarint(head)
	if err = nil; length <= 0 {
		length = 0
		n, err = binary.ReadUvarint(s.r)
	}
	if err == nil {
		var b []byte
		if b, err = s.r.Peek(length + int(n)); err == nil { //nolint:gosec // a length that writeRun wrote
			s.b, s.taken = b[length:], len(b)
		} else if errors.Is(err, bufio.ErrBufferFull) {
			_, _ = s.r.Discard(length)
			s.long = slices.Grow(s.long[:0], int(n))[:n] //nolint:gosec // likewise
			s.b = s.long
			_, err = io.ReadFull(s.r, s.b)
		}
	}
	if err != nil {
		return fmt.Errorf("records sorted on disk cannot be read back: %w", err)
	}
	s.head = headOf(s.b[s.skip:])
	return nil
}
