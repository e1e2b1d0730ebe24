// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutsideDataIsNamed: a test that needs data from outside the repository skips itself in a plain clone. CONTRIBUTING.md names the
// packages of all such tests, so that nobody relies on tests that do not run.
func TestOutsideDataIsNamed(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "### Data that is not here")
	section, _, _ = strings.Cut(section, "\n## ")
	found := 0
	eachGoFile(t, func(name string, content []byte) {
		if !strings.HasSuffix(name, "_test.go") || !bytes.Contains(content, []byte(`"shared", "data"`)) || strings.HasPrefix(name, "internal/policy/") {
			return
		}
		found++
		if dir := path.Dir(filepath.ToSlash(name)); !strings.Contains(section, "`"+dir+"`") {
			t.Errorf("%s looks for data outside the repository, and CONTRIBUTING.md does not name %s among the packages whose tests a plain clone skips", name, dir)
		}
	})
	if found < 5 {
		t.Errorf("%d tests look for data outside the repository, want 5 or more: this test does not find them all", found)
	}
}
