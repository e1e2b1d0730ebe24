// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// This file prints the JSON Schemas of the files that the program writes: "moonloop help schema NAME".

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/mooncake"
)

// schemaTopic is the topic of help that prints a schema.
const schemaTopic = "schema"

// schemas are the available schemas, by name.
var schemas = map[string]func() string{"row": mooncake.RowSchema, "sidecar": mooncake.SidecarSchema, "summary": report.SummarySchema}

// schemaNamed returns the schema that the words after the topic name.
func schemaNamed(args []string) (string, error) {
	if len(args) != 1 || schemas[args[0]] == nil {
		return "", hintError{errors.New("help schema: want the name of one schema"), "name one: " + strings.Join(slices.Sorted(maps.Keys(schemas)), ", ")}
	}
	return schemas[args[0]](), nil
}
