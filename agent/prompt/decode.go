// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import "bytes"

// Decode recognises a block of words that [Fill] wrote with this seed and returns its id. The block is whole words,
// at least the 8 that hold the id and as many more as there are; ok is true only when every byte is what Fill would
// have written. In a prompt the blocks follow the anchor, each 5 times the block size long, the last one maybe shorter.
func Decode(block []byte, seed uint64) (id uint64, ok bool) {
	if len(block) < words.header || len(block)%wordBytes != 0 {
		return 0, false
	}
	var x uint64
	for at := words.header - wordBytes; at >= 0; at -= wordBytes {
		if block[at] != ' ' {
			return 0, false
		}
		digit, ok := wordIndex(string(block[at+1 : at+wordBytes]))
		if !ok {
			return 0, false
		}
		x = x<<wordBits | digit
	}
	// The header is compared too: its 8th word holds one bit, and what else it said was shifted out unseen.
	var want [64 * wordBytes]byte
	for off := 0; off < len(block); off += len(want) {
		n := min(len(want), len(block)-off)
		words.write(want[:n], x, off)
		if !bytes.Equal(want[:n], block[off:off+n]) {
			return 0, false
		}
	}
	return unmix(x) ^ seed, true
}
