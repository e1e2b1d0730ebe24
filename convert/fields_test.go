// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"reflect"
	"testing"

	"github.com/moonloop/moonloop/internal/testschema"
	"github.com/moonloop/moonloop/mooncake"
)

// TestEveryFieldHasItsTools: each field of a row can be left out for tools that do not have it. The test also finds fields that are added to
// rows later.
func TestEveryFieldHasItsTools(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[mooncake.Row]()) {
		if field.Name == "InputLength" || field.Name == "Foreign" { // every tool has InputLength, and Foreign is left out key by key
			continue
		}
		row := new(mooncake.Row)
		testschema.Fill(reflect.ValueOf(row).Elem().FieldByIndex(field.Index))
		known := false
		for _, f := range rowFields {
			if f.has(row) {
				known = true
				f.drop(row)
			}
		}
		if v := reflect.ValueOf(row).Elem().FieldByIndex(field.Index); !known || !v.IsZero() {
			t.Errorf("%s is written for every tool: it belongs in rowFields", field.Name)
		}
	}
}
