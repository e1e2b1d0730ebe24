// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

const tokenSize = 4 // bytes of a token id

// Tokens appends the ids of the blocks of a prompt whose tokens are known, size tokens to a block: ceil(len(tokens)/size) ids, the last of
// which covers a block that may be shorter. For a size below 1, it appends nothing. It does not affect a text that is being hashed.
func (h *Hasher) Tokens(dst []uint64, tokens []uint32, size int) []uint64 {
	if size < 1 {
		return dst
	}
	var digest xxhash.Digest
	digest.ResetWithSeed(h.seed)
	for len(tokens) > 0 {
		block := tokens[:min(size, len(tokens))]
		tokens = tokens[len(block):]
		writeTokens(&digest, block)
		at := border
		if len(block) < size {
			at = end
		}
		dst = append(dst, h.value(digest.Sum64(), at))
	}
	return dst
}

// writeTokens hashes token ids through a buffer on the stack, piece by piece.
func writeTokens(digest *xxhash.Digest, tokens []uint32) {
	var buf [256 * tokenSize]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(buf)/tokenSize)
		for i, token := range tokens[:n] {
			binary.LittleEndian.PutUint32(buf[i*tokenSize:], token)
		}
		_, _ = digest.Write(buf[:n*tokenSize])
		tokens = tokens[n:]
	}
}
