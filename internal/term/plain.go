// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"fmt"
	"strings"
)

// Plain escapes the control characters of a text, except line ends and tabs: a name from a file must neither move the cursor of a terminal
// nor change its colours.
func Plain(text string) string {
	var b strings.Builder
	for _, r := range text {
		if (r < ' ' || r >= 0x7f && r < 0xa0) && r != '\n' && r != '\t' {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
