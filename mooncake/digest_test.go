// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var toyDigests = Digests{
	Seq:     "aef42053995aacd253e7af008f7db1ab6594c02a62f1d91712cd802b4c6efdc9",
	Tree:    "127edad3b78563387b1424949c6ecd6b66bcee54611b2226462ed866ceba07c5",
	Arrival: "a0cc8ed9689be0183723ec010b94e16339c629cc8794ad1de4160be33bb8c0d9",
}

func TestToyDigests(t *testing.T) {
	if got := digest(toyRows()); got != toyDigests {
		t.Errorf("got  %+v\nwant %+v", got, toyDigests)
	}
}

func TestUndefinedDigests(t *testing.T) {
	toy := func(change func([]*Row)) []*Row {
		rows := toyRows()
		change(rows)
		return rows
	}
	for name, test := range map[string]struct {
		rows                 []*Row
		noSeq, noTree, noArr bool
		reason               string
	}{
		"an id twice": {toy(func(r []*Row) { r[1].HashIDs[2] = 7 }), true, true, false, "an id occurs twice in one row (line 2)"},
		"two parents": {toy(func(r []*Row) { r[3].HashIDs = []uint64{9} }), true, true, false, "an id has two parents (line 4)"},
		"two fills":   {toy(func(r []*Row) { r[2].InputLength.V = 1001 }), true, true, false, "an id has two fills (line 3)"},
		"an inner block that is partial elsewhere": {toy(func(r []*Row) { r[3].HashIDs = []uint64{7} }), true, true, false, "an id has two fills (line 4)"},
		"no output length":                         {toy(func(r []*Row) { r[0].OutputLength = Opt[int64]{} }), true, true, false, "line 1 lacks input_length, output_length or hash_ids"},
		"no ids":                                   {toy(func(r []*Row) { r[0].HashIDs = nil }), true, true, false, "line 1 lacks input_length, output_length or hash_ids"},
		"huge length":                              {toy(func(r []*Row) { r[3].OutputLength.V = 1 << 33 }), false, true, false, "a length of 2^32 or more (line 4)"},
		"no time":                                  {toy(func(r []*Row) { r[2].Timestamp = Opt[float64]{} }), false, false, true, "line 3 has no timestamp"},
		"before the first":                         {toy(func(r []*Row) { r[2].Timestamp.V = 99 }), false, false, true, "line 3 is earlier than the first row"},
		"no rows":                                  {nil, true, true, true, "the trace has no rows"},
		"ids past the bound":                       {nil, true, true, false, "more than 4 distinct ids"},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDigester(CheckOptions{})
			if name == "ids past the bound" {
				d, test.rows = NewDigester(CheckOptions{MaxIDs: 4}), toyRows()
			}
			for i, r := range test.rows {
				d.Add(r, int64(i+1))
			}
			got := d.Digests()
			want := Digests{toyDigests.Seq, toyDigests.Tree, toyDigests.Arrival, "", test.reason}
			for undefined, s := range map[*string]bool{&want.Seq: test.noSeq, &want.Tree: test.noTree, &want.Arrival: test.noArr} {
				if s {
					*undefined = Undefined
				}
			}
			if name == "huge length" {
				want.Seq = got.Seq // a different row than the toy's
			}
			if got != want || got.Defined() || got.Same(got) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestFractionsOfAMillisecond: the arrival digest covers fractions of a millisecond, which the timestamps of captures have. Here it is the
// digest of the text "0\n0\n250.5\n300\n".
func TestFractionsOfAMillisecond(t *testing.T) {
	shifted := func(by, half float64) Digests {
		rows := toyRows()
		for _, r := range rows {
			r.Timestamp.V += by
		}
		rows[2].Timestamp.V += half
		return digest(rows)
	}
	const want = "49b0d84f0604499ebec2aa13825c4569e824c15d1ae2390e7306c7fba246161a"
	if got := shifted(0, .5); got.Arrival != want || got.Reason != "" {
		t.Errorf("arrival digest %s (%s), want %s", got.Arrival, got.Reason, want)
	}
	if got := shifted(1_763_800_000_000, .5); got.Arrival != want {
		t.Errorf("counted from 1970 the arrival digest is %s, want %s", got.Arrival, want)
	}
	if got := shifted(0, .500001); got.Arrival == want {
		t.Error("a nanosecond makes no difference")
	}
	if got := shifted(0, .5000001); got.Arrival != want {
		t.Error("a tenth of a nanosecond makes a difference")
	}
}

func TestRowsWithoutBlocksHaveDigests(t *testing.T) {
	row := func(ids []uint64, n int64) *Row {
		return &Row{Timestamp: Some(0.), InputLength: Some(n), OutputLength: Some[int64](1), HashIDs: ids}
	}
	a := digest([]*Row{row([]uint64{}, 9), row([]uint64{}, 10), row([]uint64{5}, 7)})
	b := digest([]*Row{row([]uint64{}, 10), row([]uint64{1}, 7), row([]uint64{}, 9)})
	if !a.Defined() || a.Seq == b.Seq || a.Tree != b.Tree {
		t.Errorf("digests %+v and %+v: want the same tree", a, b)
	}
}

func BenchmarkDigester(b *testing.B) {
	rows := publicRows(b, 0)
	b.ReportAllocs()
	for b.Loop() {
		digest(rows)
	}
}

// The digest of ranges is an additional one: the others do not change, whatever the ids of ranges are, and a trace that differs only in
// ranges or replies is a different workload.
func TestRangeDigest(t *testing.T) {
	digests := func(rows []modelled, change func(i int, r *Row), opt CheckOptions) Digests {
		opt.BlockSize = 24
		d := NewDigester(opt)
		for i := range rows {
			r := rows[i].Row
			r.HashRanges, r.Replies = slices.Clone(r.HashRanges), slices.Clone(r.Replies)
			change(i, &r)
			d.Add(&r, int64(i+1))
		}
		return d.Digests()
	}
	rows := conversations(rand.New(rand.NewPCG(1, 6)), 40, 24, 4)
	fine := CheckOptions{FineBlockSize: 4}
	same := func(int, *Row) {}
	want := digests(rows, same, fine)
	if !want.Defined() || len(want.Ranges) != 64 {
		t.Fatalf("%+v", want)
	}
	plain := digests(rows, func(_ int, r *Row) { r.HashRanges, r.Replies = nil, nil }, fine)
	if plain.Ranges != "" || !plain.Defined() || plain.Seq != want.Seq || plain.Tree != want.Tree || plain.Arrival != want.Arrival || plain.Same(want) {
		t.Errorf("without ranges: %+v", plain)
	}
	last := func(i int, r *Row) bool { return i == len(rows)-1 && len(r.HashRanges) > 0 }
	for name, tc := range map[string]struct {
		change func(i int, r *Row)
		same   bool
	}{
		"other ids": {func(_ int, r *Row) {
			ids := expand(r.HashRanges)
			for i, id := range ids {
				ids[i] = (id + 1) * 0x9e3779b97f4a7c15
			}
			r.HashRanges = collapse(ids)
		}, true},
		"ranges that could be fewer": {func(_ int, r *Row) {
			if h := &r.HashRanges[0]; h.Count > 1 {
				h.Count--
				r.HashRanges = slices.Insert(r.HashRanges, 1, HashRange{h.last() + 1, 1})
			}
		}, true},
		"less in common": {func(i int, r *Row) {
			if last(i, r) {
				r.HashRanges = []HashRange{{1 << 30, int64(len(expand(r.HashRanges)))}}
				r.HashIDs = slices.Clone(r.HashIDs)
				for k := range r.HashIDs {
					r.HashIDs[k] += 1 << 30
				}
			}
		}, false},
		"no ranges on a row":   {func(i int, r *Row) { r.HashRanges = r.HashRanges[:len(r.HashRanges)*min(1, i)] }, false},
		"no replies":           {func(_ int, r *Row) { r.Replies = nil }, false},
		"only the first reply": {func(_ int, r *Row) { r.Replies = slices.Clip(r.Replies[:min(1, len(r.Replies))]) }, false},
		"a reply with one token less": {func(_ int, r *Row) {
			if n := len(r.Replies); n > 0 && r.Replies[n-1].Tokens > 1 {
				r.Replies[n-1].Tokens--
			}
		}, false},
	} {
		if got := digests(rows, tc.change, fine); got.Ranges == want.Ranges != tc.same || got.Same(want) != tc.same {
			t.Errorf("%s: %+v, of the rows themselves %+v", name, got, want)
		}
	}
	if got := digests(rows, same, CheckOptions{}); got.Ranges != Undefined || got.Seq != want.Seq || got.Defined() || !strings.Contains(got.Reason, "nothing says how many tokens an id of hash_ranges stands for") {
		t.Errorf("without the size: %+v", got)
	}
	if got := digests(rows, func(i int, r *Row) {
		if i == 20 {
			r.HashRanges = collapse([]uint64{1, 0})
		}
	}, fine); got.Ranges != Undefined || got.Seq != want.Seq || !strings.Contains(got.Reason, "hash_ranges and hash_ids disagree (line 21)") {
		t.Errorf("ranges that disagree: %+v", got)
	}
}
