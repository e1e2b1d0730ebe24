// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// charsMapOf reads the map of a file in testdata.
func charsMapOf(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Normalizer struct {
			Normalizers []struct {
				Map string `json:"precompiled_charsmap"`
			}
		}
	}
	if err := json.Unmarshal(text, &c); err != nil || len(c.Normalizer.Normalizers) == 0 {
		t.Fatal(err)
	}
	return c.Normalizer.Normalizers[0].Map
}

// TestCharsMapLinear: long texts are not scanned repeatedly.
func TestCharsMapLinear(t *testing.T) {
	m, err := readCharsMap(charsMapOf(t, "charsmap.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"a", "e\u0301", "\u0301", "Ａ", " "} {
		const n = 200_000
		with, found := m.replacement(unit)
		if !found {
			with = unit
		}
		// Marks in one grapheme are looked up one by one; of all others, the whole grapheme is looked up.
		if got := m.normalize(strings.Repeat(unit, n)); got != strings.Repeat(with, n) {
			t.Errorf("%q: %d bytes, want %d", unit, len(got), n*len(with))
		}
	}
}

// FuzzCharsMap: no map makes its reader or normalize panic or hang.
func FuzzCharsMap(f *testing.F) {
	raw, err := base64.StdEncoding.DecodeString(charsMapOf(f, "charsmap.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, "Ａ e\u0301 x")
	f.Add([]byte{4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0}, "\xffabc")
	f.Add([]byte{8, 0, 0, 0, 1, 1, 0, 0, 0xff, 0xff, 0xff, 0x7f}, "abc")
	f.Fuzz(func(t *testing.T, raw []byte, text string) {
		m, err := readCharsMap(base64.StdEncoding.EncodeToString(raw))
		if err != nil {
			return
		}
		_ = m.normalize(text)
	})
}
