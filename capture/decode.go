// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/moonloop/moonloop/mooncake"
)

var errShort = errors.New("record ends within a field")

// decoded is a record taken apart, whatever its kind: the fields that a kind does not have stay zero.
type decoded struct {
	kind   byte
	fields int // number of fields that are set
	Inference
	Border bool // of a link

	ids, cells []uint64 // memory of the prompt's slices, used again
}

// decode reads a record into d.
func (d *decoded) decode(b []byte) error {
	*d = decoded{ids: d.ids, cells: d.cells}
	if len(b) < headLength {
		return errShort
	}
	d.kind = b[0]
	copy(d.Span.TraceID[:], b[1:])
	copy(d.Span.SpanID[:], b[17:])
	p := parser{b: b[headLength:]}
	last := byte(0)
	for len(p.b) > 0 {
		tag := p.b[0]
		p.b = p.b[1:]
		if tag <= last || tag > tagLast || !allowed(d.kind, tag) {
			return fmt.Errorf("field %d does not belong into a record of kind %q after field %d", tag, d.kind, last)
		}
		last = tag
		d.fields++
		d.field(&p, tag)
		if p.err != nil {
			return p.err
		}
	}
	return nil
}

// allowed reports whether a kind of record has a field.
func allowed(kind, tag byte) bool {
	switch kind {
	case kindInference:
		return tag != tagBorder
	case kindContent:
		return tag == tagParent || tag == tagStart || tag >= tagIdentity && tag <= tagBytes || tag >= tagKey && tag <= tagMedia
	case kindLink:
		return tag == tagParent || tag == tagSession || tag == tagBorder
	}
	return false
}

func (d *decoded) field(p *parser, tag byte) {
	switch tag {
	case tagParent:
		copy(d.Parent[:], p.take(8))
	case tagStart:
		d.Start = int64(p.fixed()) //nolint:gosec // the bit pattern
		d.End = d.Start
	case tagEnd:
		d.End = d.Start + p.signed()
	case tagFailed:
		d.Failed = true
	case tagFirstToken:
		d.FirstToken = mooncake.Some(d.Start + p.signed())
	case tagInputTokens:
		d.InputTokens = mooncake.Some(p.signed())
	case tagOutputTokens:
		d.OutputTokens = mooncake.Some(p.signed())
	case tagCachedTokens:
		d.CachedTokens = mooncake.Some(p.signed())
	case tagIdentity:
		d.Identity = Identity(p.byte())
		if d.Identity == NoIdentity || d.Identity > None {
			p.fail(errors.New("unknown identity"))
		}
	case tagHashIDs:
		d.HashIDs = p.list(&d.ids)
	case tagBlockSize:
		d.BlockSize = p.word()
	case tagDomain:
		d.Domain = Domain(p.word())
	case tagCells:
		d.Chain.Cells = p.list(&d.cells)
	case tagTail:
		d.Chain.Tail = p.fixed()
	case tagBytes:
		d.Chain.Bytes = p.signed()
	case tagSession:
		d.Session = Session(p.fixed())
	case tagModel:
		d.Model = p.name()
	case tagResponse:
		copy(d.Response[:], p.take(16))
	case tagRun:
		d.Run = p.name()
	case tagRow:
		d.Row = mooncake.Some(p.signed())
	case tagTimestamp:
		d.Timestamp = mooncake.Some(p.float())
	case tagInputLength:
		d.InputLength = mooncake.Some(p.signed())
	case tagOutputLength:
		d.OutputLength = mooncake.Some(p.signed())
	case tagOffset:
		d.Offset = mooncake.Some(p.float())
	case tagSpread:
		d.Spread = mooncake.Some(p.float())
	case tagLink:
		d.Link = p.span()
	case tagWarmup:
		d.Warmup = true
	case tagSynthetic:
		d.Synthetic = true
	case tagKey:
		d.Key = Domain(p.word())
	case tagPrefix:
		d.Prefix = true
	case tagMedia:
		d.MediaEnd = p.signed()
	case tagCacheWrite:
		d.CacheWriteTokens = mooncake.Some(p.signed())
	case tagExclusive:
		d.Exclusive = true
	case tagOutputEstimate:
		d.OutputEstimate = mooncake.Some(p.signed())
	case tagAnswered:
		if d.Answered = p.name(); d.Answered.IsZero() {
			d.Answered = d.Model
		}
		if d.Answered.IsZero() {
			p.fail(errors.New("no model answered"))
		}
	case tagJoined:
		d.Joined = p.span()
	case tagProducer:
		d.Producer = p.fixed()
	case tagClock:
		d.Clock = p.fixed()
	case tagRemote:
		d.Remote = true
	case tagBorder:
		d.Border = true
	}
}

