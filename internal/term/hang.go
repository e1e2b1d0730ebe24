// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// leastHang is the least width of a text next to its lead, in columns, however narrow the terminal is.
const leastHang = 20

// Hang returns a lead and a text next to it, in lines of at most width columns that each end in a newline. The text breaks between words,
// and all its lines begin in the same column.
func Hang(width int, lead, body string) string {
	indent := text.StringWidthWithoutEscSequences(lead)
	var b strings.Builder
	for part := range strings.SplitSeq(text.WrapSoft(body, max(width-indent, leastHang)), "\n") {
		b.WriteString(strings.TrimRight(lead+part, " ") + "\n")
		lead = strings.Repeat(" ", indent)
	}
	return b.String()
}

// Note returns a remark of the program as a line; for a terminal it is broken between words. A remark may quote others, such as the answer of
// a telemetry receiver, so it is made plain.
func Note(w io.Writer, remark string) string {
	const lead = "moonloop: "
	remark = Plain(remark)
	if !isTerminal(w) {
		return lead + remark + "\n"
	}
	return Hang(Width(w), lead, remark)
}
