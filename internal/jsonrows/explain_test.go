// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package jsonrows

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
)

// TestExplain: both decoders' errors are explained alike, and an error of another kind is not touched.
func TestExplain(t *testing.T) {
	type result struct {
		Row   int64     `json:"row"`
		Start *float64  `json:"start"`
		Gaps  []float64 `json:"gaps"`
		Name  string    `json:"name"`
		Sent  bool      `json:"sent"`
		Small uint8     `json:"small"`
		Pair  [2]int    `json:"pair"`
	}
	type line struct {
		Result result `json:"result"`
	}
	for in, want := range map[string]string{
		`{"result":{"row":"x"}}`:         "result.row is a string; want an integer of 64 bits",
		`{"result":{"row":1.5}}`:         "result.row is 1.5; want an integer of 64 bits",
		`{"result":{"start":1e999}}`:     "result.start is 1e999; want a number up to 1.8e308",
		`{"result":{"gaps":{}}}`:         "result.gaps is an object; want an array",
		`{"result":{"name":["secret"]}}`: "result.name is an array; want a string",
		`{"result":{"sent":"secret"}}`:   "result.sent is a string; want true or false",
		`{"result":{"small":-1}}`:        "result.small is -1; want an integer of 8 bits, 0 or more",
		`{"result":{"pair":3}}`:          "result.pair is a number; want an array of 2 values",
		`{"result":[]}`:                  "result is an array; want an object",
		`[]`:                             "the value is an array; want an object",
	} {
		var one, two line
		if got := Explain(json.Unmarshal([]byte(in), &one)); got == nil || got.Error() != want {
			t.Errorf("%s: %v, want %s", in, got, want)
		}
		if got := Explain(jsonv2.Unmarshal([]byte(in), &two)); got == nil || got.Error() != want {
			t.Errorf("%s, with v2: %v, want %s", in, got, want)
		}
	}
	if got := Explain(jsonv2.Unmarshal([]byte(`{"result":{"name":"secret \ud800"}}`), new(line))); got == nil || got.Error() != "not valid JSON at byte 27" {
		t.Errorf("a surrogate alone: %v", got)
	}
	strict := json.NewDecoder(strings.NewReader(`{"rows":1}`))
	strict.DisallowUnknownFields()
	if got := Explain(strict.Decode(new(line))); got == nil || got.Error() != `unknown field "rows"` {
		t.Errorf("an unknown field: %v", got)
	}
	if other := errors.New("other"); !errors.Is(Explain(other), other) || Explain(nil) != nil {
		t.Error("an error of another kind was changed")
	}
}
