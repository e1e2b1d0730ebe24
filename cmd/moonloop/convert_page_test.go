// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/convert"
)

// TestFormatsPage: the page has the table of formats, and the README their number. Run with -update to write the page.
func TestFormatsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| format | files | prompts | detected |\n|---|---|---|---|\n")
	for _, f := range convert.Formats() {
		how := "yes"
		if !f.Detected() {
			how = "by `--from`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f, f.About(), f.Prompt(), how)
	}
	b.WriteString("\n| written with `--to` | for (B is the number of tokens per hash id) |\n|---|---|\n")
	for _, to := range convert.Targets() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", to, to.About())
	}
	checkPage(t, "../../docs/formats.md", b.String())
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d formats (", len(convert.Formats())); !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not have %q", want)
	}
}
