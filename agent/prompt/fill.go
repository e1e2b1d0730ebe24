// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/binary"
	"math/bits"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// Seed spreads a user's small number over 64 bits: mix(user + 2^64/φ), a bijection. A block's content is derived from id xor seed. Without
// spreading, two small seeds would give the same blocks, only to other small ids, and the second run would find the first one's blocks in
// the engine's cache.
func Seed(user uint64) uint64 { return splitmix.Next(user) }

// draw hashes one element of the Weyl sequence.
func draw(x uint64) uint64 {
	hi, lo := bits.Mul64(x, x^0xe7037ed1a0b428db)
	return hi ^ lo
}

// alphabet is the encoding of blocks: in words or in token ids. All its sizes are in bytes.
type alphabet struct {
	ids    bool // token ids, not words
	unit   int  // one token
	header int  // the units that encode the block's id
	step   int  // the units of one draw

	bits uint                                                   // bits per unit
	all  []uint64                                               // the units, 2^bits of them: up to 8 bytes in little-endian order, of which only the first bytes count, as many as unit
	bulk func(dst []byte, x uint64) (rest []byte, state uint64) // writes whole draws, faster; may be nil
}

var (
	words  = alphabet{unit: wordBytes, header: 8 * wordBytes, step: 7 * wordBytes, bits: wordBits, all: wordUnits[:], bulk: bulkWords}
	tokens = alphabet{ids: true, unit: tokenBytes, header: 6 * tokenBytes, step: 5 * tokenBytes, bits: tokenBits, all: tokenUnits[:], bulk: bulkTokens}
)

// maxSpelled is the maximum size that [alphabet.spell] writes: the longest header, that of 16 units of 8 bytes each, and a last store.
const maxSpelled = 16*8 + 8

// newAlphabet makes an alphabet of units, a power of two of them, all of the same length of at most 8 bytes. A draw yields seven units.
func newAlphabet(length int, units []uint64) alphabet {
	a := alphabet{unit: length, bits: uint(bits.Len(uint(len(units)))) - 1, all: units}
	a.header, a.step = headerUnits(len(units))*a.unit, 7*a.unit
	return a
}

// headerUnits returns how many units encode an id of 64 bits, if there are n different units.
func headerUnits(n int) int {
	width := bits.Len(uint(n)) - 1
	return (64 + width - 1) / width
}

// write fills dst with a block's bytes from byte off on. x is the block's state, mix(id xor seed). Each draw is independent, so any byte of
// a block can be generated without those before it.
func (a *alphabet) write(dst []byte, x uint64, off int) {
	var buf [maxSpelled]byte
	if off < a.header {
		a.spell(&buf, a.header, x)
		n := copy(dst, buf[off:a.header])
		dst, off = dst[n:], off+n
	}
	if len(dst) == 0 {
		return
	}
	off -= a.header
	x += uint64(off/a.step) * splitmix.Golden //nolint:gosec // not negative: the header was written
	if in := off % a.step; in > 0 {
		x += splitmix.Golden
		a.spell(&buf, a.step, draw(x))
		dst = dst[copy(dst, buf[in:a.step]):]
	}
	if a.bulk != nil {
		dst, x = a.bulk(dst, x)
	}
	for len(dst) > 0 {
		x += splitmix.Golden
		a.spell(&buf, a.step, draw(x))
		dst = dst[copy(dst, buf[:a.step]):]
	}
}

// spell writes n bytes of units from the bits of r, lowest first.
func (a *alphabet) spell(buf *[maxSpelled]byte, n int, r uint64) {
	for at := 0; at < n; at += a.unit {
		binary.LittleEndian.PutUint64(buf[at:], a.all[r&(1<<a.bits-1)])
		r >>= a.bits
	}
}

// bulkWords writes whole draws of seven words while dst has room for them, and returns what is left of dst. A
// store is 8 bytes wide, so each spills 3 bytes that the next one, or the caller, overwrites.
func bulkWords(dst []byte, x uint64) (rest []byte, state uint64) {
	const step, wide = 7 * wordBytes, 7*wordBytes + 3
	for len(dst) >= wide {
		x += splitmix.Golden
		r := draw(x)
		d := dst[:wide]
		binary.LittleEndian.PutUint64(d[0:], wordUnits[r&511])
		binary.LittleEndian.PutUint64(d[5:], wordUnits[r>>9&511])
		binary.LittleEndian.PutUint64(d[10:], wordUnits[r>>18&511])
		binary.LittleEndian.PutUint64(d[15:], wordUnits[r>>27&511])
		binary.LittleEndian.PutUint64(d[20:], wordUnits[r>>36&511])
		binary.LittleEndian.PutUint64(d[25:], wordUnits[r>>45&511])
		binary.LittleEndian.PutUint64(d[30:], wordUnits[r>>54&511])
		dst = dst[step:]
	}
	return dst, x
}

// bulkTokens does what bulkWords does, for draws of five token ids.
func bulkTokens(dst []byte, x uint64) (rest []byte, state uint64) {
	const step, wide = 5 * tokenBytes, 5*tokenBytes + 2
	for len(dst) >= wide {
		x += splitmix.Golden
		r := draw(x)
		d := dst[:wide]
		binary.LittleEndian.PutUint64(d[0:], tokenUnits[r&4095])
		binary.LittleEndian.PutUint64(d[6:], tokenUnits[r>>12&4095])
		binary.LittleEndian.PutUint64(d[12:], tokenUnits[r>>24&4095])
		binary.LittleEndian.PutUint64(d[18:], tokenUnits[r>>36&4095])
		binary.LittleEndian.PutUint64(d[24:], tokenUnits[r>>48&4095])
		dst = dst[step:]
	}
	return dst, x
}
