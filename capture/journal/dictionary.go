// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

// This file keeps journals small. A keyed value is 8 bytes that do not compress, and prompts share most of their values. So a journal has
// each value once. A later record with a stretch of the same values has the number of the first one, and the length of the stretch.
//
// A record with a list of values is packed. Its kind is a lower-case letter. After its head comes the number of values that the dictionary
// had before it; 0 begins a new dictionary, whose number follows. The lists are block ids, cells, and the values at the ends of messages.
// A packed list has the number of its values, the width of the widest one in bytes, and pieces:
//
//	count<<1 | 1   this many literal values, which get the next numbers
//	count<<1       this many values of the dictionary; the number of the first follows, as the distance from the end of the piece before
//
// All domains and block sizes use one dictionary: a number stands for a plain value, and the record has its domain. So the memory has one
// bound.
//
// The checksum of a packed record continues that of the record that began its dictionary. So a record that is read with another
// dictionary counts as damaged, and never yields wrong values, even if records between are missing. Damage loses the records that it hits,
// and those that need their values, up to the next dictionary. A writer begins a dictionary every few MiB, after a failed write, and when
// it starts.

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"

	"github.com/moonloop/moonloop/blockhash"
)

const (
	// maxValues is the maximum number of values in a dictionary, and in a list of a packed record: 8 MiB.
	maxValues = 1 << 20
	// maxReach is the size of the frames after which a writer begins a new dictionary, in bytes. To read from the middle of a journal,
	// a reader must begin this far before it.
	maxReach = 16 << 20
	// A writer packs at most maxUnpacked bytes of records, plus maxRatio bytes for each byte that it has written. A message is read as a
	// whole, and a few bytes must not unpack to more than fits into memory.
	maxUnpacked = 16 << 20
	maxRatio    = 64
	// maxHoles is the maximum number of stretches of lost values that a reader remembers separately.
	maxHoles = 64

	packedBit = 'i' - 'I' // set in the kind of a packed record
)

// The lists of a record whose values are in the dictionary, in the order of their tags.
const (
	listIDs = iota
	listCells
	listEnds
	listCount
)

// extent is the position of a list in the bytes of a record, without its tag. The zero extent means no list.
type extent struct{ from, to int }

// packer packs records for a writer. The zero packer has an empty dictionary. It is not safe for concurrent use.
//
// Only the first value of each stretch of new values can be found. That is enough, because a value identifies all of the prompt before it,
// too. Where two prompts diverge, the next value of each is new after the value before, so it begins a stretch.
type packer struct {
	values     []uint64
	starts     map[uint64]uint32 // numbers of the values that began a stretch of new values, by value
	generation uint64            // number of the dictionary
	seed       uint32            // of the checksums of its records
	reach      int               // bytes of the frames since it began

	written, unpacked int64 // bytes of all frames; bytes of the packed records before packing

	payload []byte // of the current record
	lists   [listCount][]uint64
	ends    []blockhash.End
}

// begin resets the packer for a new journal, so that equal records give equal bytes.
func (p *packer) begin() {
	p.reset()
	p.generation, p.written, p.unpacked = 0, 0, 0
}

// reset makes the next packed record begin a new dictionary.
func (p *packer) reset() {
	if len(p.values) > 0 {
		p.generation++
	}
	p.values, p.reach = p.values[:0], 0
	if len(p.starts) > keepMemory {
		p.starts = nil
	}
	clear(p.starts)
}

// appendFrame appends a record as a frame, packed if it has values. The positions of its lists of values are given.
func (p *packer) appendFrame(dst, record []byte, at *[listCount]extent) []byte {
	start, payload, seed := len(dst), record, uint32(0)
	unpacked := p.unpacked + int64(len(record))
	if n := p.read(record, at); n > 0 && unpacked <= mayUnpack(p.written) {
		p.unpacked = unpacked
		if len(p.values)+n > maxValues || p.reach > maxReach {
			p.reset()
		}
		first := len(p.values) == 0
		p.pack(record, at)
		if payload = p.payload; first {
			p.seed = checksum(0, payload)
		} else {
			seed = p.seed
		}
	}
	dst = appendFrame(dst, payload, checksum(seed, payload))
	p.reach += len(dst) - start
	p.written += int64(len(dst) - start)
	return dst
}

// mayUnpack returns how many bytes of records may be packed when this many bytes of frames are written.
func mayUnpack(written int64) int64 { return maxUnpacked + maxRatio*written }

