// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// shape is the form of names that the general conventions allow.
var shape = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)

// units in UCUM that are used here.
var units = []string{
	"s", "By", "1", "{token}", "{request}", "{row}", "{chunk}", "{block}", "{span}", "{event}", "{hiccup}", "{pause}", "{goroutine}", "{run}", "{verdict}", "{value}",
}

// declared returns the string constants of the package, and the metrics with the literals of their fields.
func declared(t *testing.T) (constants map[string]string, metrics map[string]map[string]string) {
	t.Helper()
	constants, metrics = make(map[string]string), make(map[string]map[string]string)
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok {
				t.Errorf("%s: func %s: this package has no logic", name, f.Name)
			}
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			switch v := spec.Values[0].(type) {
			case *ast.BasicLit:
				constants[spec.Names[0].Name] = unquote(v)
			case *ast.CompositeLit:
				if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "Metric" {
					return true
				}
				fields := make(map[string]string)
				for _, e := range v.Elts {
					kv := e.(*ast.KeyValueExpr)
					if lit, ok := kv.Value.(*ast.BasicLit); ok {
						fields[kv.Key.(*ast.Ident).Name] = unquote(lit)
					}
				}
				metrics[spec.Names[0].Name] = fields
			}
			return true
		})
	}
	return constants, metrics
}

func unquote(l *ast.BasicLit) string {
	s, _ := strconv.Unquote(l.Value)
	return s
}

func TestNames(t *testing.T) {
	constants, metrics := declared(t)
	if len(constants) < 80 || len(metrics) < 20 {
		t.Fatalf("found %d constants and %d metrics: the test looks in the wrong place", len(constants), len(metrics))
	}
	byName := make(map[string]string)
	for id, name := range constants {
		if name == ProviderOther { // also ErrorOther
			continue
		}
		if !shape.MatchString(name) {
			t.Errorf("%s = %q is not a name of the conventions", id, name)
		}
		if !strings.Contains(name, ".") {
			continue // a value; values of different attributes may be equal
		}
		if other := byName[name]; other != "" {
			t.Errorf("%s and %s are both %q", id, other, name)
		}
		byName[name] = id
	}
	byName = make(map[string]string)
	for id, m := range metrics {
		if !shape.MatchString(m["Name"]) || m["Description"] == "" || !slices.Contains(units, m["Unit"]) {
			t.Errorf("%s: %q, unit %q, description %q", id, m["Name"], m["Unit"], m["Description"])
		}
		if other := byName[m["Name"]]; other != "" {
			t.Errorf("%s and %s are both %q", id, other, m["Name"])
		}
		byName[m["Name"]] = id
	}
}

func TestBoundariesAscend(t *testing.T) {
	for _, m := range []Metric{
		ClientOperationDuration, ClientTokenUsage, ClientTimeToFirstChunk, ClientTimePerOutputChunk,
		LatencyTTFT, LatencyRequest, ScheduleLatenessSeconds, QueueDuration, PromptTokenError,
	} {
		if len(m.Boundaries) == 0 || !slices.IsSorted(m.Boundaries) || len(slices.Compact(slices.Clone(m.Boundaries))) != len(m.Boundaries) {
			t.Errorf("%s: boundaries %v", m.Name, m.Boundaries)
		}
	}
	// The conventions' lists, v1.41: each is the one before times 2 or 4.
	for i, v := range ClientOperationDuration.Boundaries {
		if want := 0.01 * float64(int(1)<<i); v != want || len(ClientOperationDuration.Boundaries) != 14 {
			t.Errorf("operation duration: boundary %d is %v, want %v", i, v, want)
		}
	}
	for i, v := range ClientTokenUsage.Boundaries {
		if want := float64(int(1) << (2 * i)); v != want || len(ClientTokenUsage.Boundaries) != 14 {
			t.Errorf("token usage: boundary %d is %v, want %v", i, v, want)
		}
	}
}

// TestContract: the package comment is the contract, so every name of this project in it is a constant, and it has every attribute of
// spans.
func TestContract(t *testing.T) {
	inContract, inSpans := namesIn(t, "doc.go"), namesIn(t, "mooncake.go")
	constants, _ := declared(t)
	known := slices.Collect(maps.Values(constants))
	for _, name := range inContract {
		if name != "mooncake.latency" && !slices.Contains(known, name) { // a prefix of metrics
			t.Errorf("the package comment names %s, which is not a constant", name)
		}
	}
	for _, name := range inSpans {
		if !slices.Contains(inContract, name) {
			t.Errorf("the package comment lacks %s", name)
		}
	}
}

// namesIn returns the names of this project in a file.
func namesIn(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`mooncake\.[a-z_]+(\.[a-z_]+)*`).FindAllString(string(text), -1)
}
