// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package bearer checks a bearer key in an Authorization header.
package bearer

import (
	"crypto/sha256"
	"crypto/subtle"
	"strings"
)

// Key is the digest of a key. Digests all have the same length, so the duration of a comparison reveals nothing about the key.
type Key [sha256.Size]byte

// New returns the digest of a key.
func New(key string) Key { return sha256.Sum256([]byte(key)) }

// Matches reports whether the value of an Authorization header presents the key.
func (k Key) Matches(header string) bool {
	scheme, key, _ := strings.Cut(header, " ")
	got := New(strings.TrimSpace(key))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], k[:]) == 1
}
