// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"
)

const header = "// Copyright The moonloop authors\n// SPDX-License-Identifier: Apache-2.0\n\n"

// TestHeader requires the licence in each file, since files are copied individually. The blank line below it keeps the licence from
// becoming the package's documentation.
func TestHeader(t *testing.T) {
	eachGoFile(t, func(name string, content []byte) {
		if !strings.HasPrefix(string(content), header) {
			t.Errorf("%s does not start with the licence header and a blank line:\n%s", name, header)
		}
	})
}

// TestPackageComment requires that each package says what it is: the first thing that a reader and pkg.go.dev show.
func TestPackageComment(t *testing.T) {
	documented := map[string]bool{}
	eachGoFile(t, func(name string, content []byte) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		comment := file.Doc.Text()
		if strings.Contains(comment, "SPDX-License-Identifier") {
			t.Errorf("%s: the licence header became the package comment: put a blank line below it", name)
		}
		want := "Package " + file.Name.Name + " "
		if file.Name.Name == "main" {
			want = "Command "
		}
		ok := strings.HasPrefix(comment, want)
		if comment != "" && !ok {
			t.Errorf("%s: the package comment starts with %q, not with %q", name, firstLine(comment), want)
		}
		documented[path.Dir(name)] = documented[path.Dir(name)] || ok
	})
	for folder, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment in any file; say in doc.go or the main file what it is for", folder)
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
