// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError words the error of a command line for its writer: which flag, which value, and what would do. The flag
// library's own text speaks of functions of Go.
func flagError(cmd *cobra.Command, err error) error {
	hint := fmt.Sprintf("%q lists the flags", cmd.CommandPath()+" --help")
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return hintError{err, hint}
	}
	flag := bad.GetFlag()
	want := fmt.Sprint(bad.Unwrap())
	if errors.Is(err, strconv.ErrRange) {
		want = "the number does not fit into 64 bits"
	} else if kind, ok := map[string]string{
		"int":      "a whole number",
		"int64":    "a whole number",
		"uint64":   "a whole number of 0 or more",
		"float64":  "a number",
		"bool":     "true or false",
		"duration": "a duration with its unit, such as 500ms, 90s or 5m",
	}[flag.Value.Type()]; ok {
		want = "want " + kind
	}
	return hintError{fmt.Errorf("--%s %q: %s", flag.Name, bad.GetValue(), want), hint}
}
