// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/moonloop/moonloop/mooncake"
)

// TestClasses: rows and tokens are counted for each class, with the priority if all rows have the same, and further classes are counted
// together.
func TestClasses(t *testing.T) {
	row := func(class string, priority mooncake.Opt[int64]) *mooncake.Row {
		return &mooncake.Row{InputLength: mooncake.Some[int64](100), OutputLength: mooncake.Some[int64](7), Class: class, Priority: priority}
	}
	of := func(rows ...*mooncake.Row) []ClassStats {
		a := NewAnalyzer(AnalyzeOptions{})
		for i, r := range rows {
			a.Add(r, int64(i+1))
		}
		return a.Analysis().Classes
	}
	none, two := mooncake.Opt[int64]{}, mooncake.Some[int64](2)
	got := of(row("b", two), row("a", two), row("b", two), row("a", none), row("", none))
	want := []ClassStats{
		{Class: "", Rows: 1, InputTokens: 100, OutputTokens: 7},
		{Class: "a", Rows: 2, InputTokens: 200, OutputTokens: 14},
		{Class: "b", Rows: 2, InputTokens: 200, OutputTokens: 14, Priority: new(int64(2))},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(ClassStats{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if classes := of(row("", none), row("", two)); classes != nil {
		t.Errorf("classes of rows that name none: %v", classes)
	}
	var many []*mooncake.Row
	for i := range 1000 {
		many = append(many, row(fmt.Sprintf("class %d", i), none))
	}
	classes, rows := of(many...), int64(0)
	for _, c := range classes {
		rows += c.Rows
	}
	if len(classes) != MaxClasses+1 || rows != 1000 {
		t.Errorf("%d classes, %d rows", len(classes), rows)
	}
}
