// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// document is the part of the description that these tests read.
type document struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas map[string]struct{ Properties map[string]json.RawMessage }
	}
}

func readDocument(t *testing.T) (d document) {
	t.Helper()
	content, err := describe("test", []Option{{Name: "speedup", Type: "number", Default: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestRoutesAreDescribed: each route is an operation of the description, with a token if the description requires one, and vice versa.
func TestRoutesAreDescribed(t *testing.T) {
	var described, served []string
	for path, operations := range readDocument(t).Paths {
		for method, operation := range operations {
			if method == "parameters" {
				continue
			}
			var o struct{ Security *[]any }
			if err := json.Unmarshal(operation, &o); err != nil {
				t.Fatal(err)
			}
			open := ""
			if o.Security != nil && len(*o.Security) == 0 {
				open = " open"
			}
			described = append(described, strings.ToUpper(method)+" "+path+open)
		}
	}
	for _, r := range (&Service{}).routes() {
		open := ""
		if r.open {
			open = " open"
		}
		served = append(served, r.method+" "+r.path+open)
	}
	slices.Sort(described)
	slices.Sort(served)
	if diff := cmp.Diff(described, served); diff != "" {
		t.Errorf("routes (-described +served):\n%s", diff)
	}
}

// TestSchemasAreTypes: the schemas have the members that answers have.
func TestSchemasAreTypes(t *testing.T) {
	schemas := readDocument(t).Components.Schemas
	for name, value := range map[string]any{"Run": Run{}, "Progress": Progress{}, "Quantiles": quantiles{}, "Problem": problem{}} {
		var members []string
		for field := range reflect.TypeOf(value).Fields() {
			member, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			members = append(members, member)
		}
		slices.Sort(members)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(schemas[name].Properties)), members); diff != "" {
			t.Errorf("%s (-described +type):\n%s", name, diff)
		}
	}
	if _, there := schemas["RunOptions"].Properties["speedup"]; !there {
		t.Error("an option is not described")
	}
}
