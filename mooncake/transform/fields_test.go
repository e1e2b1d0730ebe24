// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// TestEveryFieldIsKept: rows wait between two passes in a form of their own, which must have a place for each of their fields, also for one
// that is added to rows later.
func TestEveryFieldIsKept(t *testing.T) {
	empty := pack(nil, &item{Row: new(mooncake.Row)})
	for _, field := range reflect.VisibleFields(reflect.TypeFor[mooncake.Row]()) {
		row := new(mooncake.Row)
		fill(reflect.ValueOf(row).Elem().FieldByIndex(field.Index))
		if bytes.Equal(pack(nil, &item{Row: row}), empty) {
			t.Errorf("%s is lost between two passes: it belongs into pack and unpack", field.Name)
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
