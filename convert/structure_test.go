// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// TestStructure: a turn has the ids of the previous turn for the full blocks that it shares, and new ids after them.
func TestStructure(t *testing.T) {
	var s structure
	var c chain
	for i, turn := range []struct {
		session       string
		input, shares int64
		want          []uint64
	}{
		{"a", 200, 0, []uint64{0, 1, 2, 3}},
		{"b", 64, 64, []uint64{4}},                  // of another session, with no turn before it
		{"a", 300, 200, []uint64{0, 1, 2, 5, 6}},    // the partial block is not shared
		{"a", 300, 1000, []uint64{0, 1, 2, 5, 7}},   // no more than the previous turn had
		{"a", 100, 100, []uint64{0, 8}},             // compacted
		{"a", 260, 250, []uint64{0, 9, 10, 11, 12}}, // no more than the shorter turn left
		{"", 64, 64, []uint64{13}},
		{"", 64, 64, []uint64{14}}, // no session
		{"b", 1, 0, []uint64{15}},
		{"b", 128, 1, []uint64{16, 17}}, // less than a block
	} {
		q := &request{row: &mooncake.Row{SessionID: turn.session, InputLength: mooncake.Some(turn.input)}, shares: mooncake.Some(turn.shares)}
		if diff := cmp.Diff(turn.want, s.ids(&c, q, 64)); diff != "" {
			t.Errorf("turn %d (-want +got):\n%s", i, diff)
		}
	}
}
