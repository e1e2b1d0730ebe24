// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package testschema

import "reflect"

// Fill sets a value, and all within it, to something other than its zero.
func Fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			Fill(field)
		}
	case reflect.Array:
		Fill(v.Index(0))
	case reflect.Slice:
		if v.Type().Elem() == reflect.TypeFor[byte]() {
			v.SetBytes([]byte("{}"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		Fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		Fill(key)
		Fill(value)
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
