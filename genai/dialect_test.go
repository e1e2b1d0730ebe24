// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every dialect has a case in a test, and users find it in both READMEs.
func TestDialectsAreComplete(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	letters := func(s string) string {
		return regexp.MustCompile(`[^a-z]`).ReplaceAllString(strings.ToLower(s), "")
	}
	cases := read("dialects_test.go")
	constants := regexp.MustCompile(`(?m)^\t(Dialect\w+) +Dialect = "([^"]+)"`).FindAllStringSubmatch(read("dialect.go"), -1)
	if len(constants) < len(dialects)-4 { // some have several entries
		t.Fatalf("%d constants were found", len(constants))
	}
	for _, c := range constants {
		if !strings.Contains(cases, "genai."+c[1]+",") {
			t.Errorf("dialects_test.go has no case for %s", c[1])
		}
		for _, readme := range []string{"../README.md", "../receiver/README.md"} {
			if c[1] != "DialectUnknown" && !strings.Contains(letters(read(readme)), letters(c[2])) {
				t.Errorf("%s does not name %s", readme, c[2])
			}
		}
	}
}
