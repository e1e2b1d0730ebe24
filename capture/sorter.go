// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/internal/ondisk"
)

const (
	maxLot    = 1 << 20 // bytes of items that are sorted at once; at most a sixteenth of memory
	minFanIn  = 8       // runs that are merged at once; more if memory has room for their buffers
	minBuffer = 8 << 10 // bytes of the buffer of a run that is read, or is written
	maxBuffer = 128 << 10
)

// bufferSize returns the size of a run's buffer, given how much memory there is for it.
func bufferSize(memory int) int { return min(max(memory, minBuffer), maxBuffer) }

// sorter sorts items by their bytes. Beyond its limit of memory it writes sorted runs to a temporary file and merges them. Its result
// depends only on the items, not on their order or the limit.
type sorter struct {
	limit int
	fanIn int
	dir   string
	lots  int // bytes of a lot

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

	parts int       // number of parts into which the items are divided for other shards, see exchange.go; 0: they stay here
	from  []segment // items from other shards for this sorter; if there are any, nothing is added to it
}

// batch is items in memory.
type batch struct {
	lot               // what is added now
	sorted  []segment // the lots before
	sorting chan sorted
	spare   [][]byte // data of lots, to be used again
	free    []item   // likewise
	used    int      // bytes
}

// lot is items that are sorted together: few enough for a processor's cache.
type lot struct {
	data  []byte // the items as in a file
	items []item
}

// item is a byte string to be sorted.
type item struct {
	head   uint64 // eight bytes after those that all items of a lot begin with, so that most comparisons touch no other memory
	offset uint32 // in the lot's data
}

// sorted is a lot in order, and the memory that it was sorted in.
type sorted struct {
	segment
	lot
}

// sort sorts the items by what follows the bytes that all of them begin with, and copies them in that order.
func (l *lot) sort(into []byte) sorted {
	bytesOf := func(it item) []byte {
		b, _ := takeItem(l.data[it.offset:])
		return b
	}
	first := bytesOf(l.items[0])
	skip := len(first)
	for _, it := range l.items {
		skip = common(first, bytesOf(it), skip)
	}
	for i, it := range l.items {
		l.items[i].head = headOf(bytesOf(it)[skip:])
	}
	slices.SortFunc(l.items, func(a, b item) int {
		switch {
		case a.head < b.head:
			return -1
		case a.head > b.head:
			return 1
		}
		return bytes.Compare(bytesOf(a), bytesOf(b))
	})
	into = slices.Grow(into, len(l.data))
	for _, it := range l.items {
		into = appendItem(into, bytesOf(it))
	}
	return sorted{segment{data: into, skip: skip}, lot{l.data[:0], l.items[:0]}}
}

func headOf(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var head [8]byte
	copy(head[:], b)
	return binary.BigEndian.Uint64(head[:])
}

// takeItem returns the item at the beginning of bytes, and the size of the item and its length field. The item is nil if the bytes end
// before it does; then size is what it needs, as far as the bytes show.
func takeItem(b []byte) (it []byte, size int) {
	n, length := binary.Uvarint(b)
	size = length + int(min(n, math.MaxInt32))
	if length <= 0 || size > len(b) {
		return nil, size
	}
	return b[length:size], size
}

// run is a sorted stretch of the file.
type run struct {
	offset, size int64
	skip         int   // bytes that all items begin with
	cuts         []cut // where its parts begin, if it has parts
}

func newSorter(dir string, limit int) *sorter {
	return &sorter{dir: dir, limit: limit, fanIn: max(limit/minBuffer, minFanIn), lots: min(limit/16, maxLot)}
}

// empty reports whether nothing was added.
func (s *sorter) empty() bool { return s.count == 0 }

// add copies an item.
func (s *sorter) add(key, value []byte) error {
	n := len(key) + len(value)
	// Half of the memory is for the items that are being written. Lots are copied when they are sorted.
	if s.used > 0 && s.used+n+binary.MaxVarintLen32 > s.limit/2-2*s.lots {
		if err := s.turn(); err != nil {
			return err
		}
	}
	if len(s.data) > 0 && len(s.data)+n+binary.MaxVarintLen32 > s.lots {
		s.cut()
	}
	s.count++
	before := len(s.data)
	s.items = append(s.items, item{offset: uint32(before)}) //nolint:gosec // a lot and a record are smaller
	s.data = append(append(binary.AppendUvarint(s.data, uint64(n)), key...), value...)
	s.used += len(s.data) - before
	return nil
}

