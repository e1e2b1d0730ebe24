// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"reflect"
	"slices"
	"testing"
)

// Shards with different options are refused. Only options that do not affect the result may differ.
func TestShardsHaveEqualOptions(t *testing.T) {
	free := []string{"Memory", "TempDir", "Progress"}
	none := keyOf(&Options{}, 2, nil)
	options := reflect.TypeFor[Options]()
	for i := range options.NumField() {
		var opt Options
		field := reflect.ValueOf(&opt).Elem().Field(i)
		switch field.Kind() {
		case reflect.String:
			field.SetString("another")
		case reflect.Int:
			field.SetInt(7)
		case reflect.Slice:
			continue // Before and After: CompileShard refuses them
		case reflect.Func:
			field.Set(reflect.MakeFunc(field.Type(), nil))
		default:
			t.Fatalf("%s: give it another value here", options.Field(i).Name)
		}
		differs := keyOf(&opt, 2, nil) != none
		if name := options.Field(i).Name; differs == slices.Contains(free, name) {
			t.Errorf("%s: shards with another value are refused: %t", name, differs)
		}
	}
}
