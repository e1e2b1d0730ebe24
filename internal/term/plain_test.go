// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import "testing"

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"class A, ü, 漢":          "class A, ü, 漢",
		"\x1b[31mred\x1b[0m":     `\x1b[31mred\x1b[0m`,
		"over\rwritten\b\x7f":    `over\x0dwritten\x08\x7f`,
		"a line\n\tand one more": "a line\n\tand one more",
		"\u009b2J":               `\x9b2J`,
		"a\u202egnp.exe\u2069":   `a\u202egnp.exe\u2069`,
		"one\u2028two":           `one\u2028two`,
		"שלום عليكم 👩\u200d💻":    "שלום عليكم 👩\u200d💻",
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
