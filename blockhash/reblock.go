// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Reasons why [Hasher.Reblock] and [Chain.Blocks] refuse what they are given.
var (
	// ErrBlockSize means that blocks of one size cannot be made of blocks of another.
	ErrBlockSize = errors.New("unusable block size")
	// ErrLength means that a number of tokens is impossible, or not that of the hashes or cells.
	ErrLength = errors.New("unusable length")
)

// Reblock appends the ids of the blocks of to tokens of a prompt whose blocks of from tokens an engine has hashed; to is
// a multiple of from, and anything else an [ErrBlockSize]. The hashes must be chained, as those of every engine with a
// prefix cache are: then each stands for all blocks before it, and every (to/from)-th is the hash of a larger block.
//
// The prompt has so many tokens and ceil(tokens/to) ids. If hashes has ceil(tokens/from) of them, the last one belongs
// to the last block, full or not. Engines that hash full blocks only leave a rest of the prompt without a hash; its id
// is then made of the last hash, the number of tokens, and span, which should name the request and nothing else: it
// equals no other, as in a cache that keeps full blocks only. Any other number of hashes is an [ErrLength].
//
// Hashes are sealed like all values: those of an engine with a known seed would give away short prompts.
func (h *Hasher) Reblock(dst, hashes []uint64, from, to int, tokens int64, span string) ([]uint64, error) {
	if from < 1 || to < from || to%from != 0 {
		return dst, fmt.Errorf("hashes of %d tokens each for blocks of %d: %w: only a multiple can be made of them",
			from, to, ErrBlockSize)
	}
	full, rest := tokens/int64(from), tokens%int64(from)
	dropped := rest > 0 && int64(len(hashes)) == full
	if tokens < 1 || !dropped && int64(len(hashes)) != full+min(rest, 1) {
		return dst, fmt.Errorf("%d hashes of %d tokens each for a prompt of %d: %w: the hashes must be those of the prompt, all of them",
			len(hashes), from, tokens, ErrLength)
	}
	factor := to / from
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

// mint returns the id of a last block that has no hash of its own.
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
