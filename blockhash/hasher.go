// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"crypto/cipher"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Hasher hashes prompts of one domain under one key: text, piece by piece, with [Hasher.Role], [Hasher.Text] and [Hasher.Chain]; tokens
// with [Hasher.Tokens]; the hashes of an engine with [Hasher.Reblock]. It allocates nothing per cell or block. It must not be used by
// several goroutines at once.
type Hasher struct {
	secret cipher.Block
	seed   uint64
	// AES blocks: a sum with the domain, and the result. They are fields because the arguments of a call through an interface would be
	// allocated.
	plain, sealed [aesSize]byte

	digest xxhash.Digest // over all of the text so far
	left   int           // bytes until the next cell is full
	role   Role          // of the current message
	chain  Chain         // so far; without the tail
}

const aesSize = 16

// NewHasher returns a hasher at the beginning of a prompt. A domain that is not 8 lower-case hexadecimal digits is an error: see [Domain].
func NewHasher(key Key, domain string) (*Hasher, error) {
	if err := checkDomain(domain); err != nil {
		return nil, err
	}
	secret := key.get()
	h := &Hasher{
		secret: secret.value,
		seed:   binary.LittleEndian.Uint64(secret.derive(labelSeed, domain)),
	}
	copy(h.plain[8:], domain)
	h.Reset()
	return h, nil
}

// half selects one of the two values of a position: they are the halves of one AES block.
type half int

const (
	border half = 0 // the prompt continues here, or may
	end    half = 8 // the prompt ends here
)

// value returns the public value for a sum.
func (h *Hasher) value(sum uint64, at half) uint64 {
	binary.LittleEndian.PutUint64(h.plain[:8], sum)
	h.secret.Encrypt(h.sealed[:], h.plain[:])
	return binary.LittleEndian.Uint64(h.sealed[at:])
}
