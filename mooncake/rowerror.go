// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"strconv"
	"strings"
)

// RowError is the error for a row that cannot be used. It never contains prompt text: Value is a number, a name from a fixed vocabulary, or
// the JSON type of the value.
type RowError struct {
	File   string // name of the trace; empty if unknown
	Line   int64  // line number from 1; 0 if unknown
	Field  string // JSON key; empty if the error is about the whole line
	Value  string // the value in the row; may be empty
	Rule   string // the rule that it breaks
	Advice string // advice; may be empty
	Err    error  // cause; may be nil
}

// fault returns the error of a row whose file and line are not known yet. The value is a text or a number.
func fault(field string, value any, rule, advice string) *RowError {
	return &RowError{Field: field, Value: fmt.Sprint(value), Rule: rule, Advice: advice}
}

// correctOrOmit is the advice for a field that a row does not need.
const correctOrOmit = "correct the row, or leave the key out"

// Error returns "file:line: field: value: rule; advice", without empty parts.
func (e *RowError) Error() string {
	text := join(": ", location(e.File, e.Line), e.Field, e.Value, e.Rule)
	return join("; ", text, e.Advice)
}

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Err }

// location returns the name of a line of a file, as far as it is known.
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
