// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"encoding/json"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// figures encodes an analysis, and reads it as any program would.
func figures(t *testing.T, rows ...*mooncake.Row) map[string]any {
	t.Helper()
	b, err := json.Marshal(analyze(rows, AnalyzeOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return out
}

// TestUndefinedIsNull: a figure without a value is null with a reason, not 0; a figure with a value is present.
func TestUndefinedIsNull(t *testing.T) {
	row := func(ms float64, in int64, ids ...uint64) *mooncake.Row {
		return &mooncake.Row{Timestamp: mooncake.Some(ms), InputLength: mooncake.Some(in), OutputLength: mooncake.Some[int64](5), HashIDs: ids}
	}
	text := &mooncake.Row{TextInput: mooncake.Some("good morning")}
	many := make([]*mooncake.Row, 0, 12)
	for n := range uint64(12) {
		many = append(many, row(float64(n), 1000, 0, n+1))
	}
	for _, c := range []struct {
		name, set string
		rows      []*mooncake.Row
		null      []string
		there     []string
	}{
		{"no timestamps", "arrivals", []*mooncake.Row{text}, []string{"first_ms", "span_ms", "rate_per_second", "gap_mean_ms", "gap_cv", "distinct_timestamps", "grid"}, []string{"rows_without_timestamp"}},
		{"one row", "arrivals", []*mooncake.Row{row(5, 10, 1)}, []string{"rate_per_second", "gap_mean_ms", "gap_cv"}, []string{"first_ms", "span_ms", "distinct_timestamps"}},
		{"one instant", "arrivals", []*mooncake.Row{row(5, 10, 1), row(5, 10, 1)}, []string{"rate_per_second", "gap_cv"}, []string{"gap_mean_ms", "distinct_timestamps"}},
		{"two instants", "arrivals", []*mooncake.Row{row(5, 10, 1), row(6, 10, 1)}, nil, []string{"rate_per_second", "gap_mean_ms", "gap_cv", "grid"}},
		{"no lengths", "input_length", []*mooncake.Row{text}, []string{"mean", "min", "p99.9", "mode"}, []string{"rows"}},
		{"no outputs", "output_length", []*mooncake.Row{text}, []string{"sum", "mean"}, []string{"rows"}},
		{"no lengths", "blocks", []*mooncake.Row{text}, []string{"references", "per_row_mean", "distinct_ids", "trunk_ids", "top"}, []string{"forest"}},
		{"two parents", "blocks", []*mooncake.Row{row(0, 1000, 1, 2), row(1, 1000, 3, 2)}, []string{"distinct_ids", "roots", "depth", "trunk_ids"}, []string{"references"}},
		{"two parents", "sessions", []*mooncake.Row{row(0, 1000, 1, 2), row(1, 1000, 3, 2)}, []string{"inferred", "inferred_largest"}, []string{"session_ids"}},
		{"few rows", "blocks", many[:10], []string{"trunk_ids"}, []string{"distinct_ids", "roots"}},
		{"few rows", "sessions", many[:10], []string{"inferred", "inferred_with_one_row"}, nil},
		{"enough rows", "blocks", many, nil, []string{"trunk_ids"}},
		{"enough rows", "sessions", many, nil, []string{"inferred"}},
	} {
		t.Run(c.name+" "+c.set, func(t *testing.T) {
			set := figures(t, c.rows...)[c.set].(map[string]any)
			reasons, _ := set["undefined"].(map[string]any)
			for _, name := range c.null {
				value, there := set[name]
				if reason, _ := reasons[name].(string); !there || value != nil || reason == "" {
					t.Errorf("%s is %v (there: %t), undefined because %q: want null and a reason", name, value, there, reason)
				}
			}
			for _, name := range c.there {
				if value := set[name]; value == nil || reasons[name] != nil {
					t.Errorf("%s is %v, undefined because %v: want a value", name, value, reasons[name])
				}
			}
			if len(c.null) == 0 && reasons != nil {
				t.Errorf("undefined: %v", reasons)
			}
		})
	}
	caches := figures(t, text)["caches"].([]any)
	if rate, there := caches[0].(map[string]any)["token_hit_rate"]; !there || rate != nil {
		t.Errorf("a cache without requests has the hit rate %v, want null", rate)
	}
	if trunk := figures(t, many...)["blocks"].(map[string]any)["trunk_ids"]; trunk != 1. {
		t.Errorf("%v ids are in the trunk of 12 rows, want the one that all rows have", trunk)
	}
}
