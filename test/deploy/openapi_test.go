// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-openapi/jsonpointer"
	"github.com/pb33f/libopenapi/datamodel"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestOpenAPI validates the description of the service's API with the schema of OpenAPI 3.1, and checks each reference in it.
func TestOpenAPI(t *testing.T) {
	content, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	openapi := openAPI(t)
	if problems := problemsOf(openapi, content); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
	for fault, change := range map[string][2]string{
		"a misspelt member": {`"operationId": "listRuns"`, `"operationID": "listRuns"`},
		"a lost schema":     {`"#/components/schemas/Progress"`, `"#/components/schemas/Progres"`},
		"no answers":        {`"responses": {`, `"response": {`},
		"an unknown type":   {`"type": "string"`, `"type": "text"`},
	} {
		broken := bytes.ReplaceAll(content, []byte(change[0]), []byte(change[1]))
		if bytes.Equal(broken, content) || len(problemsOf(openapi, broken)) == 0 {
			t.Errorf("%s is not found", fault)
		}
	}
}

// openAPI returns the schema of OpenAPI 3.1, which is all that is needed of libopenapi: to compile its validator takes 150 s of CPU time.
// It does not say what is in a description's own schemas: those are JSON Schema.
func openAPI(t *testing.T) *jsonschema.Schema {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(datamodel.OpenAPI31SchemaData))
	if err != nil {
		t.Fatal(err)
	}
	const name = "openapi-3.1"
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(name, parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func problemsOf(openapi *jsonschema.Schema, content []byte) (problems []error) {
	const name = "openapi.json"
	description, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		return []error{err}
	}
	found := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	found(openapi.Validate(description))
	compiler := jsonschema.NewCompiler()
	found(compiler.AddResource(name, description))
	eachMember("", description, func(path, member string, value any) {
		ref, isText := value.(string)
		switch {
		case member == "$ref" && isText:
			pointer, err := jsonpointer.New(strings.TrimPrefix(ref, "#"))
			if err == nil {
				_, _, err = pointer.Get(description)
			}
			if err != nil {
				found(fmt.Errorf("%s: %w", path, err))
			}
		case member == "schema", strings.HasPrefix(path, "/components/schemas/") && strings.Count(path, "/") == 3:
			_, err := compiler.Compile(name + "#" + path)
			found(err)
		}
	})
	return problems
}

// eachMember calls visit for each member of an object in a JSON value, with its JSON pointer.
func eachMember(at string, value any, visit func(path, member string, value any)) {
	switch value := value.(type) {
	case map[string]any:
		for member, value := range value {
			path := at + "/" + jsonpointer.Escape(member)
			visit(path, member, value)
			eachMember(path, value, visit)
		}
	case []any:
		for i, element := range value {
			eachMember(fmt.Sprintf("%s/%d", at, i), element, visit)
		}
	}
}
