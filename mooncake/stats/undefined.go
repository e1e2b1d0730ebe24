// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// UndefinedFigures are the figures of a set that a trace does not have, by their names in JSON, with the reason. In JSON they are null, and
// listed under "undefined"; in Go they are zero.
type UndefinedFigures map[string]string

// add records why some figures have no value. The first reason is kept.
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

// marshal encodes a set of figures; plain is the same set with the default encoding.
func (u UndefinedFigures) marshal(plain any) ([]byte, error) {
	null := json.MarshalToFunc(func(to *jsontext.Encoder, _ any) error {
		if _, undefined := u[to.StackPointer().LastToken()]; undefined && to.StackDepth() == 1 {
			return to.WriteToken(jsontext.Null)
		}
		return errors.ErrUnsupported
	})
	return json.Marshal(plain, json.WithMarshalers(null), json.FormatNilSliceAsNull(true), json.Deterministic(true))
}