// read reads the lists of a record, and returns their number of values, or 0 if they have more than a dictionary can hold.
func (p *packer) read(record []byte, at *[listCount]extent) (n int) {
	for i, e := range at {
		p.lists[i] = p.lists[i][:0]
		if e.to == 0 {
			continue
		}
		q := parser{b: record[e.from:e.to]}
		if count, _ := binary.Uvarint(q.b); count > maxValues {
			return 0
		}
		if i == listEnds {
			p.ends = q.ends(&p.ends)
			for _, end := range p.ends {
				p.lists[i] = append(p.lists[i], end.Value)
			}
		} else {
			p.lists[i] = q.list(&p.lists[i])
		}
		n += len(p.lists[i])
	}
	if n > maxValues {
		return 0
	}
	return n
}

// pack builds the payload of a record whose lists were read.
func (p *packer) pack(record []byte, at *[listCount]extent) {
	b := append(append(p.payload[:0], record[0]|packedBit), record[1:headLength]...)
	b = binary.AppendUvarint(b, uint64(len(p.values)))
	if len(p.values) == 0 {
		b = binary.AppendUvarint(b, p.generation)
	}
	done := headLength
	for i, e := range at {
		if e.to == 0 {
			continue
		}
		b = append(b, record[done:e.from]...)
		done = e.to
		if i == listEnds {
			b = appendPlaces(b, p.ends)
		}
		b = p.appendList(b, p.lists[i])
	}
	p.payload = append(b, record[done:]...)
}

// appendPlaces appends the positions of the ends of messages, without their values.
func appendPlaces(b []byte, ends []blockhash.End) []byte {
	b = binary.AppendUvarint(b, uint64(len(ends)))
	from := int64(0)
	for _, end := range ends {
		b = appendPlace(b, end, from)
		from = end.Bytes
	}
	return b
}

// appendList appends a list, and adds its new values to the dictionary.
func (p *packer) appendList(b []byte, v []uint64) []byte {
	width := widthOf(v)
	b = append(binary.AppendUvarint(b, uint64(len(v))), byte(width)) //nolint:gosec // at most 8
	end := int64(0)
	for len(v) > 0 {
		number, known := p.starts[v[0]]
		if !known {
			if p.starts == nil {
				p.starts = map[uint64]uint32{}
			}
			p.starts[v[0]] = uint32(len(p.values)) //nolint:gosec // below maxValues
			p.values = append(grow(p.values, len(v)), v...)
			return appendValues(binary.AppendUvarint(b, uint64(len(v))<<1|1), v, width)
		}
		n := 1
		for same := p.values[number:]; n < min(len(v), len(same)) && v[n] == same[n]; n++ {
		}
		b = binary.AppendUvarint(b, uint64(n)<<1)
		b = binary.AppendVarint(b, int64(number)-end)
		end = int64(number) + int64(n)
		v = v[n:]
	}
	return b
}

// grow makes room for more values in a dictionary. It doubles the memory, because most dictionaries fill up.
func grow(values []uint64, more int) []uint64 {
	if len(values)+more > cap(values) {
		return slices.Grow(values, max(len(values), more))
	}
	return values
}

// widthOf returns the width of the widest value, in bytes.
func widthOf(v []uint64) int {
	var all uint64
	for _, n := range v {
		all |= n
	}
	return (bits.Len64(all) + 7) / 8
}

