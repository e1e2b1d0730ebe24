// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
)

// Algorithm is the name of the algorithm for values of text or tokens; the package documentation describes it.
const Algorithm = "XXH64 and AES-128 under a key, derived by HMAC-SHA-256"

// KeySize is the minimum number of bytes of a key.
const KeySize = 32

// The labels separate the values that are derived from a key. Without them, a session could be named so that its twin reveals another of
// the key's secrets.
const (
	labelFingerprint = "moonloop fingerprint v1"
	labelSession     = "moonloop session v1"
	labelSeed        = "moonloop seed v1"
	labelValue       = "moonloop value v1"
)

// Key is the secret under which prompts are hashed. Collectors whose values must match share one Key. A Key cannot be printed, logged
// or marshalled: all of these return its fingerprint. It is safe for concurrent use.
//
// The zero Key is a random key of this process, made when it is first used: its values match no others.
type Key struct {
	// A pointer, because printing a struct that has a Key in an unexported field calls no method of Key.
	secret *secret
}

type secret struct {
	// derive returns HMAC-SHA256(key, label ‖ 0 ‖ data). Only this function can reach the key, because printing with an unsuitable verb
	// follows pointers, too.
	derive func(label, data string) []byte
	value  cipher.Block
}

// NewKey returns the key for secret, of which it keeps a copy. The bytes are used directly and should be random; fewer than [KeySize] are
// an error.
func NewKey(secret []byte) (Key, error) {
	if len(secret) < KeySize {
		return Key{}, fmt.Errorf("hash key: has %d bytes, and fewer than %d can be guessed: generate one with openssl rand -hex 32",
			len(secret), KeySize)
	}
	return newKey(bytes.Clone(secret)), nil
}

// RandomKey returns a new random key.
func RandomKey() Key {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // never fails
	return newKey(key)
}

var processKey = sync.OnceValue(RandomKey)

func newKey(key []byte) Key {
	s := &secret{derive: func(label, data string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(label + "\x00" + data))
		return mac.Sum(nil)
	}}
	block, err := aes.NewCipher(s.derive(labelValue, "")[:16])
	if err != nil {
		panic("blockhash: AES-128 refused a key of 16 bytes: " + err.Error()) // does not depend on any input
	}
	s.value = block
	return Key{s}
}

func (k Key) get() *secret {
	if k.secret == nil {
		return processKey().secret
	}
	return k.secret
}

// IsZero reports whether the key is the zero Key. A program that uses it should say so: its values cannot be compared with those of another
// process, or of this one after a restart.
func (k Key) IsZero() bool { return k.secret == nil }

// Fingerprint returns 8 hexadecimal digits that identify the key without revealing it.
func (k Key) Fingerprint() string {
	return hex.EncodeToString(k.get().derive(labelFingerprint, "")[:4])
}

// Session returns the keyed twin of a session id: 16 hexadecimal digits. Equal ids have equal twins, and the id cannot be computed from the
// twin without the key.
func (k Key) Session(id string) string {
	return hex.EncodeToString(k.get().derive(labelSession, id)[:8])
}

// String returns the fingerprint, marked as such.
func (k Key) String() string { return "key " + k.Fingerprint() }

// GoString returns the fingerprint, marked as such.
func (k Key) GoString() string { return "blockhash.Key(" + k.Fingerprint() + ")" }

// MarshalText returns the fingerprint, marked as such, so that JSON, YAML and structured logs do not contain a key either.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
