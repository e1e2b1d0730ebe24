// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/moonloop/moonloop/mooncake"
)

// spool keeps rows in a temporary file between the first and the second pass, because decisions in between depend on all rows. The file is
// packed: parsing the rows again would take longer than everything else.
type spool struct {
	file *os.File
	out  *bufio.Writer
	in   *bufio.Reader
	buf  []byte
	seq  int
	slab slab
	ids  idSlab
	keep []bool // the rows that come again, by seq; nil: all
	rows *ahead[*item]
	gone bool // the file is removed already
}

func newSpool(folder string) (*spool, error) {
	file, err := os.CreateTemp(folder, "moonloop-transform-*")
	if err != nil {
		return nil, fmt.Errorf("the temporary file for the rows that are read twice cannot be created: %w; name another folder", err)
	}
	// Remove it at once, so that nothing remains even if the process is killed. Some systems refuse that while a file is open.
	return &spool{file: file, out: bufio.NewWriterSize(file, 256<<10), gone: os.Remove(file.Name()) == nil}, nil
}

// close removes the file.
func (s *spool) close() {
	if s.rows != nil {
		s.rows.stop()
	}
	_ = s.file.Close() // closing twice has no effect
	if !s.gone {
		s.gone = os.Remove(s.file.Name()) == nil
	}
}

// append stores a row of the first pass.
func (s *spool) append(it *item) error {
	s.buf = pack(s.buf[:0], it)
	var size [binary.MaxVarintLen64]byte
	_, err := s.out.Write(binary.AppendUvarint(size[:0], uint64(len(s.buf))))
	if err == nil {
		_, err = s.out.Write(s.buf)
	}
	return s.failed(err)
}

func (s *spool) failed(err error) error {
	if err != nil {
		return fmt.Errorf("the temporary file of the rows that are read twice: %w; name a folder with more space", err)
	}
	return nil
}

// again begins the second pass, over the kept rows.
func (s *spool) again(keep []bool) error {
	err := s.out.Flush()
	if err == nil {
		_, err = s.file.Seek(0, io.SeekStart)
	}
	if err == nil {
		s.out, s.in, s.keep = nil, bufio.NewReaderSize(s.file, 256<<10), keep
		s.rows = readAhead(s.read, func(it *item) int { return sizeOf(it.Row) })
	}
	return s.failed(err)
}

// next returns the next kept row, or io.EOF.
func (s *spool) next() (*item, error) { return s.rows.next() }

