// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// trunkOf returns the trunk of a trace of these rows, each as often as the map says: as a digester computes it, and as [Trunk.Of] does.
func trunkOf(t *testing.T, rows map[*[]uint64]int) (whole, head *Trunk) {
	t.Helper()
	d := NewDigester(CheckOptions{})
	var ids [][]uint64
	line := int64(0)
	for row, n := range rows {
		for range n {
			line++
			d.Add(&Row{InputLength: Some(int64(512 * len(*row))), OutputLength: Some(int64(1)), HashIDs: *row}, line)
			ids = append(ids, *row)
		}
	}
	var none *Trunk
	return d.Trunk(), none.Of(ids, 1e9)
}

func TestTrunk(t *testing.T) {
	const big = 1 << 63
	rows := map[*[]uint64]int{
		{7, 8, big, big + 1}: 40, // in 40 of 100 rows each
		{7, 8, big, big + 5}: 30,
		{7, 8, 100}:          10, // not in more than 10
		{50}:                 20,
	}
	want := &Trunk{Share: TrunkShare, Rows: 100, Blocks: [][2]uint64{{7, 2}, {50, 1}, {big, 2}, {big + 5, 1}}}
	whole, head := trunkOf(t, rows)
	if d := cmp.Diff(want, whole); d != "" {
		t.Errorf("of a trace (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want, head); d != "" {
		t.Errorf("of some rows (-want +got):\n%s", d)
	}
	for _, c := range []struct {
		ids   []uint64
		below uint64
		ok    bool
	}{{[]uint64{7, 8, 100}, 100, true}, {[]uint64{7, 8, big + 2}, big + 2, true}, {[]uint64{7, 8}, 0, false}, {nil, 0, false}, {[]uint64{6}, 6, true}, {[]uint64{9}, 9, true}} {
		if id, ok := whole.Below(c.ids); id != c.below || ok != c.ok {
			t.Errorf("%d: %d, %v; want %d, %v", c.ids, id, ok, c.below, c.ok)
		}
	}
	// Blocks in more rows than a given number belong to the trunk, too, and so do the blocks of an existing trunk.
	var none *Trunk
	if got := none.Of([][]uint64{{1, 2}, {1, 2}, {1, 3}}, 1.5); cmp.Diff([][2]uint64{{1, 2}}, got.Blocks) != "" {
		t.Errorf("of a small trace: %v", got.Blocks)
	}
	if got := whole.Of([][]uint64{{7, 9}}, 1e9); cmp.Diff(want, got) != "" {
		t.Errorf("an existing trunk became %v", got)
	}
	if few, _ := trunkOf(t, map[*[]uint64]int{{1}: 10}); few != nil {
		t.Errorf("ten rows have a trunk: %v", few)
	}
}

// TestTrunkOfASidecar: the trunk is read as it was written, and an invalid one is refused.
func TestTrunkOfASidecar(t *testing.T) {
	want := Meta{Schema: 1, Trunk: &Trunk{Share: 0.02, Rows: 9, Blocks: [][2]uint64{{3, 4}, {1 << 63, 1}}}}
	var b bytes.Buffer
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := ReadMeta(&b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&want, got); d != "" {
		t.Errorf("(-written +read):\n%s", d)
	}
	for _, text := range []string{`[[1, 0]]`, `[[5, 1], [1, 2]]`, `[[1, 3], [2, 1]]`, `[[18446744073709551615, 2]]`, `[[-1, 2]]`, `"x"`} {
		_, err := ReadMeta(strings.NewReader(`{"schema": 1, "trunk": {"blocks": ` + text + `}}`))
		if err == nil || !json.Valid([]byte(`{"x": `+text+`}`)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
