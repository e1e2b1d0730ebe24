// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
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

// fault returns the error of a row of which file and line are not known yet. The value is a text or a number.
func fault(field string, value any, rule, advice string) *RowError {
	return &RowError{Field: field, Value: fmt.Sprint(value), Rule: rule, Advice: advice}
}

// correctOrOmit is the advice where a row is as good without the field.
const correctOrOmit = "correct the row, or leave the key out"

// Error returns "file:line: field: value: rule; advice", without the parts that are empty.
func (e *RowError) Error() string {
	text := join(": ", location(e.File, e.Line), e.Field, e.Value, e.Rule)
	return join("; ", text, e.Advice)
}

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }

// location names a line of a file, as far as the two are known.
func location(file string, line int64) string {
	switch {
	case line == 0:
		return file
	case file == "":
		return "line " + strconv.FormatInt(line, 10)
	}
	return file + ":" + strconv.FormatInt(line, 10)
}

// join joins the texts that are not empty.
func join(separator string, texts ...string) string {
	var b strings.Builder
	for _, s := range texts {
		if s != "" && b.Len() > 0 {
			b.WriteString(separator)
		}
		b.WriteString(s)
	}
	return b.String()
}
