// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// TestNamesAreSpelledOnce: every name of an attribute, event or metric is in package semconv. Other packages use the constants there, and
// no constant is unused. Imitations of foreign telemetry, in tests and in the packages for them, spell names as their producers do.
func TestNamesAreSpelledOnce(t *testing.T) {
	constants := map[string]string{} // from a name in telemetry to the name of its constant
	used := map[string]bool{}        // by constant
	type literal struct{ value, at string }
	var literals []literal
	eachGoFile(t, func(name string, content []byte) {
		folder, _, _ := strings.Cut(name, "/")
		switch {
		case strings.HasSuffix(name, "_test.go"), folder == "test", within(name, "internal/testproducers"), strings.Contains(name, "/internal/metadata"):
			return
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, content, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				return n.Tok != token.IMPORT
			case *ast.ValueSpec:
				if folder == "semconv" && len(n.Values) == 1 {
					note(constants, n.Names[0], n.Values[0])
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "semconv" {
					used[n.Sel.Name] = true
				}
			case *ast.BasicLit:
				if value, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && folder != "semconv" {
					literals = append(literals, literal{value, files.Position(n.Pos()).String()})
				}
			}
			return true
		})
	})
	if len(constants) < 100 || len(literals) < 1000 {
		t.Fatalf("%d names and %d literals: the test looks in the wrong place", len(constants), len(literals))
	}
	for _, l := range literals {
		if constant := constants[l.value]; constant != "" && strings.Contains(l.value, ".") {
			t.Errorf("%s: %q is semconv.%s", l.at, l.value, constant)
		}
	}
	for value, constant := range constants {
		if !used[constant] {
			t.Errorf("semconv.%s (%s) has no user", constant, value)
		}
	}
}

// note notes an exported constant, or the name of a metric.
func note(constants map[string]string, id *ast.Ident, value ast.Expr) {
	if !id.IsExported() {
		return
	}
	if metric, ok := value.(*ast.CompositeLit); ok && len(metric.Elts) > 0 {
		if pair, ok := metric.Elts[0].(*ast.KeyValueExpr); ok {
			value = pair.Value
		}
	}
	if lit, ok := value.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if text, err := strconv.Unquote(lit.Value); err == nil {
			constants[text] = id.Name
		}
	}
}
