// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGraphFields: the waits of a row are read as they are written, an empty list differs from none, and invalid ones are refused.
func TestGraphFields(t *testing.T) {
	const row = `{"input_length": 1, "delay": 2, "tool_wait_ms": 3.5, "wait_for": ["a", "b"], "wait_evidence": ["tool_call", "parent"], "request_id": "c"}`
	r, err := ParseRow([]byte(row))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(AppendRow(nil, r)); got != row {
		t.Errorf("written %s", got)
	}
	for line, want := range map[string][]string{
		`{"input_length": 1, "wait_for": []}`:   {},
		`{"input_length": 1, "wait_for": null}`: nil,
		`{"input_length": 1}`:                   nil,
	} {
		if r, err := ParseRow([]byte(line)); err != nil || cmp.Diff(want, r.WaitFor) != "" {
			t.Errorf("%s: %v, %v", line, r, err)
		}
	}
	for fields, want := range map[string]string{
		`"wait_for": "a"`:                                                        "wait_for: a string: must be an array",
		`"wait_for": [1]`:                                                        "wait_for: element 0: is not a string",
		`"wait_for": ["a", ""]`:                                                  "wait_for: element 1: is empty",
		`"wait_for": ["a", "c"], "request_id": "c"`:                              "names the row itself",
		`"wait_for": ["a"], "wait_evidence": []`:                                 "wait_evidence: has 0 elements, and wait_for has 1",
		`"wait_for": ["a"], "wait_evidence": ["hunch"]`:                          "is none of time, session, parent, tool_call and link",
		`"tool_wait_ms": -1`:                                                     "tool_wait_ms: -1: must be a finite number",
		`"wait_for": ["a"` + strings.Repeat(`,"a"`, MaxWaitFor) + `]`:            "has more than 1024 elements; leave out rows",
		`"wait_evidence": ["time"` + strings.Repeat(`,"time"`, MaxWaitFor) + `]`: "has more than 1024 elements; give one for each row",
	} {
		if _, err := ParseRow([]byte(`{"input_length": 1, ` + fields + `}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", fields, err, want)
		}
	}
}
