// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"encoding/hex"
	"strconv"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

func newKey(t testing.TB, secret []byte) blockhash.Key {
	t.Helper()
	key, err := blockhash.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// testKey returns a key that is the same in every run.
func testKey(t testing.TB) blockhash.Key {
	t.Helper()
	return newKey(t, []byte("a key that everybody knows, for tests only"))
}

func newHasher(t testing.TB, key blockhash.Key, domain string) *blockhash.Hasher {
	t.Helper()
	h, err := blockhash.NewHasher(key, domain)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// testHasher returns a hasher of the same key and domain in every run.
func testHasher(t testing.TB) *blockhash.Hasher {
	t.Helper()
	return newHasher(t, testKey(t), blockhash.Domain("text", "test"))
}

func decimal(value uint64) string { return strconv.FormatUint(value, 10) }

func decimals(values []uint64) []string {
	out := make([]string, len(values))
	for i, value := range values {
		out[i] = decimal(value)
	}
	return out
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// evenEnds returns the number of tokens up to the end of each cell, if tokens are spread evenly over the text.
func evenEnds(c blockhash.Chain, tokens int64) []int64 {
	ends := make([]int64, len(c.Cells))
	for j := range ends {
		ends[j] = int64(j+1) * blockhash.CellSize * tokens / c.Bytes
	}
	return ends
}
