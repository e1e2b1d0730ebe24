// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package jsonrows

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Explain says which field of a file has the wrong kind of value, and which kind is wanted, if that is the error of a JSON decoder. The
// decoders' own texts name types of Go, which a user does not know, and may quote a prompt. The error of an unknown field is returned
// without the decoder's name. Other errors are returned unchanged.
func Explain(err error) error {
	var field, value string
	var want reflect.Type
	if e, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
		field = strings.ReplaceAll(strings.TrimPrefix(string(e.JSONPointer), "/"), "/", ".")
		value, want = e.JSONKind.String(), e.GoType
		if e.JSONKind == jsontext.KindNumber && len(e.JSONValue) > 0 {
			value = string(e.JSONValue)
		}
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // also the cause of a SemanticError, if a type decodes itself
		field, value, want = cmp.Or(field, e.Field), strings.TrimPrefix(e.Value, "number "), e.Type
	}
	if want != nil {
		return fmt.Errorf("%s is %s; want %s", cmp.Or(field, "the value"), nameOfKind(value), wanted(want))
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Errorf("not valid JSON at byte %d", e.ByteOffset+1)
	}
	if err != nil && strings.HasPrefix(err.Error(), "json: unknown field ") { // this error has no type
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return err
}

// nameOfKind returns the name of a kind of value, which may be its first byte, with its article. A number is returned unchanged.
func nameOfKind(value string) string {
	switch value {
	case "string", "number":
		return "a " + value
	case "array", "[", "]":
		return "an array"
	case "object", "{", "}":
		return "an object"
	case "bool":
		return "true or false"
	}
	return value
}

// wanted describes the values of a type.
func wanted(t reflect.Type) string {
	switch k := t.Kind(); {
	case k == reflect.Pointer:
		return wanted(t.Elem())
	case k == reflect.Bool:
		return "true or false"
	case k <= reflect.Int64:
		return fmt.Sprintf("an integer of %d bits", t.Bits())
	case k <= reflect.Uintptr:
		return fmt.Sprintf("an integer of %d bits, 0 or more", t.Bits())
	case k <= reflect.Float64:
		return "a number up to 1.8e308"
	case k == reflect.String:
		return "a string"
	case k == reflect.Slice:
		return "an array"
	case k == reflect.Array:
		return fmt.Sprintf("an array of %d values", t.Len())
	}
	return "an object"
}