// appendValues appends values with this width, in bytes.
func appendValues(b []byte, v []uint64, width int) []byte {
	b = slices.Grow(b, width*len(v))
	if width == 8 {
		for _, n := range v {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		return b
	}
	for _, n := range v {
		var le [8]byte
		binary.LittleEndian.PutUint64(le[:], n)
		b = append(b, le[:width]...)
	}
	return b
}

// dictionary is the dictionary of a journal that is being read. The zero dictionary has not begun. It is not safe for concurrent use.
type dictionary struct {
	begun  bool
	values []uint64
	holes  []extent // numbers whose values were lost
	seed   uint32
	next   int // number of the next new value
}

var (
	errNoDictionary = errors.New("the dictionary of a record is missing")
	errChecksum     = errors.New("a checksum is wrong")
	errNoValue      = errors.New("a value of a record is not in the dictionary")
	errFullOfValues = errors.New("the dictionary has too many values")
)

// packedKind returns the kind of a packed record, or 0 if a payload is not packed.
func packedKind(payload []byte) Kind {
	if len(payload) < headLength {
		return 0
	}
	switch k := Kind(payload[0] &^ packedBit); {
	case payload[0]&packedBit != 0 && (k == KindInference || k == KindContent):
		return k
	}
	return 0
}

// begins reports whether the payload of a record begins a dictionary.
func begins(payload []byte) bool {
	return packedKind(payload) != 0 && len(payload) > headLength && payload[headLength] == 0
}

// open checks a payload, adds its values to the dictionary, and returns the unpacked record: the payload itself if it was not packed, else
// in the given memory.
func (t *dictionary) open(payload []byte, sum uint32, d *Decoder, memory *[]byte) ([]byte, error) {
	kind := packedKind(payload)
	if kind == 0 {
		if checksum(0, payload) != sum {
			return nil, errChecksum
		}
		return payload, d.Decode(payload)
	}
	p := parser{b: payload[headLength:], dictionary: t}
	first, seed := p.size(), uint32(0)
	if first > 0 {
		seed = t.seed
	}
	switch {
	case p.err != nil:
		return nil, p.err
	case first > 0 && !t.begun:
		return nil, errNoDictionary
	case checksum(seed, payload) != sum:
		return nil, errChecksum
	case first > maxValues:
		return nil, errFullOfValues
	case first == 0:
		p.size() // the number of the dictionary
		*t = dictionary{begun: true, values: t.values[:0], holes: t.holes[:0], seed: sum}
	}
	t.skip(int(first))
	d.reset(kind, payload)
	if err := d.fields(&p); err != nil {
		t.begun = false // the writer made a mistake somewhere before
		return nil, err
	}
	if p.lost {
		return nil, errNoValue // later records may need its new values
	}
	if *memory = d.appendPlain((*memory)[:0]); len(*memory) > MaxRecord {
		t.begun = false
		return nil, ErrTooLarge
	}
	return *memory, nil
}

// skip sets the number of the next new value. The values before it were lost.
func (t *dictionary) skip(first int) {
	if n := len(t.values); first > n {
		if len(t.holes) == maxHoles {
			t.holes[maxHoles-1].to = first // the values after the hole before count as lost, too
		} else {
			t.holes = append(t.holes, extent{n, first})
		}
		t.values = append(t.values, make([]uint64, first-n)...)
	}
	t.next = first
}

// add adds new values. If the journal has a record twice, they exist already.
func (t *dictionary) add(v []uint64) bool {
	if len(v) > maxValues-t.next {
		return false
	}
	n := copy(t.values[t.next:], v)
	t.values = append(grow(t.values, len(v)-n), v[n:]...)
	t.next += len(v)
	return true
}

// get returns n values, of which the first has the given number, or nil if there are fewer. lost reports whether some of them were lost.
func (t *dictionary) get(number int64, n int) (values []uint64, lost bool) {
	if number < 0 || number > int64(t.next) || n > t.next-int(number) {
		return nil, false
	}
	from, to := int(number), int(number)+n
	return t.values[from:to], slices.ContainsFunc(t.holes, func(h extent) bool { return from < h.to && to > h.from })
}

// packed returns the values of a packed list. It uses the given memory, or allocates more. An empty list is not nil.
func (p *parser) packed(memory *[]uint64) []uint64 {
	n, width := p.size(), int(p.byte())
	if n > maxValues || width > 8 {
		p.fail(errors.New("list is too long"))
		return nil
	}
	v := slices.Grow((*memory)[:0], int(max(n, 16)))
	end := int64(0)
	for uint64(len(v)) < n && p.err == nil {
		count := p.size()
		isNew := count&1 == 1
		if count >>= 1; count == 0 || count > n-uint64(len(v)) {
			p.fail(errors.New("list has a different number of values than it states"))
			break
		}
		if isNew {
			from := len(v)
			v = v[:from+int(count)]
			if b := p.take(int(count) * width); p.err == nil {
				readValues(v[from:], b, width)
				if !p.dictionary.add(v[from:]) {
					p.fail(errFullOfValues)
				}
			}
			continue
		}
		number := end + p.signed()
		same, lost := p.dictionary.get(number, int(count))
		if same == nil {
			p.fail(errNoValue)
			break
		}
		p.lost = p.lost || lost
		v = append(v, same...)
		end = number + int64(count)
	}
	*memory = v
	return v
}

// readValues reads values with this width, in bytes.
func readValues(v []uint64, b []byte, width int) {
	if width == 8 {
		for i := range v {
			v[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		return
	}
	for i := range v {
		var le [8]byte
		copy(le[:], b[:width])
		b = b[width:]
		v[i] = binary.LittleEndian.Uint64(le[:])
	}
}

// packedEnds returns the ends of the messages in a packed record.
func (p *parser) packedEnds(memory *[]blockhash.End, values *[]uint64) []blockhash.End {
	v := (*memory)[:0]
	from := int64(0)
	for range p.length(blockhash.MaxEnds) {
		e := p.place(from)
		v, from = append(v, e), e.Bytes
	}
	*memory = v
	list := p.packed(values)
	if p.err == nil && len(list) != len(v) {
		p.fail(errors.New("there are not as many ends of messages as values"))
	}
	if p.err != nil {
		return nil
	}
	for i, value := range list {
		v[i].Value = value
	}
	return v
}
