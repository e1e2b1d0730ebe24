// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/component"

	"github.com/moonloop/moonloop/exporter"
	"github.com/moonloop/moonloop/receiver"
)

// TestCaptureAdvice: what a capture says, in its own words or in those of the components within, its user can do. A flag that
// it names is there, and where it names a setting of a Collector, which a capture does not have, it names the flag, too.
func TestCaptureAdvice(t *testing.T) {
	// Not said by a capture: it always gives a key, drops content, has a pipeline of traces and no queue, and checks these settings
	// itself, in the words of its flags (TestCaptureSettings).
	unsaid := regexp.MustCompile(`^(hash_key is empty|content is keep|no pipeline of traces|sending_queue without|((admission|rotation)::)?[a-z_]+:? is %|` +
		`(block_size|session_keys\[%d\]|deny\[%d\]|prompt_order\[%d\]|prompt_order|content|deny|hash_key): )`)
	settings := map[string]bool{}
	for _, f := range []component.Factory{receiver.NewFactory(), exporter.NewFactory()} {
		settingsOf(reflect.TypeOf(f.CreateDefaultConfig()), settings)
	}
	if !settings["request_limit_mib"] || !settings["retry_on_failure"] {
		t.Fatalf("settings %v are not those of the components", settings)
	}
	flags := map[string]map[string]bool{}
	for _, cmd := range newRootCommand().Commands() {
		names := map[string]bool{"help": true}
		for word := range strings.FieldsSeq(cmd.LocalFlags().FlagUsages()) {
			names[strings.Trim(word, ",()")] = true
		}
		flags[cmd.Name()] = names
	}
	flag, word := regexp.MustCompile(`--[a-z][a-z-]+`), regexp.MustCompile(`[a-z]+(_[a-z]+)+`)
	seen := 0
	for _, pattern := range []string{
		"capture*.go", "outputs.go", "report.go", "traceflags.go", "annotation.go", "../../collect/*.go", "../../receiver/*.go", "../../receiver/annotate/*.go", "../../receiver/internal/admission/*.go",
		"../../exporter/*.go", "../../exporter/segment/*.go", "../../capture/*.go",
	} {
		for _, text := range literals(t, pattern) {
			if unsaid.MatchString(text) {
				continue
			}
			advised := flag.FindAllString(text, -1)
			for _, name := range advised {
				seen++
				known := flags["capture"][name]
				for command, names := range flags {
					known = known || strings.Contains(text, "moonloop "+command) && names[name]
				}
				if !known {
					t.Errorf("%q: moonloop capture has no %s", text, name)
				}
			}
			for _, name := range word.FindAllString(text, -1) {
				if settings[name] && strings.Contains(text, " ") && len(advised) == 0 {
					t.Errorf("%q: %s is a setting of a Collector: name the flag of moonloop capture", text, name)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d flags are named: the texts were not found", seen)
	}
}

// settingsOf adds the names of a configuration's settings.
func settingsOf(typ reflect.Type, to map[string]bool) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct {
		return
	}
	for field := range typ.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("mapstructure"), ","); name != "" {
			to[name] = true
		}
		if field.IsExported() && strings.Contains(typ.PkgPath(), "moonloop") {
			settingsOf(field.Type, to)
		}
	}
}

// literals returns the texts of Go files, those that are put together of constant parts as one. Tests, and what mdatagen makes,
// are left out.
func literals(t *testing.T, pattern string) (texts []string) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: no files (%v)", pattern, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				return n.Tag == nil
			case *ast.BinaryExpr:
				if text, whole := joined(n); text != "" {
					texts = append(texts, text)
					return !whole
				}
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					texts = append(texts, text)
				}
			}
			return true
		})
	}
	return texts
}

// joined returns the text of literals that are added up; whole is whether nothing else is among them.
func joined(e ast.Expr) (text string, whole bool) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		a, wholeA := joined(e.X)
		b, wholeB := joined(e.Y)
		return a + b, wholeA && wholeB
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	}
	return "", false
}
