// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package term is what the commands have in common when they write for people: readable numbers, tables, and one line that shows work under
// way.
package term

import (
	"io"
	"os"

	"golang.org/x/term"
)

// dumb is the TERM of a terminal that shows escape sequences instead of following them.
const dumb = "dumb"

// defaultWidth is the width of output that is not a terminal, in columns.
const defaultWidth = 100

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Colours reports whether a writer is a terminal that understands colours and bold text, and whose user wants them.
func Colours(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != dumb
}

// Width returns the columns of a terminal, or 100 for other output.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			return columns
		}
	}
	return defaultWidth
}

// IsInteractive reports whether w is a terminal that can redraw what it shows.
func IsInteractive(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("TERM") != dumb && os.Getenv("TERM") != ""
}
