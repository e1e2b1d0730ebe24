// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"crypto/cipher"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Hasher hashes prompts of one domain under one key: text, piece by piece, with [Hasher.Role], [Hasher.Text] and
// [Hasher.Chain]; tokens with [Hasher.Tokens]; the hashes of an engine with [Hasher.Reblock]. It allocates nothing per
// cell or block. One goroutine at a time may use it.
type Hasher struct {
	secret cipher.Block
	seed   uint64
	// Blocks of AES: a sum and the domain, and what becomes of them. They stand here because what a call through an
	// interface is given is allocated.
	plain, sealed [aesSize]byte

	digest xxhash.Digest // over all of the text so far
	left   int           // bytes until the next cell is full
	role   Role          // of the message at hand
	chain  Chain         // so far; without the tail
}

const aesSize = 16

// NewHasher returns a hasher at the beginning of a prompt. A domain that is not 8 lower-case hexadecimal digits is an
// error: see [Domain].
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

// half tells the two values of a place apart: they are the halves of one block of AES.
type half int

const (
	border half = 0 // the prompt goes on here, or may
	end    half = 8 // the prompt ends here
)

// value returns what leaves the process in place of a sum.
func (h *Hasher) value(sum uint64, at half) uint64 {
	binary.LittleEndian.PutUint64(h.plain[:8], sum)
	h.secret.Encrypt(h.sealed[:], h.plain[:])
	return binary.LittleEndian.Uint64(h.sealed[at:])
}
