// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/mooncake"
)

// bailianBlock is the number of tokens of a block of Bailian's files.
const bailianBlock = 16

// bailian reads the files of qwen-bailian-usagetraces-anon.
type bailian struct {
	lost *losses
}

// bailianLine is a request. Numbers stay text until their digits have been read.
type bailianLine struct {
	Chat      *int64         `json:"chat_id"`
	Parent    *int64         `json:"parent_chat_id"` // -1: the chat begins here
	Timestamp jsontext.Value `json:"timestamp"`      // s
	Input     jsontext.Value `json:"input_length"`
	Output    jsontext.Value `json:"output_length"`
	Type      *string        `json:"type"` // text, search, image, file, ...
	Turn      *int64         `json:"turn"` // the parents say the same
	HashIDs   []uint64       `json:"hash_ids"`
	Rest      jsontext.Value `json:",embed"`
}

func (p *bailian) parse(line []byte) (*request, error) {
	var l bailianLine
	if err := json.Unmarshal(line, &l); err != nil {
		return nil, bailianFault(err)
	}
	var at mooncake.Opt[int64]
	row := new(mooncake.Row)
	for _, n := range []struct {
		field string
		from  jsontext.Value
		read  func(string) (int64, error)
		to    *mooncake.Opt[int64]
	}{
		{"timestamp", l.Timestamp, seconds, &at},
		{"input_length", l.Input, tokens, &row.InputLength},
		{"output_length", l.Output, tokens, &row.OutputLength},
	} {
		var err error
		if *n.to, err = number(n.field, n.from, n.read); err != nil {
			return nil, err
		}
	}
	switch {
	case !at.Set:
		return nil, &mooncake.RowError{Field: "timestamp", Rule: "is missing", Advice: "want seconds"}
	case !row.InputLength.Set:
		return nil, &mooncake.RowError{Field: "input_length", Rule: "is missing"}
	case row.InputLength.V == 0:
		return nil, reasonNoPrompt
	case len(l.HashIDs) > 0:
		row.HashIDs = l.HashIDs
	}
	if l.Type != nil {
		p.lost.value("type")
	}
	for name := range keys(l.Rest) {
		p.lost.value(name)
	}
	q := &request{at: at.V, row: row}
	if l.Chat != nil {
		q.chat = mooncake.Some(*l.Chat)
	}
	if l.Parent != nil && *l.Parent >= 0 {
		q.parent = mooncake.Some(*l.Parent)
	}
	return q, nil
}

// number reads a JSON number by its text; null and nothing are no number.
func number(field string, v jsontext.Value, read func(string) (int64, error)) (mooncake.Opt[int64], error) {
	switch v.Kind() {
	case jsontext.KindInvalid, 'n':
		return mooncake.Opt[int64]{}, nil
	case '0':
	default:
		return mooncake.Opt[int64]{}, &mooncake.RowError{Field: field, Rule: errNoNumber.Error()}
	}
	n, err := read(string(v))
	if err != nil {
		return mooncake.Opt[int64]{}, &mooncake.RowError{Field: field, Value: shown(string(v)), Rule: err.Error()}
	}
	return mooncake.Some(n), nil
}

// bailianFault says what is wrong with a line, without repeating it.
func bailianFault(err error) *mooncake.RowError {
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return jsonFault(err)
	}
	field, element, _ := strings.Cut(strings.TrimPrefix(string(e.JSONPointer), "/"), "/")
	switch {
	case field == "":
		return noObject()
	case field == "hash_ids" && element != "":
		return &mooncake.RowError{Field: field, Value: "element " + clip(element), Rule: "must be an integer from 0 to 2^64-1"}
	case field == "hash_ids":
		return &mooncake.RowError{Field: field, Rule: "must be an array of integers"}
	case field == "type":
		return &mooncake.RowError{Field: field, Rule: "must be a string"}
	}
	return &mooncake.RowError{Field: clip(field), Rule: "must be an integer"}
}
