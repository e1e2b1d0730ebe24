// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"crypto/aes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"
	"testing"
)

// A second implementation of the package, written from the package comment alone: whole prompts at once, without running state, XXH64 and
// HMAC by their definitions. Test vectors prove nothing if only one implementation agrees with them.

type reference struct {
	key    []byte
	domain string
}

func (r reference) derive(label, data string) []byte {
	key := make([]byte, 64)
	if len(r.key) > 64 {
		sum := sha256.Sum256(r.key)
		copy(key, sum[:])
	} else {
		copy(key, r.key)
	}
	inner, outer := make([]byte, 64), make([]byte, 64)
	for i, b := range key {
		inner[i], outer[i] = b^0x36, b^0x5c
	}
	first := sha256.Sum256(slices.Concat(inner, []byte(label), []byte{0}, []byte(data)))
	second := sha256.Sum256(slices.Concat(outer, first[:]))
	return second[:]
}

func (r reference) fingerprint() string {
	return hex.EncodeToString(r.derive("moonloop fingerprint v1", "")[:4])
}

func (r reference) session(id string) string {
	return hex.EncodeToString(r.derive("moonloop session v1", id)[:8])
}

func referenceDomain(kind string, parts ...string) string {
	message := []byte("moonloop domain v1\x00")
	for _, part := range append([]string{kind}, parts...) {
		message = binary.LittleEndian.AppendUint64(message, uint64(len(part)))
		message = append(message, part...)
	}
	return fmt.Sprintf("%x", sha256.Sum256(message))[:8]
}

// seal returns the two halves of the sealed sum.
func (r reference) seal(sum uint64) (border, end uint64) {
	block, err := aes.NewCipher(r.derive("moonloop value v1", "")[:16])
	if err != nil {
		panic(err)
	}
	out := make([]byte, 16)
	block.Encrypt(out, append(binary.LittleEndian.AppendUint64(nil, sum), r.domain...))
	return binary.LittleEndian.Uint64(out), binary.LittleEndian.Uint64(out[8:])
}

func (r reference) values(x []byte) (border, end uint64) {
	return r.seal(referenceXXH64(binary.LittleEndian.Uint64(r.derive("moonloop seed v1", r.domain)), x))
}

func (r reference) text(text string) (cells []uint64, tail uint64) {
	for n := 128; n <= len(text) && len(cells) < 65536; n += 128 {
		cell, _ := r.values([]byte(text[:n]))
		cells = append(cells, cell)
	}
	_, tail = r.values([]byte(text))
	return cells, tail
}

func (r reference) tokens(tokens []uint32, size int) (ids []uint64) {
	var x []byte
	for i, token := range tokens {
		x = binary.LittleEndian.AppendUint32(x, token)
		border, end := r.values(x)
		if (i+1)%size == 0 {
			ids = append(ids, border)
		} else if i == len(tokens)-1 {
			ids = append(ids, end)
		}
	}
	return ids
}

func (r reference) engine(hashes []uint64, from, to int, tokens int64, span string) (ids []uint64) {
	for i, hash := range hashes {
		last := i == len(hashes)-1 && int64(len(hashes)*from) >= tokens
		if (i+1)*from%to == 0 || last {
			border, _ := r.seal(hash)
			ids = append(ids, border)
		}
	}
	if int64(len(hashes)*from) < tokens {
		x := make([]byte, 8)
		if len(hashes) > 0 {
			binary.LittleEndian.PutUint64(x, hashes[len(hashes)-1])
		}
		x = binary.LittleEndian.AppendUint64(x, uint64(tokens))
		_, end := r.values(append(x, span...))
		ids = append(ids, end)
	}
	return ids
}

// referenceWords writes words as bytes, in little-endian order.
func referenceWords(words []uint64) (out []byte) {
	for _, word := range words {
		for range 8 {
			out = append(out, byte(word))
			word >>= 8
		}
	}
	return out
}

// referenceLay lays borders over a prompt whose tokens are spread evenly over its text.
func referenceLay(cells []uint64, tail uint64, bytes int, tokens int64, size int) (ids []uint64) {
	used := map[int]bool{}
	for i := 0; int64(i)*int64(size) < tokens; i++ {
		j := 0
		for j < len(cells) && int64(j+1)*128*tokens < int64(size)*int64(i+1)*int64(bytes) {
			j++
		}
		switch {
		case j == len(cells):
			ids = append(ids, tail+uint64(i))
		case used[j]:
			ids = append(ids, cells[j]+uint64(i))
		default:
			ids = append(ids, cells[j])
		}
		used[j] = true
	}
	return ids
}

// referenceXXH64 follows the XXH64 specification step by step.
func referenceXXH64(seed uint64, input []byte) uint64 {
	const (
		p1 = 0x9E3779B185EBCA87
		p2 = 0xC2B2AE3D27D4EB4F
		p3 = 0x165667B19E3779F9
		p4 = 0x85EBCA77C2B2AE63
		p5 = 0x27D4EB2F165667C5
	)
	round := func(acc, lane uint64) uint64 { return bits.RotateLeft64(acc+lane*p2, 31) * p1 }
	one, two := uint64(p1), uint64(p2) // variables, so that the sum may wrap
	acc := seed + p5
	rest := input
	if len(input) >= 32 {
		lanes := [4]uint64{seed + one + two, seed + two, seed, seed - one}
		for ; len(rest) >= 32; rest = rest[32:] {
			for i := range lanes {
				lanes[i] = round(lanes[i], binary.LittleEndian.Uint64(rest[8*i:]))
			}
		}
		acc = 0
		for i, by := range []int{1, 7, 12, 18} {
			acc += bits.RotateLeft64(lanes[i], by)
		}
		for _, lane := range lanes {
			acc = (acc^round(0, lane))*p1 + p4
		}
	}
	acc += uint64(len(input))
	for ; len(rest) >= 8; rest = rest[8:] {
		acc = bits.RotateLeft64(acc^round(0, binary.LittleEndian.Uint64(rest)), 27)*p1 + p4
	}
	if len(rest) >= 4 {
		acc = bits.RotateLeft64(acc^uint64(binary.LittleEndian.Uint32(rest))*p1, 23)*p2 + p3
		rest = rest[4:]
	}
	for _, b := range rest {
		acc = bits.RotateLeft64(acc^uint64(b)*p5, 11) * p1
	}
	acc = (acc ^ acc>>33) * p2
	acc = (acc ^ acc>>29) * p3
	return acc ^ acc>>32
}

// TestReferenceXXH64 checks the second implementation against published values of XXH64.
func TestReferenceXXH64(t *testing.T) {
	for text, want := range map[string]uint64{
		"":    0xef46db3751d8e999,
		"a":   0xd24ec4f1a98c6e5b,
		"abc": 0x44bc2cf5ad770999,
		"Call me Ishmael. Some years ago--never mind how long precisely-": 0x02a2e85470d6fd96,
	} {
		if got := referenceXXH64(0, []byte(text)); got != want {
			t.Errorf("XXH64(%q) = %x, want %x", text, got, want)
		}
	}
}
