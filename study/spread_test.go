// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestSpreads(t *testing.T) {
	run := func(throughput float64, ttft map[string]float64) *Run {
		return &Run{
			units:   map[string]string{"request_throughput": "requests/sec", "time_to_first_token": "ms"},
			figures: map[string]map[string]float64{"request_throughput": {"avg": throughput}, "time_to_first_token": ttft},
		}
	}
	got := Spreads([]*Run{run(2, map[string]float64{"p50": 10}), run(4, map[string]float64{"p50": 10}), run(9, nil)})
	want := []Spread{
		// mean (2 + 4 + 9) ÷ 3, deviations −3, −1, 4: √(26 ÷ 2)
		{"request_throughput.avg", "requests/sec", 3, 5, 3.605551, 0.721110, 2, 9},
		{"time_to_first_token.p50", "ms", 2, 10, 0, 0, 10, 10},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); d != "" {
		t.Error(d)
	}
	if one := Spreads([]*Run{run(7, nil)}); len(one) != 1 || one[0].SD != 0 || one[0].Mean != 7 {
		t.Errorf("%+v", one)
	}
	if none := Spreads(nil); none != nil {
		t.Errorf("%+v", none)
	}
}
