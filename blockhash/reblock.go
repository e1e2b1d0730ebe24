// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// The errors of [Hasher.Reblock] and [Chain.Blocks].
var (
	// ErrBlockSize means that blocks of one size cannot be made from blocks of another.
	ErrBlockSize = errors.New("unusable block size")
	// ErrLength means that a number of tokens is impossible, or does not match the number of hashes or cells.
	ErrLength = errors.New("unusable length")
)

// Reblock converts an engine's hashes of blocks of hashSize tokens to ids of blocks of idSize tokens, and appends the ids to dst. It fails
// with [ErrBlockSize] unless idSize is a multiple of hashSize. The hashes must be chained, as those of every engine with a prefix cache
// are: each hash also covers all blocks before it, so that every (idSize/hashSize)-th hash is that of a larger block.
//
// tokens is the length of the prompt, which gets ceil(tokens/idSize) ids. If there are ceil(tokens/hashSize) hashes, the last one belongs to
// the last block, full or not. Engines that hash only full blocks leave the rest of the prompt without a hash. The id of the last block is
// then derived from the last hash, the number of tokens, and span, which must be unique to the request; so the id equals no other, as in a
// cache that keeps only full blocks. With any other number of hashes, Reblock fails with [ErrLength].
//
// Hashes are sealed like all values, because the hashes of an engine with a known seed would reveal short prompts.
func (h *Hasher) Reblock(dst, hashes []uint64, hashSize, idSize int, tokens int64, span string) ([]uint64, error) {
	if hashSize < 1 || idSize < hashSize || idSize%hashSize != 0 {
		return dst, fmt.Errorf("hashes of %d tokens each for blocks of %d: %w: the size of blocks must be a multiple of that of hashes",
			hashSize, idSize, ErrBlockSize)
	}
	full, rest := tokens/int64(hashSize), tokens%int64(hashSize)
	dropped := rest > 0 && int64(len(hashes)) == full
	if tokens < 1 || !dropped && int64(len(hashes)) != full+min(rest, 1) {
		return dst, fmt.Errorf("%d hashes of %d tokens each for a prompt of %d: %w: the hashes must be those of the prompt, all of them",
			len(hashes), hashSize, tokens, ErrLength)
	}
	factor := idSize / hashSize
	for i := factor - 1; i < len(hashes); i += factor {
		dst = append(dst, h.value(hashes[i], border))
	}
	switch {
	case dropped:
		dst = append(dst, h.mint(hashes, tokens, span))
	case len(hashes)%factor != 0:
		dst = append(dst, h.value(hashes[len(hashes)-1], border))
	}
	return dst, nil
}

// mint returns the id of a last block that has no hash.
func (h *Hasher) mint(hashes []uint64, tokens int64, span string) uint64 {
	var buf [2 * wordSize]byte
	if len(hashes) > 0 {
		binary.LittleEndian.PutUint64(buf[:], hashes[len(hashes)-1])
	}
	binary.LittleEndian.PutUint64(buf[wordSize:], uint64(tokens)) //nolint:gosec // checked to be positive
	var digest xxhash.Digest
	digest.ResetWithSeed(h.seed)
	_, _ = digest.Write(buf[:])
	_, _ = digest.WriteString(span)
	return h.value(digest.Sum64(), end)
}
