// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"bytes"
	"encoding/json"

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
	all, err := json.Marshal(plain)
	if err != nil || len(u) == 0 {
		return all, err
	}
	var out bytes.Buffer
	in, to := jsontext.NewDecoder(bytes.NewReader(all)), jsontext.NewEncoder(&out)
	for {
		token, err := in.ReadToken()
		if err != nil {
			break // the end: what was just encoded can be read
		}
		name := token.String()
		if err := to.WriteToken(token); err != nil {
			return nil, err
		}
		if _, undefined := u[name]; undefined && in.StackDepth() == 1 && token.Kind() == '"' {
			if err := in.SkipValue(); err != nil {
				return nil, err
			}
			if err := to.WriteToken(jsontext.Null); err != nil {
				return nil, err
			}
		}
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
