// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package testschema generates the JSON Schemas of the files that this module writes, from the Go types of their content, for the tests
// that keep the schemas up to date, and validates files with them. The comments of the types' fields are the descriptions, so a schema says
// what the code says. The package also fills values, for tests that check that no field of a type is forgotten. It is only for tests: the
// program itself only prints the finished schema files.
package testschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
)

// Draft is the version of JSON Schema.
const Draft = "https://json-schema.org/draft/2020-12/schema"

// module is the path of the module, before that of each of its packages.
const module = "github.com/moonloop/moonloop/"

// Of returns the schema of what encoding/json writes for a type, with descriptions. known has the schemas of types that marshal themselves.
func Of(t testing.TB, of reflect.Type, known map[reflect.Type]*jsonschema.Schema) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.ForType(of, &jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		t.Fatal(err)
	}
	explain(t, s, of)
	return open(s)
}

// Words returns the schema of a string that must be one of these words.
func Words(words ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return s
}

// open lets every object have further members, which readers ignore: a later version may add some.
func open(s *jsonschema.Schema) *jsonschema.Schema {
	walk(s, func(s *jsonschema.Schema) {
		if s.Properties != nil {
			s.AdditionalProperties = nil
		}
	})
	return s
}

// walk visits a schema and those inside it.
func walk(s *jsonschema.Schema, visit func(*jsonschema.Schema)) {
	if s == nil {
		return
	}
	visit(s)
	for _, p := range s.Properties {
		walk(p, visit)
	}
	for _, p := range s.Defs {
		walk(p, visit)
	}
	for _, p := range s.PrefixItems {
		walk(p, visit)
	}
	walk(s.Items, visit)
	walk(s.AdditionalProperties, visit)
}

// explain sets the descriptions of an object's members to the comments of its fields.
func explain(t testing.TB, s *jsonschema.Schema, of reflect.Type) {
	t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case s == nil:
	case of.Kind() == reflect.Slice || of.Kind() == reflect.Array:
		explain(t, s.Items, of.Elem())
	case of.Kind() == reflect.Map:
		explain(t, s.AdditionalProperties, of.Elem())
	case of.Kind() == reflect.Struct:
		for _, field := range reflect.VisibleFields(of) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			member := s.Properties[name]
			if member == nil || field.Anonymous {
				continue
			}
			owner := of
			if n := len(field.Index) - 1; n > 0 {
				owner = of.FieldByIndex(field.Index[:n]).Type
			}
			member.Description = Comment(t, owner, field.Name)
			explain(t, member, field.Type)
		}
	}
}

// parsed are the comments of packages that have been read: by package, type and field.
var parsed = map[string]map[string]string{}

// Comment returns the comment of a field of a type of this module.
func Comment(t testing.TB, owner reflect.Type, field string) string {
	t.Helper()
	local, ours := strings.CutPrefix(owner.PkgPath(), module)
	if !ours {
		return ""
	}
	if parsed[local] == nil {
		parsed[local] = comments(t, local)
	}
	return parsed[local][owner.Name()+"."+field]
}

// comments reads the comments of the fields of a package's structs.
func comments(t testing.TB, local string) map[string]string {
	t.Helper()
	root, err := filepath.Abs(".") // the folder of a tested package: with -trimpath, no path of a source file is known
	for err == nil && filepath.Dir(root) != root {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		root = filepath.Dir(root)
	}
	folder := filepath.Join(root, filepath.FromSlash(local))
	all := map[string]string{}
	files, globErr := fs.Glob(os.DirFS(folder), "*.go")
	if err := errors.Join(err, globErr); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			of, is := n.(*ast.TypeSpec)
			if !is {
				return true
			}
			fields, is := of.Type.(*ast.StructType)
			if !is {
				return true
			}
			for _, f := range fields.Fields.List {
				text := sentence(f.Doc.Text(), f.Comment.Text())
				for _, name := range f.Names {
					all[of.Name.Name+"."+name.Name] = text
				}
			}
			return true
		})
	}
	return all
}

// sentence returns a comment on one line, without the brackets of links.
func sentence(parts ...string) string {
	text := strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
	return strings.NewReplacer("[", "", "]", "").Replace(text)
}

// Fresh fails the test unless the file contains the schema. If update is set, it writes the file instead.
func Fresh(t testing.TB, file string, s *jsonschema.Schema, update bool) {
	t.Helper()
	s.Schema = Draft
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	if update {
		if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(file) //nolint:gosec // a file of the repository
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(have), text.String()); d != "" {
		t.Errorf("%s is not what the types say; run: go generate ./%s\n%s", path.Base(file), path.Dir(file), d)
	}
}

// Check validates a file with a schema as it is published, and returns the errors. With strict, members that the schema does not name
// are errors, too; strict is for files that this program wrote.
func Check(t testing.TB, schema string, strict bool, content []byte) error {
	t.Helper()
	return Checker(t, schema, strict)(content)
}

// Checker returns [Check] for many files of one schema.
func Checker(t testing.TB, schema string, strict bool) func(content []byte) error {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	if strict {
		walk(&s, func(s *jsonschema.Schema) {
			if s.Properties != nil {
				s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
			}
		})
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(content []byte) error {
		var value any
		if err := json.Unmarshal(content, &value); err != nil {
			t.Fatal(err)
		}
		return r.Validate(value)
	}
}
