// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	_ "embed" // openapi.json
	"encoding/json"
	"fmt"
)

// description is the API in OpenAPI 3.1, without its version and the options of a run.
//
//go:embed openapi.json
var description []byte

// Option is a member of the JSON object that asks for a run.
type Option struct {
	Name, About string
	Type        string   // of JSON
	Words       []string // all valid values; nil if they cannot be listed
	Default     any      // nil: no fixed default
}

// describe returns the description of the API with these options.
func describe(version string, options []Option) ([]byte, error) {
	var doc map[string]any
	if err := json.Unmarshal(description, &doc); err != nil {
		return nil, fmt.Errorf("openapi.json: %w", err)
	}
	in := func(names ...string) map[string]any {
		at := doc
		for _, name := range names {
			at, _ = at[name].(map[string]any)
		}
		return at
	}
	in("info")["version"] = version
	properties := in("components", "schemas", "RunOptions", "properties")
	for _, o := range options {
		property := map[string]any{"type": o.Type, "description": o.About}
		if o.Words != nil {
			property["enum"] = o.Words
		}
		if o.Default != nil {
			property["default"] = o.Default
		}
		properties[o.Name] = property
	}
	content, err := json.MarshalIndent(doc, "", "  ")
	return append(content, '\n'), err
}
