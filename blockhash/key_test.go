// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

func TestNewKeyRefusesShortSecrets(t *testing.T) {
	for _, n := range []int{0, 1, 31} {
		secret := []byte(strings.Repeat("s3cret!", 5)[:n])
		_, err := blockhash.NewKey(secret)
		if err == nil {
			t.Errorf("a key of %d bytes was accepted", n)
		} else if n > 1 && strings.Contains(err.Error(), string(secret)) {
			t.Errorf("the error holds the key: %v", err)
		}
	}
	if _, err := blockhash.NewKey(make([]byte, 32)); err != nil {
		t.Error(err)
	}
}

// TestKeyKeepsACopy: a caller that wipes its buffer must not change the key.
func TestKeyKeepsACopy(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	key := newKey(t, secret)
	before := key.Session("x")
	clear(secret)
	if after := key.Session("x"); after != before {
		t.Error("the key changed with the caller's buffer")
	}
}

// TestKeyIsNeverPrinted formats, marshals and logs a key, and structs that contain one, in every possible way.
func TestKeyIsNeverPrinted(t *testing.T) {
	secret := []byte("correct horse battery staple, and some more")
	key := newKey(t, secret)
	type exported struct{ Key blockhash.Key }
	type unexported struct{ key blockhash.Key } // fmt calls no methods on fields of this
	holders := []any{key, &key, exported{key}, &exported{key}, unexported{key}, &unexported{key}, []blockhash.Key{key}, map[string]any{"k": key}}
	var out bytes.Buffer
	for _, holder := range holders {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%t"} {
			fmt.Fprintf(&out, verb+"\n", holder)
		}
		text, err := json.Marshal(holder)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("key", "key", holder)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("key", "key", holder)
	}
	printed := strings.ToLower(out.String())
	decimals := strings.Trim(fmt.Sprintf("%d", secret[:8]), "[]")
	goBytes := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", secret[:8]), "[]byte{"), "}")
	for _, form := range []string{string(secret[:8]), hex.EncodeToString(secret[:8]), decimals, goBytes} {
		if strings.Contains(printed, strings.ToLower(form)) {
			t.Errorf("the key is printed as %q", form)
		}
	}
	if !strings.Contains(printed, key.Fingerprint()) {
		t.Error("no form tells keys apart")
	}
}

func TestZeroKeyIsRandom(t *testing.T) {
	var zero blockhash.Key
	if !zero.IsZero() || testKey(t).IsZero() || blockhash.RandomKey().IsZero() {
		t.Error("IsZero is wrong")
	}
	if zero.Fingerprint() != (blockhash.Key{}).Fingerprint() {
		t.Error("two zero keys of a process differ")
	}
	if zero.Fingerprint() == newKey(t, make([]byte, 32)).Fingerprint() {
		t.Error("the zero key is a key of zeros, which everybody has")
	}
	if one, other := blockhash.RandomKey(), blockhash.RandomKey(); one.Session("x") == other.Session("x") {
		t.Error("two random keys are the same")
	}
}

func TestSession(t *testing.T) {
	key := testKey(t)
	twin := key.Session("alice")
	if raw, err := hex.DecodeString(twin); err != nil || len(raw) != 8 {
		t.Errorf("%q is not 16 hexadecimal digits", twin)
	}
	if twin != key.Session("alice") {
		t.Error("the same session has two twins")
	}
	if twin == key.Session("alicf") || twin == newKey(t, make([]byte, 32)).Session("alice") {
		t.Error("two sessions or keys have the same twin")
	}
}

func TestDomain(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{
		{"text"}, {"text", ""}, {"text", "", ""}, // missing and empty
		{"text", "a", "bc"}, {"text", "ab", "c"}, {"texta", "bc"}, // cut elsewhere
		{"text", "bc", "a"}, // another order
		{"text", "a\x00bc"}, {"text", "a,bc"}, {"tokens", "a", "bc"},
	} {
		domain := blockhash.Domain(parts[0], parts[1:]...)
		if len(domain) != 8 || strings.Trim(domain, "0123456789abcdef") != "" {
			t.Errorf("%q is not 8 hexadecimal digits", domain)
		}
		if other, ok := seen[domain]; ok {
			t.Errorf("%q and %q are one domain", parts, other)
		}
		seen[domain] = parts
	}
}

func TestNewHasherRefusesWhatIsNoDomain(t *testing.T) {
	for domain, reason := range map[string]string{
		"":                     "empty",
		"0123456":              "short",
		"012345678":            "long",
		"0123ABCD":             "upper case would be a second domain for the same thing",
		"llama-3!":             "a model",
		"g0000000":             "no digit",
		"\x00\x00\x00\x000000": "bytes",
	} {
		if _, err := blockhash.NewHasher(testKey(t), domain); err == nil {
			t.Errorf("%q was accepted: %s", domain, reason)
		}
	}
}
