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
	got := listIn(t, makefile, "ALONE")
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

// TestReduced: the Makefile names exactly the tests that do less with -short, in the packages that run twice. Only these run a second time,
// without the race detector. All others did the same work under it.
func TestReduced(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repositoryRoot(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	twice := listIn(t, makefile, "TWICE")
	functions := map[string]map[string]*ast.FuncDecl{} // of the tests of a folder, by name
	eachGoFile(t, func(name string, content []byte) {
		folder := "./" + path.Dir(name)
		if !strings.HasSuffix(name, "_test.go") || !slices.Contains(twice, folder) {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, content, 0)
		if err != nil {
			t.Error(err)
			return
		}
		if functions[folder] == nil {
			functions[folder] = map[string]*ast.FuncDecl{}
		}
		addFunctions(functions[folder], file)
	})
	var want []string
	for _, folder := range twice {
		reduced := reducedTests(functions[folder])
		if len(reduced) == 0 {
			t.Errorf("%s: no test does less with -short, so it need not run twice", folder)
		}
		want = append(want, reduced...)
	}
	slices.Sort(want)
	if diff := cmp.Diff(slices.Compact(want), listIn(t, makefile, "REDUCED")); diff != "" {
		t.Errorf("REDUCED is not the sorted list of tests that do less with -short (-want +got):\n%s", diff)
	}
}

// addFunctions adds the functions and methods of a file. Two of one name become one that calls what both call.
func addFunctions(functions map[string]*ast.FuncDecl, file *ast.File) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		if before := functions[f.Name.Name]; before != nil {
			f.Body.List = append(f.Body.List, before.Body.List...)
		}
		functions[f.Name.Name] = f
	}
}

// reducedTests returns the tests, fuzz targets and examples that call testing.Short, or name a function that does, directly or not.
func reducedTests(functions map[string]*ast.FuncDecl) (reduced []string) {
	less := map[string]bool{}
	for before := -1; before < len(less); {
		before = len(less)
		for name, f := range functions {
			ast.Inspect(f.Body, func(node ast.Node) bool {
				switch n := node.(type) {
				case *ast.SelectorExpr:
					if of, ok := n.X.(*ast.Ident); ok && of.Name == "testing" && n.Sel.Name == "Short" {
						less[name] = true
					}
				case *ast.Ident:
					if less[n.Name] {
						less[name] = true
					}
				}
				return !less[name]
			})
		}
	}
	for name := range less {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") {
			reduced = append(reduced, name)
		}
	}
	return reduced
}

func TestReducedTests(t *testing.T) {
	functions := map[string]*ast.FuncDecl{}
	for _, code := range []string{
		"func few(n int) int { if testing.Short() { return 1 }; return n }\nfunc TestA(t *testing.T) { few(3) }",
		"func through() { few(2) }\nfunc TestB(t *testing.T) { t.Run(\"x\", func(t *testing.T) { through() }) }\nfunc FuzzC(f *testing.F) { testing.Short() }",
		"func TestD(t *testing.T) { other.Short() }\nfunc TestE(t *testing.T) { x.run() }\nfunc (x y) run() { testing.Verbose() }",
		"func (x z) run() { few(1) }",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "f_test.go", "package p\n"+code, 0)
		if err != nil {
			t.Fatal(err)
		}
		addFunctions(functions, file)
	}
	got := reducedTests(functions)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"FuzzC", "TestA", "TestB", "TestE"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// listIn returns the words of a variable of the Makefile.
func listIn(t *testing.T, makefile []byte, variable string) []string {
	t.Helper()
	list := regexp.MustCompile(`(?m)^` + variable + ` := ((?:.*\\\n)*.*)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatalf("the Makefile has no list %s", variable)
	}
	return strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " "))
}
