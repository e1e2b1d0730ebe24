// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestCompletion: a shell offers the values of a flag, and the names that other tools have for a flag.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"replay --as ":          "aiperf\nvllm\nguidellm\ntracereplay\n",
		"replay --fixed-schedu": "--fixed-schedule",
		"transf":                "transform",
	} {
		var out bytes.Buffer
		args := append([]string{cobra.ShellCompRequestCmd}, strings.Split(line, " ")...)
		if status := run(t.Context(), args, strings.NewReader(""), &out, new(bytes.Buffer)); status != exitOK {
			t.Errorf("%q: exit status %d", line, status)
		}
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("%q: offered\n%s\nwant first %q", line, out.String(), want)
		}
	}
}
