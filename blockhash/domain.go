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

// domainSize is the length of a domain. Together with a sum it fills one AES block.
const domainSize = 8

// Domain returns the name of a source of ids: 8 hexadecimal digits of a hash over a kind ("text", "tokens", "engine", "trace") and its
// parts, in order: the fingerprint of the key or the digest of the trace, then the scope of the engine, the model and the cache salt, as
// far as ids depend on them. Empty parts count: ("a", "") and ("a") are two domains.
//
// A domain is public and the hash has no key. A secret cache salt should be replaced by its [Key.Session] twin.
func Domain(kind string, parts ...string) string {
	text := []byte(labelDomain + "\x00")
	for _, part := range append([]string{kind}, parts...) {
		// The preceding length distinguishes ("ab", "c") from ("a", "bc").
		text = append(binary.LittleEndian.AppendUint64(text, uint64(len(part))), part...)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:domainSize/2])
}

// TextDomain returns the domain of all text that is hashed under a key. It does not depend on the model: the same text has the same values
// on the span of a client, on that of a gateway that has another name for the model, and in a log record without a model. Code that makes
// ids from values must keep models apart.
func TextDomain(key Key) string { return Domain("text", key.Fingerprint(), "", "") }

// checkDomain returns an error unless domain has the form of [Domain].
func checkDomain(domain string) error {
	if len(domain) != domainSize || strings.Trim(domain, "0123456789abcdef") != "" {
		// Not quoted, because it came from outside and may be text of a prompt.
		return fmt.Errorf("hash domain: %d bytes that are not %d lower-case hexadecimal digits: make it with Domain",
			len(domain), domainSize)
	}
	return nil
}
