// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"regexp"
	"strings"
	"testing"
)

// TestReliabilityNamesTests: every test that docs/reliability.md names exists.
func TestReliabilityNamesTests(t *testing.T) {
	const document = "docs/reliability.md"
	declared := map[string]bool{}
	var named [][]string
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	eachFile(t, func(name string, content []byte) {
		if name == document {
			named = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(content), -1)
		}
		if strings.HasSuffix(name, "_test.go") {
			for _, match := range function.FindAllStringSubmatch(string(content), -1) {
				declared[match[1]] = true
			}
		}
	})
	if len(named) == 0 {
		t.Fatalf("%s names no test", document)
	}
	for _, match := range named {
		if !declared[match[1]] {
			t.Errorf("%s names %s, and no test has this name", document, match[1])
		}
	}
}
