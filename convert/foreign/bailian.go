// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"errors"
	"io"
	"strconv"

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

func (p *bailian) parse(line []byte) (*request, string, *mooncake.RowError) {
	var l bailianLine
	if err := json.Unmarshal(line, &l); err != nil {
		return nil, "", bailianFault(err)
	}
	at, e := number("timestamp", l.Timestamp, seconds)
	if e != nil {
		return nil, "", e
	}
	if !at.Set {
		return nil, "", &mooncake.RowError{Field: "timestamp", Rule: "is missing", Advice: "want seconds"}
	}
	row := new(mooncake.Row)
	if row.InputLength, e = number("input_length", l.Input, tokens); e != nil {
		return nil, "", e
	}
	if row.OutputLength, e = number("output_length", l.Output, tokens); e != nil {
		return nil, "", e
	}
	switch {
	case !row.InputLength.Set:
		return nil, "", &mooncake.RowError{Field: "input_length", Rule: "is missing"}
	case row.InputLength.V == 0:
		return nil, reasonNoPrompt, nil
	case len(l.HashIDs) > 0:
		row.HashIDs = l.HashIDs
	}
	if l.Type != nil {
		p.lost.value("type")
	}
	for name := range Keys(l.Rest) {
		p.lost.value(name)
	}
	q := &request{at: at.V, row: row}
	if l.Chat != nil {
		q.chat = mooncake.Some(*l.Chat)
	}
	if l.Parent != nil && *l.Parent >= 0 {
		q.parent = mooncake.Some(*l.Parent)
	}
	return q, "", nil
}

// number reads a JSON number by its text; null and nothing are no number.
func number(field string, v jsontext.Value, read func(string) (int64, error)) (mooncake.Opt[int64], *mooncake.RowError) {
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
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		rule := "must be an integer"
		field := string(e.JSONPointer)
		switch name := e.JSONPointer.LastToken(); {
		case field == "":
			return &mooncake.RowError{Rule: "the line must be a JSON object", Advice: "write one object on each line"}
		case e.JSONPointer.Contains("/type"), name == "type":
			rule = "must be a string"
		case name == "hash_ids":
			rule = "must be an array of integers"
		case len(field) > len("/hash_ids/") && field[:len("/hash_ids/")] == "/hash_ids/":
			return &mooncake.RowError{Field: "hash_ids", Value: "element " + clip(name), Rule: "must be an integer from 0 to 2^64-1"}
		}
		return &mooncake.RowError{Field: clip(field[1:]), Rule: rule}
	}
	out := &mooncake.RowError{Rule: "is not valid JSON"}
	switch e, ok := errors.AsType[*jsontext.SyntacticError](err); {
	case errors.Is(err, jsontext.ErrDuplicateName):
		out.Rule = "a key occurs twice in one object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		out.Rule, out.Advice = "the JSON object does not end on its line", "the file may be cut off, or an object may be spread over several lines"
	case ok:
		out.Rule = "is not valid JSON at byte " + strconv.FormatInt(e.ByteOffset+1, 10)
	}
	return out
}
