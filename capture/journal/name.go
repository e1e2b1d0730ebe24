// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
)

// MaxName is the maximum length of a [Name], in bytes.
const MaxName = 256

// Name is a short identifier, such as that of a model or a run: at most [MaxName] visible ASCII characters without a space, so that it
// cannot be a sentence. The zero Name is absent.
type Name struct{ s string }

// ParseName returns the name, or an error that does not repeat it.
func ParseName(s string) (Name, error) {
	if len(s) > MaxName {
		return Name{}, fmt.Errorf("name of %d bytes is longer than %d: it is not an identifier", len(s), MaxName)
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return Name{}, fmt.Errorf("name has the byte 0x%02x at %d: an identifier is visible ASCII without spaces", s[i], i)
		}
	}
	return Name{s}, nil
}

// String returns the name; "" is absent.
func (n Name) String() string { return n.s }

// IsZero reports whether there is no name.
func (n Name) IsZero() bool { return n.s == "" }

// MarshalText writes the name.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.s), nil }

// UnmarshalText reads a name like [ParseName].
func (n *Name) UnmarshalText(b []byte) (err error) {
	*n, err = ParseName(string(b))
	return err
}

// Session is the keyed twin of a session id: 64 bits, written as 16 hex digits. The zero Session means no session.
type Session uint64

// SessionOf returns the session of a mooncake.session attribute. 16 lower-case hex digits are a twin, and are kept; any other text (the
// session id of a replayed trace) is replaced by 64 bits of its SHA-256. An empty text gives the zero Session.
func SessionOf(s string) Session {
	if s == "" {
		return 0
	}
	if len(s) == 16 {
		if n, err := strconv.ParseUint(s, 16, 64); err == nil && n != 0 && Session(n).String() == s {
			return Session(n)
		}
	}
	sum := sha256.Sum256([]byte(s))
	return Session(max(binary.BigEndian.Uint64(sum[:]), 1))
}

// String returns 16 hex digits, or "" for no session.
func (s Session) String() string {
	if s == 0 {
		return ""
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(s))
	return hex.EncodeToString(b[:])
}

// Response identifies a gen_ai.response.id: 128 bits of its SHA-256, because only equality matters. The zero Response means no id.
type Response [16]byte

// ResponseOf returns the Response for a response id; that of "" is zero.
func ResponseOf(id string) Response {
	if id == "" {
		return Response{}
	}
	sum := sha256.Sum256([]byte(id))
	return Response(sum[:16])
}

// Domain is a hash domain (the source of block ids), or the fingerprint of a key. It is written as 8 hex digits.
type Domain uint32

// ParseDomain reads the 8 hex digits of a mooncake.hash.domain or mooncake.hash.key attribute.
func ParseDomain(s string) (Domain, error) {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil || len(s) != 8 {
		return 0, fmt.Errorf("hash domain of %d bytes is not 8 hex digits", len(s))
	}
	return Domain(n), nil
}

// String returns 8 hex digits.
func (d Domain) String() string {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(d))
	return hex.EncodeToString(b[:])
}
