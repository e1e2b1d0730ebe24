// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"strconv"
	"strings"
)

// RowError is a row that cannot be used. It never holds prompt text: Value is a number, a name from a fixed
// vocabulary, or the JSON type of what was found.
type RowError struct {
	File   string // name of the trace; empty when unknown
	Line   int64  // line number from 1; 0 when unknown
	Field  string // JSON key; empty when the whole line is meant
	Value  string // what was found; may be empty
	Rule   string // what is wrong
	Advice string // what to do; may be empty
	Err    error  // cause; may be nil
}

// Error returns "file:line: field: value: rule; advice", without the parts that are empty.
func (e *RowError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		b.WriteByte(':')
	}
	if e.Line > 0 {
		if e.File == "" {
			b.WriteString("line ")
		}
		b.WriteString(strconv.FormatInt(e.Line, 10))
		b.WriteByte(':')
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	for _, s := range []string{e.Field, e.Value} {
		if s != "" {
			b.WriteString(s)
			b.WriteString(": ")
		}
	}
	b.WriteString(e.Rule)
	if e.Advice != "" {
		b.WriteString("; ")
		b.WriteString(e.Advice)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }
