// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/convert"
)

// TestFormatsPage: the page has the table of formats. Run with -update to write it.
func TestFormatsPage(t *testing.T) {
	const page = "../../docs/formats.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "<!-- written by go test ./cmd/moonloop -run TestFormatsPage -update -->\n"
	head, _, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s lacks the line %s", page, begin)
	}
	var b strings.Builder
	b.WriteString(head + begin + "\n| format | files | prompts | found out |\n|---|---|---|---|\n")
	for _, f := range convert.Formats() {
		how := "yes"
		if !f.Detected() {
			how = "by `--from`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f, f.About(), f.Prompt(), how)
	}
	b.WriteString("\n| written with `--to` | for |\n|---|---|\n")
	for _, to := range convert.Targets() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", to, to.About())
	}
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(b.String(), string(text)); diff != "" {
		t.Errorf("the page is not the table (-table +page); run with -update:\n%s", diff)
	}
}