func (s *spool) read() (*item, error) {
	size, err := binary.ReadUvarint(s.in)
	for ; err == nil && s.seq < len(s.keep) && !s.keep[s.seq]; s.seq++ {
		if _, err = s.in.Discard(int(size)); err == nil { //nolint:gosec // of a row
			size, err = binary.ReadUvarint(s.in)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err == nil {
		if uint64(cap(s.buf)) < size {
			s.buf = make([]byte, size)
		}
		s.buf = s.buf[:size]
		_, err = io.ReadFull(s.in, s.buf)
	}
	if err != nil {
		return nil, s.failed(err)
	}
	it := s.slab.item()
	err = unpack(it, s.buf, &s.ids)
	if it.seq = s.seq; err == nil {
		it.session = sessionOf(it.Row)
	}
	s.seq++
	return it, s.failed(err)
}

// The parts of a packed row.
const (
	hasTimes = 1 << iota
	hasTimestamp
	hasKey // if it differs from the timestamp
	hasDelay
	hasInput
	hasOutput
	hasIDs
	hasRanges
	hasNames // session, request, model, class
	hasPriority
	hasSpan
	hasObserved
	hasCached
	hasTTFT
	hasDuration
	isJSON // it is a row in JSON: one with a text, a body, or a graph
)

// pack appends a row: a bit for each of its parts, then their values in the order of these bits.
func pack(dst []byte, it *item) []byte {
	r := it.Row
	has := bit(hasTimes, it.timed) |
		bit(hasTimestamp, r.Timestamp.Set) |
		bit(hasKey, !r.Timestamp.Set || it.key != r.Timestamp.V) |
		bit(hasDelay, r.Delay.Set) |
		bit(hasInput, r.InputLength.Set) |
		bit(hasOutput, r.OutputLength.Set) |
		bit(hasIDs, r.HashIDs != nil) |
		bit(hasRanges, r.HashRanges != nil || r.Replies != nil) |
		bit(hasNames, r.SessionID != "" || r.RequestID != "" || r.Model != "" || r.Class != "") |
		bit(hasPriority, r.Priority.Set) |
		bit(hasSpan, !r.OTel.IsZero()) |
		bit(hasObserved, !r.Observed.IsZero()) |
		bit(hasCached, r.Observed.CachedTokens.Set) |
		bit(hasTTFT, r.Observed.TTFT.Set) |
		bit(hasDuration, r.Observed.Duration.Set) |
		bit(isJSON, r.Kind() != mooncake.KindLength || r.Extra != nil || r.Foreign != nil || r.Tools != nil || r.MessageMode != "" ||
			r.Images != nil || r.WaitFor != nil || r.Evidence != nil || r.ToolWait.Set)
	dst = binary.AppendUvarint(dst, has)
	dst = binary.AppendUvarint(dst, uint64(it.source)) //nolint:gosec // never negative
	dst = binary.AppendUvarint(dst, uint64(it.index))  //nolint:gosec // likewise
	dst = binary.AppendUvarint(dst, uint64(it.again))
	if has&hasKey != 0 {
		dst = appendFloat(dst, it.key)
	}
	if has&isJSON != 0 {
		return mooncake.AppendRow(dst, r)
	}
	if has&hasTimestamp != 0 {
		dst = appendFloat(dst, r.Timestamp.V)
	}
	if has&hasDelay != 0 {
		dst = appendFloat(dst, r.Delay.V)
	}
	if has&hasInput != 0 {
		dst = binary.AppendVarint(dst, r.InputLength.V)
	}
	if has&hasOutput != 0 {
		dst = binary.AppendVarint(dst, r.OutputLength.V)
	}
	if has&hasIDs != 0 {
		dst = appendIDs(dst, r.HashIDs)
	}
	if has&hasRanges != 0 {
		dst = appendSharing(dst, r)
	}
	if has&hasNames != 0 {
		dst = appendText(appendText(appendText(appendText(dst, r.SessionID), r.RequestID), r.Model), r.Class)
	}
	if has&hasPriority != 0 {
		dst = binary.AppendVarint(dst, r.Priority.V)
	}
	if has&hasSpan != 0 {
		dst = append(append(dst, r.OTel.TraceID[:]...), r.OTel.SpanID[:]...)
	}
	if has&hasObserved != 0 {
		o := r.Observed
		dst = binary.AppendVarint(dst, o.CachedTokens.V)
		dst = appendText(appendFloat(appendFloat(dst, o.TTFT.V), o.Duration.V), o.FinishReason)
	}
	return dst
}

// bit returns a bit if a condition holds, else 0.
func bit(b uint64, has bool) uint64 {
	if has {
		return b
	}
	return 0
}

func appendFloat(dst []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendIDs appends the number of ids and, for each run of consecutive ids, the first one and the count. Canonical ids have one run for
// each row that they come from.
func appendIDs(dst []byte, ids []uint64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for i := 0; i < len(ids); {
		n := 1
		for i+n < len(ids) && ids[i+n] == ids[i]+uint64(n) {
			n++
		}
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, ids[i]), uint64(n))
		i += n
	}
	return dst
}

// appendSharing appends ranges and replies, each with their number plus 1, or 0 if absent.
func appendSharing(dst []byte, r *mooncake.Row) []byte {
	count := func(n int, there bool) {
		if there {
			n++
		}
		dst = binary.AppendUvarint(dst, uint64(n)) //nolint:gosec // never negative
	}
	count(len(r.HashRanges), r.HashRanges != nil)
	for _, h := range r.HashRanges {
		dst = binary.AppendVarint(binary.AppendUvarint(dst, h.First), h.Count)
	}
	count(len(r.Replies), r.Replies != nil)
	for _, p := range r.Replies {
		dst = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(dst, p.Back), p.At), p.Tokens)
	}
	return dst
}

// packed reads what pack has written. If somebody else changed the file, it reads zeros or stops.
type packed struct {
	b    []byte
	bad  bool
	slab *idSlab
}

// idSlab allocates lists of ids, many of them at once.
type idSlab []uint64

const slabIDs = 1 << 11

// list returns an empty list with room for this many.
func (s *idSlab) list(n int) []uint64 {
	if n == 0 || n > slabIDs/8 { // it would waste the end of another slab
		return make([]uint64, 0, n)
	}
	if n > len(*s) {
		*s = make(idSlab, slabIDs)
	}
	ids := (*s)[:0:n]
	*s = (*s)[n:]
	return ids
}