// take makes the prompt of another record this one's.
func (d *decoded) take(p *Prompt) {
	d.Prompt = *p
	if p.HashIDs != nil {
		d.ids = append(d.ids[:0], p.HashIDs...)
		d.HashIDs = d.ids
	}
	if p.Chain.Cells != nil {
		d.cells = append(d.cells[:0], p.Chain.Cells...)
		d.Chain.Cells = d.cells
	}
}

// record returns the record that was decoded, in memory of its own.
func (d *decoded) record() Record {
	p := d.Prompt
	p.HashIDs, p.Chain.Cells = own(p.HashIDs), own(p.Chain.Cells)
	switch d.kind {
	case kindInference:
		r := d.Inference
		r.Prompt = p
		return &r
	case kindContent:
		return &Content{d.Span, d.Parent, d.Start, p}
	default:
		return &Link{d.Span, d.Parent, d.Session, d.Border}
	}
}

func own(v []uint64) []uint64 {
	if v == nil {
		return nil
	}
	return append([]uint64{}, v...)
}

// parser takes values off the front of a record. After the first error it returns zero values.
type parser struct {
	b   []byte
	err error
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.b = nil
}

func (p *parser) take(n int) []byte {
	if len(p.b) < n {
		p.fail(errShort)
		return nil
	}
	v := p.b[:n]
	p.b = p.b[n:]
	return v
}

func (p *parser) byte() byte {
	if v := p.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (p *parser) fixed() uint64 {
	if v := p.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

func (p *parser) span() (s mooncake.SpanRef) {
	copy(s.TraceID[:], p.take(16))
	copy(s.SpanID[:], p.take(8))
	return s
}

func (p *parser) float() float64 { return math.Float64frombits(p.fixed()) }

func (p *parser) signed() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.fail(errShort)
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) word() uint32 {
	v := p.signed()
	if v < 0 || v > math.MaxUint32 {
		p.fail(errors.New("number is not of 32 bits"))
		return 0
	}
	return uint32(v)
}

func (p *parser) size() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.fail(errShort)
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) name() Name {
	n := p.size()
	if n > MaxName {
		p.fail(errors.New("name is too long"))
		return Name{}
	}
	name, err := ParseName(string(p.take(int(n))))
	if err != nil {
		p.fail(err)
	}
	return name
}

// list returns values in the memory that is given, which it may replace. An empty list is not nil: it is not an absent one.
func (p *parser) list(memory *[]uint64) []uint64 {
	n, width := p.size(), int(p.byte())
	// A value takes a byte unless all are zero; MaxRecord bounds those.
	if width > 8 || n > MaxRecord || n*uint64(max(width, 1)) > MaxRecord {
		p.fail(errors.New("list is too long"))
		return nil
	}
	b := p.take(int(n) * width)
	if p.err != nil {
		return nil
	}
	if *memory == nil || uint64(cap(*memory)) < n {
		*memory = make([]uint64, 0, max(n, 16))
	}
	v := (*memory)[:n]
	if width == 8 {
		for i := range v {
			v[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		return v
	}
	for i := range v {
		var le [8]byte
		copy(le[:], b[:width])
		b = b[width:]
		v[i] = binary.LittleEndian.Uint64(le[:])
	}
	return v
}
