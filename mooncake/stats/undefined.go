// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// UndefinedFigures are the figures of a set that have no value for a trace, by their names in JSON, and why. In JSON they are
// null there, and stand under "undefined"; in Go they are zero.
type UndefinedFigures map[string]string

// add notes why some figures have no value. The first reason stays.
func (u *UndefinedFigures) add(why string, names ...string) {
	if *u == nil {
		*u = UndefinedFigures{}
	}
	for _, name := range names {
		if _, known := (*u)[name]; !known {
			(*u)[name] = why
		}
	}
}

// marshal encodes a set of figures, plain of which is one that encodes itself by its fields.
func (u UndefinedFigures) marshal(plain any) ([]byte, error) {
	null := json.MarshalToFunc(func(to *jsontext.Encoder, _ any) error {
		if _, undefined := u[to.StackPointer().LastToken()]; undefined && to.StackDepth() == 1 {
			return to.WriteToken(jsontext.Null)
		}
		return errors.ErrUnsupported
	})
	return json.Marshal(plain, json.WithMarshalers(null), json.FormatNilSliceAsNull(true), json.Deterministic(true))
}
