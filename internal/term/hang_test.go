// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"io"
	"testing"
)

func TestHang(t *testing.T) {
	for _, c := range []struct {
		width      int
		lead, body string
		want       string
	}{
		{80, "1  ", "a few words", "1  a few words\n"},
		{24, "1  ", "a text that is longer than a line", "1  a text that is longer\n   than a line\n"},
		{24, "\x1b[1mA\x1b[0m  ", "a text that is longer than a line", "\x1b[1mA\x1b[0m  a text that is longer\n   than a line\n"},
		{5, "name      ", "a narrow terminal cuts no text", "name      a narrow terminal\n          cuts no text\n"},
		{80, "name  ", "", "name\n"},
	} {
		if got := Hang(c.width, c.lead, c.body); got != c.want {
			t.Errorf("Hang(%d, %q, %q) is %q, want %q", c.width, c.lead, c.body, got, c.want)
		}
	}
}

func TestNoteIsPlain(t *testing.T) {
	if got, want := Note(io.Discard, "the receiver says \x1b[2J"), "moonloop: the receiver says \\x1b[2J\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
