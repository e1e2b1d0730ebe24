// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

const labelDomain = "moonloop domain v1"

// domainSize is the length of a domain. Together with a sum it fills one block of AES.
const domainSize = 8

// Domain returns the name of what made ids: 8 hexadecimal digits of a hash over a kind ("text", "tokens", "engine",
// "trace") and its parts, in order: the fingerprint of the key or the digest of the trace, then the scope of the engine,
// the model and the cache salt, as far as ids depend on them. Empty parts count: ("a", "") and ("a") are two domains.
//
// A domain is public and the hash has no key. A cache salt that is a secret should go in as its [Key.Session] twin.
func Domain(kind string, parts ...string) string {
	text := []byte(labelDomain + "\x00")
	for _, part := range append([]string{kind}, parts...) {
		// The length in front keeps ("ab", "c") and ("a", "bc") apart.
		text = append(binary.LittleEndian.AppendUint64(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:domainSize/2])
}

// TextDomain returns the domain of all text that is hashed under a key. No model is part of it: the same text has the same
// values on the span of a client, on that of a gateway that calls the model by another name, and in a log record that
// names none. Who makes ids of values keeps models apart.
func TextDomain(key Key) string { return Domain("text", key.Fingerprint(), "", "") }

// checkDomain returns an error unless domain is what [Domain] returns.
func checkDomain(domain string) error {
	if len(domain) != domainSize || strings.Trim(domain, "0123456789abcdef") != "" {
		// Not quoted: it came from outside, and nothing says that it is no text.
		return fmt.Errorf("hash domain: %d bytes that are not %d lower-case hexadecimal digits: make it with Domain",
			len(domain), domainSize)
	}
	return nil
}
