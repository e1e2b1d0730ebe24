// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRules(t *testing.T) {
	row := func(ts float64, n int64, ids ...uint64) *Row {
		return &Row{Timestamp: Some(ts), InputLength: Some(n), OutputLength: Some[int64](1), HashIDs: ids}
	}
	type found struct {
		Rule        Rule
		Count, Line int64
	}
	for name, test := range map[string]struct {
		rows []*Row
		want []found
	}{
		"all rules kept": {[]*Row{row(0, 600, 0, 1), row(0, 1025, 0, 2, 3), row(5, 1024, 0, 2)}, nil},
		"V1: no ids, no output; half a millisecond is a time like any other": {
			[]*Row{row(0.5, 512, 0), {Timestamp: Some(1.), InputLength: Some[int64](5), OutputLength: Some[int64](5)}, {Timestamp: Some(2.), InputLength: Some[int64](5), HashIDs: []uint64{1}}},
			[]found{{V1, 2, 2}},
		},
		"V2: rows earlier than the row before": {[]*Row{row(5, 512, 0), row(3, 512, 0), row(4, 512, 0), row(1, 512, 0)}, []found{{V2, 2, 2}}},
		"V3: too few and too many":             {[]*Row{row(0, 513, 0), row(0, 512, 0, 1)}, []found{{V3, 2, 1}}},
		"V4 implies V5, but not V7": {
			[]*Row{row(0, 1536, 0, 1, 0)}, []found{{V4, 1, 1}, {V5, 1, 1}},
		},
		"V5: a second parent, a root after another id, an inner id as a root": {
			[]*Row{row(0, 1024, 0, 1), row(0, 1024, 2, 1), row(0, 1024, 1, 2)}, []found{{V5, 2, 2}},
		},
		"V6: two fills, inner after partial, partial after inner": {
			[]*Row{row(0, 100, 0), row(0, 101, 0), row(0, 1024, 1, 2), row(0, 100, 1), row(0, 600, 3, 4), row(0, 1536, 3, 4, 5)},
			[]found{{V6, 3, 2}},
		},
		"V7: first id is not 0":      {[]*Row{row(0, 512, 1), row(0, 512, 1)}, []found{{V7, 1, 1}}},
		"V7: two ids swapped":        {[]*Row{row(0, 512, 0), row(0, 512, 2), row(0, 512, 1)}, []found{{V7, 2, 2}}},
		"V8: the 32nd bit":           {[]*Row{row(0, 512, 1<<31), row(0, 512, 1<<31-1)}, []found{{V7, 2, 1}, {V8, 1, 1}}},
		"V8: digits lost":            {[]*Row{row(0, 512, 1<<53)}, []found{{V7, 1, 1}, {V8, 1, 1}}},
		"a last block that is full":  {[]*Row{row(0, 512, 0), row(0, 600, 0, 1)}, nil},
		"a row with a text":          {[]*Row{{TextInput: Some("x")}}, []found{{V1, 1, 1}}},
		"rows in epoch milliseconds": {[]*Row{row(1.766e12, 512, 0), row(1.766e12+1, 512, 0)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewChecker(CheckOptions{})
			for i, r := range test.rows {
				c.Add(r, int64(i+1))
			}
			var got []found
			for _, v := range c.Violations() {
				got = append(got, found{v.Rule, v.Count, v.Line})
				if v.Rule == V8 && strings.Contains(v.Text, "JavaScript") != (name == "V8: digits lost") {
					t.Errorf("text %q", v.Text)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckerBeyondItsBound(t *testing.T) {
	c := NewChecker(CheckOptions{MaxIDs: 2})
	for i, r := range toyRows() {
		c.Add(r, int64(i+1))
	}
	if c.Unchecked() == "" || c.Forest().Len() != 0 {
		t.Error("five ids were remembered, the bound is two")
	}
}