// addWords adds an item that consists of numbers. Items sort like their numbers.
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

// cut starts sorting a lot, while the next one is filled.
func (s *batch) cut() {
	s.rest() // memory has room for one copy
	full, into, done := s.lot, s.take(), make(chan sorted, 1)
	s.lot, s.free, s.sorting = lot{slices.Grow(s.take(), len(full.data)), s.free}, nil, done
	go func() { done <- full.sort(into) }()
}

// rest waits until a lot is sorted.
func (s *batch) rest() {
	if s.sorting != nil {
		done := <-s.sorting
		s.sorted, s.free, s.sorting = append(s.sorted, done.segment), done.items, nil
		s.keep(done.lot.data)
	}
}

// take returns memory for the data of a lot.
func (s *batch) take() (data []byte) {
	if n := len(s.spare); n > 0 {
		data, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	return data
}

// keep keeps the memory of the data of a lot, unless an item was large.
func (s *batch) keep(data []byte) {
	if cap(data) <= 2*maxLot {
		s.spare = append(s.spare, data[:0])
	}
}

// settled returns all items as segments.
func (s *batch) settled() []segment {
	if len(s.items) > 0 {
		s.cut()
	}
	s.rest()
	return s.sorted
}

// common returns how many leading bytes two strings have in common, counting at most this many.
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
	c, err := s.merge(full.settled())
	if err == nil {
		err = s.writeRun(c.next)
	}
	for _, seg := range full.sorted {
		full.keep(seg.data)
	}
	full.sorted, full.used = full.sorted[:0], 0
	return err
}

// writeRun appends the items that next returns to the file, as a run.
func (s *sorter) writeRun(next func() ([]byte, error)) error {
	if err := s.file.Open(s.dir); err != nil {
		return err
	}
	r := run{offset: s.file.Size}
	out := make([]byte, 0, bufferSize(s.limit))
	flush := func() error {
		_, err := s.file.Write(out)
		if out = out[:0]; err != nil {
			return fmt.Errorf("records cannot be sorted on disk: %w", err)
		}
		return nil
	}
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
		if len(out)+binary.MaxVarintLen64+len(b) > cap(out) {
			if err := flush(); err != nil {
				return err
			}
		}
		before := len(out)
		out = appendItem(out, b)
		at.size += int64(len(out) - before)
		at.count++
	}
	if err := flush(); err != nil {
		return err
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
	items := readAside(c)
	defer items.end()
	for n := int64(0); ; n++ {
		if n%1024 == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if s.progress != nil {
				s.progress(s.stage, n, s.count)
			}
		}
		b, err := items.next()
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
		return s.merge(s.settled())
	}
	if err := s.settle(s.fanIn); err != nil {
		return nil, err
	}
	return s.merge(s.segments(s.runs))
}

// settle writes the items that are still in memory, and merges runs until there are at most this many.
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
		// No more than needed: runs that are not merged now need not be read and written again.
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

// segments returns runs as segments of the file.
func (s *sorter) segments(runs []run) []segment {
	list := make([]segment, len(runs))
	for i, r := range runs {
		list[i] = segment{file: s.file.File, offset: r.offset, size: r.size, skip: r.skip}
	}
	return list
}

// segment is items in order, each after its length, in a file or in memory.
type segment struct {
	file         io.ReaderAt // nil: in memory
	offset, size int64
	data         []byte
	skip         int // bytes that all items begin with, at least
}

