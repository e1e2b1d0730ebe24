// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"fmt"
	"strings"
	"unicode"
)

// Plain escapes the control characters of a text, except line ends and tabs, and the characters that change the direction of the text after
// them: a name from a file must neither move the cursor of a terminal, nor change its colours, nor the order in which a line is read.
func Plain(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case (r < ' ' || r >= 0x7f && r < 0xa0) && r != '\n' && r != '\t':
			fmt.Fprintf(&b, `\x%02x`, r)
		case unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029': // the last two end a line
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
