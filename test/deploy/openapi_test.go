// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"os"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
)

// TestOpenAPI validates the description of the agent's API with the schema of OpenAPI 3.1, and checks each reference in it.
func TestOpenAPI(t *testing.T) {
	content, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if problems := problemsOf(t, content); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
	for fault, change := range map[string][2]string{
		"a misspelt member": {`"operationId": "listRuns"`, `"operationID": "listRuns"`},
		"a lost schema":     {`"#/components/schemas/Progress"`, `"#/components/schemas/Progres"`},
		"no answers":        {`"responses": {`, `"response": {`},
	} {
		broken := bytes.ReplaceAll(content, []byte(change[0]), []byte(change[1]))
		if bytes.Equal(broken, content) || len(problemsOf(t, broken)) == 0 {
			t.Errorf("%s is not found", fault)
		}
	}
}

func problemsOf(t *testing.T, content []byte) (problems []string) {
	t.Helper()
	document, err := libopenapi.NewDocument(content)
	if err != nil {
		return []string{err.Error()}
	}
	if _, err := document.BuildV3Model(); err != nil {
		return []string{err.Error()}
	}
	v, errs := validator.NewValidator(document)
	for _, err := range errs {
		problems = append(problems, err.Error())
	}
	if len(problems) > 0 {
		return problems
	}
	_, wrong := v.ValidateDocument()
	for _, w := range wrong {
		problems = append(problems, w.Message+": "+w.Reason)
	}
	return problems
}
