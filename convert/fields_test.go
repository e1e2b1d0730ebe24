// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"reflect"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// TestEveryFieldHasItsTools: each field of a row can be left out for tools that do not have it, also one that is added to rows later.
func TestEveryFieldHasItsTools(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[mooncake.Row]()) {
		if field.Name == "InputLength" || field.Name == "Foreign" { // every tool has the one, and the other goes by its keys
			continue
		}
		row := new(mooncake.Row)
		fill(reflect.ValueOf(row).Elem().FieldByIndex(field.Index))
		known := false
		for _, f := range rowFields {
			if f.has(row) {
				known = true
				f.drop(row)
			}
		}
		if v := reflect.ValueOf(row).Elem().FieldByIndex(field.Index); !known || !v.IsZero() {
			t.Errorf("%s is written for every tool: it belongs into rowFields", field.Name)
		}
	}
}

// fill sets a value, and all within it, to something other than its zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Array:
		fill(v.Index(0))
	case reflect.Slice:
		if v.Type().Elem() == reflect.TypeFor[byte]() {
			v.SetBytes([]byte("{}"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	default:
		v.SetUint(1)
	}
}
