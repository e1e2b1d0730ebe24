// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// otherModules have separate tests, which are not part of go test ./...
var otherModules = []string{"bench", "cmd/otelcol-moonloop", "dashboards", "test/deploy", "tools"}

// TestRaceDetector: the list in the Makefile has exactly the packages without concurrency, in code and tests: the race detector finds
// nothing there, and makes them five to ten times slower.
func TestRaceDetector(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repositoryRoot(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^ALONE := ((?:.*\\\n)*.*)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no list ALONE")
	}
	tested, beside := map[string]bool{}, map[string]string{}
	eachGoFile(t, func(name string, content []byte) {
		folder := path.Dir(name)
		if slices.ContainsFunc(otherModules, func(module string) bool { return within(folder, module) }) {
			return
		}
		tested[folder] = tested[folder] || strings.HasSuffix(name, "_test.go")
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, content, 0)
		if err != nil {
			t.Error(err)
			return
		}
		if at := sideBySide(file); at != token.NoPos {
			beside[folder] = files.Position(at).String()
		}
	})
	var want []string
	for folder, is := range tested {
		if is && beside[folder] == "" {
			want = append(want, "./"+folder)
		}
	}
	slices.Sort(want)
	got := strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " "))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ALONE is not the sorted list of packages in which nothing runs side by side (-want +got):\n%s", diff)
		for _, folder := range got {
			if at := beside[strings.TrimPrefix(folder, "./")]; at != "" {
				t.Errorf("code runs side by side at %s", at)
			}
		}
	}
}

// sideBySide returns where a file starts a goroutine, or makes another package start one that runs its code.
func sideBySide(file *ast.File) (at token.Pos) {
	for _, spec := range file.Imports {
		switch strings.Trim(spec.Path.Value, `"`) {
		case "net/http", "net/http/httptest", "testing/synctest", "google.golang.org/grpc", "golang.org/x/sync/errgroup", "go.opentelemetry.io/collector/receiver/receivertest":
			return spec.Pos()
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GoStmt:
			at = n.Pos()
		case *ast.CallExpr:
			called, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				break
			}
			switch called.Sel.Name {
			case "Go", "AfterFunc", "Parallel", "RunParallel":
				at = n.Pos()
			case "Start": // of a component, with a context and its host; a process needs none
				if len(n.Args) > 0 {
					at = n.Pos()
				}
			}
		}
		return at == token.NoPos
	})
	return at
}

func TestSideBySide(t *testing.T) {
	for code, want := range map[string]bool{
		"func f() { go f() }":                       true,
		"func f(t *testing.T) { t.Parallel() }":     true,
		"func f(w sync.WaitGroup) { w.Go(g) }":      true,
		"import \"net/http\"":                       true,
		"func f() { component.Start(ctx, host) }":   true,
		"func f() { cmd.Start(); g(row.Start) }":    false,
		"func f() { defer f(); select {} }":         false,
		"import \"sync\"\nvar once = sync.OnceFunc": false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "f.go", "package p\n"+code, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := sideBySide(file) != token.NoPos; got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
}
