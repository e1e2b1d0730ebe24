// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"
)

// TestInFlags: the name of a setting in an error becomes its flag's name, and nothing else changes.
func TestInFlags(t *testing.T) {
	root := newRootCommand()
	for _, tc := range []struct{ verb, err, want string }{
		{replayVerb, "first-token timeout -1s: below 0", "--first-token-timeout -1s: below 0"},
		{replayVerb, "look-ahead -1: below 0", "--lookahead -1: below 0"},
		{replayVerb, "warm-up requests -1: below 0", "--warmup-requests -1: below 0"},
		{replayVerb, "speed-up NaN: want a number", "--speedup NaN: want a number"},
		{replayVerb, "OTLP endpoint: want a URL", "--otlp-endpoint: want a URL"},
		{replayVerb, "max output length -1: below 0", "--max-output-length -1: below 0"},
		{replayVerb, "bytes of kept replies -1: below 0", "--carry-memory -1: below 0"},
		{replayVerb, "start -1s: below 0", "--start -1s: below 0"}, // and not --start-at
		{replayVerb, "trace: none given", "trace: none given"},
		{"generate", "think time: sigma 11", "--think: sigma 11"},
		{"generate", "longest input of 3 tokens: too short", "--max-input 3 tokens: too short"},
		{"transform", "conversations -1: must be 0 or more", "--first-conversations -1: must be 0 or more"},
		{"transform", "to-models [\"\"]: empty", "--to-model [\"\"]: empty"},
		{"transform", "sample-by \"x\": must be session", "--sample-by \"x\": must be session"},
		{"generate", "grid 1ns: want milliseconds", "--grid 1ns: want milliseconds"},
	} {
		verb, _, err := root.Find([]string{tc.verb})
		if err != nil {
			t.Fatal(err)
		}
		if got := inFlags(errors.New(tc.err), verb.Flags()); got.Error() != tc.want {
			t.Errorf("%s: %q becomes %q, want %q", tc.verb, tc.err, got, tc.want)
		}
	}
	if err := inFlags(nil, root.Flags()); err != nil {
		t.Error(err)
	}
}