// merge merges segments. Their buffers may take all of the memory.
func (s *sorter) merge(segments []segment) (*cursor, error) {
	buffer := bufferSize(s.limit / max(len(segments), 1))
	var sources []*source
	skip := math.MaxInt
	for _, r := range segments {
		src := &source{file: r.file, offset: r.offset, left: r.size, rest: r.data}
		if r.file != nil {
			src.buffer = make([]byte, buffer)
		}
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

// cursor reads items in order, from memory or from runs.
type cursor struct {
	sources *heap.Tournament[*source]
	began   bool
}

func newCursor(sources []*source) *cursor {
	return &cursor{sources: heap.NewTournament(sources, (*source).first, (*source).before)}
}

// next returns the next item, valid until the next call; nil after the last one.
func (c *cursor) next() ([]byte, error) {
	first, ok := c.sources.First()
	if ok && c.began {
		if err := first.next(); err != nil {
			return nil, err
		}
		c.sources.FixFirst()
		first, ok = c.sources.First()
	}
	if !ok {
		return nil, nil
	}
	c.began = true
	return first.b, nil
}

// aside reads a cursor in a separate goroutine, while earlier items are visited. It passes on blocks of items, each after its length.
type aside struct {
	block []byte      // the current one
	rest  []byte      // the unread part of block
	full  chan []byte // closed after the last one
	spent chan []byte // to be filled
	err   error       // why there are no more
}

const (
	asideBlock  = 64 << 10 // minimum size of a block, except the last one
	asideBlocks = 3        // one is visited and one is filled, while one waits
)

func readAside(c *cursor) *aside {
	a := &aside{full: make(chan []byte, asideBlocks), spent: make(chan []byte, asideBlocks)}
	for range asideBlocks {
		a.spent <- nil
	}
	go a.fill(c)
	return a
}

// fill fills blocks until there are no more items, or no more are wanted.
func (a *aside) fill(c *cursor) {
	defer close(a.full)
	for block := range a.spent {
		var b []byte
		for block = block[:0]; len(block) < asideBlock; block = appendItem(block, b) {
			if b, a.err = c.next(); b == nil {
				break
			}
		}
		if a.full <- block; b == nil {
			return
		}
	}
}

// next returns the next item, valid until the next call; nil after the last one.
func (a *aside) next() ([]byte, error) {
	for len(a.rest) == 0 {
		if a.block != nil {
			a.spent <- a.block
		}
		var more bool
		if a.block, more = <-a.full; !more {
			return nil, a.err
		}
		a.rest = a.block
	}
	b, size := takeItem(a.rest)
	a.rest = a.rest[size:]
	return b, nil
}

// end waits until the cursor is no longer read.
func (a *aside) end() {
	close(a.spent)
	for range a.full { // nobody wants them
	}
}

// appendItem appends an item after its length.
func appendItem(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
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
	_ = s.wait() // the caller no longer needs the items, or has the error already
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

// source is a segment that is being read.
type source struct {
	b    []byte // the item; nil after the last one
	head uint64 // eight bytes of it, after those that all items begin with
	skip int    // length of what all items begin with, in bytes

	rest         []byte // what was read after the item
	file         io.ReaderAt
	offset, left int64 // of what was not read
	buffer       []byte
}

// first returns the first bits of the item, for a tournament.
func (s *source) first() (bits uint64, ok bool) { return s.head, s.b != nil }

func (s *source) before(o *source) bool { return bytes.Compare(s.b, o.b) < 0 }

// next goes on to the next item.
func (s *source) next() error {
	for {
		b, size := takeItem(s.rest)
		if s.b = b; b != nil {
			s.rest, s.head = s.rest[size:], headOf(b[s.skip:])
			return nil
		}
		if s.left == 0 && len(s.rest) == 0 {
			return nil
		}
		if err := s.fill(size); err != nil {
			return fmt.Errorf("records sorted on disk cannot be read back: %w", err)
		}
	}
}

// fill reads more of a file. The next item needs this many bytes, as far as is known.
func (s *source) fill(need int) error {
	if s.left == 0 || need < 0 || int64(need) > s.left+int64(len(s.rest)) {
		return io.ErrUnexpectedEOF
	}
	buffer := s.buffer
	if need > len(buffer) {
		buffer = make([]byte, need)
	}
	have := copy(buffer, s.rest)
	more := buffer[have:min(int64(len(buffer)), int64(have)+s.left)]
	if n, err := s.file.ReadAt(more, s.offset); n < len(more) {
		return err
	}
	s.offset, s.left, s.buffer, s.rest = s.offset+int64(len(more)), s.left-int64(len(more)), buffer, buffer[:have+len(more)]
	return nil
}
