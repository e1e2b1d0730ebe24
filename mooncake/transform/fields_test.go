// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/moonloop/moonloop/internal/testschema"
	"github.com/moonloop/moonloop/mooncake"
)

// TestEveryFieldIsKept: between two passes, rows have a packed form that must have all of their fields, also a field that is added to rows
// later.
func TestEveryFieldIsKept(t *testing.T) {
	empty := pack(nil, &item{Row: new(mooncake.Row)})
	for _, field := range reflect.VisibleFields(reflect.TypeFor[mooncake.Row]()) {
		row := new(mooncake.Row)
		testschema.Fill(reflect.ValueOf(row).Elem().FieldByIndex(field.Index))
		if bytes.Equal(pack(nil, &item{Row: row}), empty) {
			t.Errorf("%s is lost between two passes: it belongs into pack and unpack", field.Name)
		}
	}
}