var errPacked = errors.New("is not what was written")

// unpack is the inverse of pack. The item has a row, which is zero; its ids come from the slab.
func unpack(it *item, b []byte, slab *idSlab) (err error) {
	p := &packed{b: b, slab: slab}
	has := p.unsigned()
	it.timed, it.source, it.index, it.again = has&hasTimes != 0, int(p.unsigned()), int64(p.unsigned()), uint32(p.unsigned()) //nolint:gosec // as they were
	if has&hasKey != 0 {
		it.key = p.float()
	}
	if has&isJSON != 0 {
		it.Row, err = mooncake.ParseRow(p.b)
	} else {
		p.row(it.Row, has)
		if p.bad || len(p.b) > 0 {
			err = errPacked
		}
	}
	if err == nil && has&hasKey == 0 {
		it.key = it.Timestamp.V
	}
	return err
}

func (p *packed) row(r *mooncake.Row, has uint64) {
	if has&hasTimestamp != 0 {
		r.Timestamp = mooncake.Some(p.float())
	}
	if has&hasDelay != 0 {
		r.Delay = mooncake.Some(p.float())
	}
	if has&hasInput != 0 {
		r.InputLength = mooncake.Some(p.signed())
	}
	if has&hasOutput != 0 {
		r.OutputLength = mooncake.Some(p.signed())
	}
	if has&hasIDs != 0 {
		r.HashIDs = p.ids()
	}
	if has&hasRanges != 0 {
		p.sharing(r)
	}
	if has&hasNames != 0 {
		r.SessionID, r.RequestID, r.Model, r.Class = p.text(), p.text(), p.text(), p.text()
	}
	if has&hasPriority != 0 {
		r.Priority = mooncake.Some(p.signed())
	}
	if has&hasSpan != 0 {
		copy(r.OTel.TraceID[:], p.next(len(r.OTel.TraceID)))
		copy(r.OTel.SpanID[:], p.next(len(r.OTel.SpanID)))
	}
	if has&hasObserved != 0 {
		o := &r.Observed
		o.CachedTokens = mooncake.Opt[int64]{V: p.signed(), Set: has&hasCached != 0}
		o.TTFT = mooncake.Opt[float64]{V: p.float(), Set: has&hasTTFT != 0}
		o.Duration = mooncake.Opt[float64]{V: p.float(), Set: has&hasDuration != 0}
		o.FinishReason = p.text()
	}
}

func (p *packed) ids() []uint64 {
	ids := p.slab.list(p.count())
	for len(ids) < cap(ids) && !p.bad {
		first, n := p.unsigned(), p.unsigned()
		if n == 0 || n > uint64(cap(ids)-len(ids)) { //nolint:gosec // above 0
			p.bad = true
			break
		}
		ids = appendRun(ids, first, int(n)) //nolint:gosec // at most what there is room for
	}
	return ids
}

func (p *packed) sharing(r *mooncake.Row) {
	if n := p.count(); n > 0 {
		r.HashRanges = make([]mooncake.HashRange, n-1)
		for i := range r.HashRanges {
			r.HashRanges[i] = mooncake.HashRange{First: p.unsigned(), Count: p.signed()}
		}
	}
	if n := p.count(); n > 0 {
		r.Replies = make([]mooncake.Reply, n-1)
		for i := range r.Replies {
			r.Replies[i] = mooncake.Reply{Back: p.signed(), At: p.signed(), Tokens: p.signed()}
		}
	}
}

// count reads the number of elements that follow. A changed file cannot make it larger than a row can be.
func (p *packed) count() int {
	n := p.unsigned()
	if n > mooncake.DefaultMaxLine {
		p.bad, n = true, 0
	}
	return int(n)
}

func (p *packed) unsigned() uint64 {
	v, n := binary.Uvarint(p.b)
	p.bad = p.bad || n <= 0
	p.next(n)
	return v
}

func (p *packed) signed() int64 {
	v, n := binary.Varint(p.b)
	p.bad = p.bad || n <= 0
	p.next(n)
	return v
}

func (p *packed) float() float64 {
	if b := p.next(8); b != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return 0
}

func (p *packed) text() string { return string(p.next(p.count())) }

// next returns the next n bytes, or nil if there are fewer.
func (p *packed) next(n int) []byte {
	if n <= 0 || n > len(p.b) {
		p.bad = p.bad || n != 0
		return nil
	}
	b := p.b[:n]
	p.b = p.b[n:]
	return b
}
