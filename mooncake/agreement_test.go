// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// pairing is the naive [agreement]: for each id, every id that it occurs with.
type pairing struct {
	block, fine int
	after       map[uint64]uint64 // for each id of ranges, the id before it, +1
	tokens      map[uint64]int64
	hash, end   map[uint64]uint64 // hash id -> id at its end, and the reverse
}

// add returns the first block of a row at which it disagrees, or -1.
func (p *pairing) add(row *Row) int64 {
	ids, length := expand(row.HashRanges), row.InputLength.V
	fault := int64(-1)
	for i, id := range ids {
		before := uint64(0)
		if i > 0 {
			before = ids[i-1] + 1
		}
		n := min(int64(p.fine), length-int64(i*p.fine))
		if was, known := p.tokens[id]; known && (p.after[id] != before || was != n) && fault < 0 {
			fault = int64(i * p.fine / p.block)
		} else if !known {
			p.after[id], p.tokens[id] = before, n
		}
	}
	for i, id := range row.HashIDs {
		if fault >= 0 || len(ids) == 0 {
			break
		}
		end := ids[min((i+1)*p.block/p.fine, len(ids))-1]
		was, known := p.hash[id]
		back, taken := p.end[end]
		if known != taken || known && (was != end || back != id) {
			return int64(i)
		}
		p.hash[id], p.end[end] = end, id
	}
	return fault
}

// Ranges made from the same tokens as the hash ids agree with them. If an id in one of the two is changed, the checker names the same row
// and block as a comparison of all ids.
func TestAgreementOfRangesIsThatOfTheirIDs(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	const block, fine = 24, 4
	broken, kept := 0, 0
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 4))
		rows := conversations(rng, 40, block, fine)
		for i := range rows {
			if rng.IntN(4) == 0 {
				rows[i].HashRanges = nil
			}
		}
		at := 1 + rng.IntN(len(rows)-1)
		if row := &rows[at]; seed%4 > 0 && row.HashRanges != nil {
			ids := expand(row.HashRanges)
			i := rng.IntN(len(ids))
			switch seed % 4 {
			case 1: // differs from the row before, although the hash ids do not
				for k := i; k < len(ids); k++ {
					ids[k] += 1 << 20
				}
			case 2: // the same as another id
				ids[i] = uint64(rng.IntN(200))
			case 3: // shares less by hash ids than by ranges
				i = i * fine / block
				for k := i; k < len(row.HashIDs); k++ {
					row.HashIDs[k] += 1 << 20
				}
			}
			row.HashRanges = collapse(ids)
		}
		naive := pairing{block, fine, map[uint64]uint64{}, map[uint64]int64{}, map[uint64]uint64{}, map[uint64]uint64{}}
		c := NewChecker(CheckOptions{BlockSize: block, FineBlockSize: fine})
		want := int64(-1)
		for i := range rows {
			row := &rows[i].Row
			if rows[i].Validate() != nil {
				row.HashRanges = nil // an id twice
			}
			if want < 0 {
				want = naive.add(row)
			}
			bad := c.add(row, int64(i+1))
			if got := bad&disagreeing != 0; got != (want >= 0) || got && c.block != want {
				t.Fatalf("seed %d, row %d: broken %t at block %d, want block %d", seed, i, got, c.block, want)
			}
			if want >= 0 {
				v := c.Violations()
				if last := v[len(v)-1]; last.Rule != V9 || last.Line != int64(i+1) || last.Count != 1 {
					t.Errorf("seed %d: %+v", seed, last)
				}
				broken++
				break
			}
		}
		if want < 0 {
			kept++
		}
		if c.UncheckedRanges() != "" {
			t.Errorf("seed %d: not checked: %s", seed, c.UncheckedRanges())
		}
	}
	if broken < 100 || kept < 100 {
		t.Errorf("%d broken, %d kept: the test shows little", broken, kept)
	}
}

// One row that disagrees does not make later rows disagree.
func TestADisagreementIsCountedOnce(t *testing.T) {
	rows := conversations(rand.New(rand.NewPCG(8, 5)), 30, 24, 4)
	at := slices.IndexFunc(rows[5:], func(m modelled) bool { return len(m.HashIDs) > 2 && m.HashIDs[1] != rows[0].HashIDs[0] }) + 5
	ids := expand(rows[at].HashRanges)
	for i := range ids[1:] {
		ids[i+1] += 1 << 20
	}
	rows[at].HashRanges = collapse(ids)
	c := NewChecker(CheckOptions{BlockSize: 24, FineBlockSize: 4})
	for i := range rows {
		c.Add(&rows[i].Row, int64(i+1))
		c.Add(&Row{InputLength: rows[i].InputLength, OutputLength: Some[int64](1), Timestamp: rows[i].Timestamp, HashIDs: rows[i].HashIDs}, 0)
	}
	v := c.Violations()
	if len(v) != 1 || v[0].Rule != V9 || v[0].Count != 1 || !strings.Contains(v[0].Text, "at block 0") {
		t.Errorf("%+v", v)
	}
}

// Strict reading refuses a row whose ranges disagree with its hash ids, and names the block.
func TestStrictReadingOfRanges(t *testing.T) {
	in := fineRow + "}\n" + `{"timestamp": 1, "input_length": 1030, "output_length": 9, "hash_ids": [0, 3, 4], "hash_ranges": [[0, 64], [65, 1]]}`
	opt := fineReader()
	if rows, _, err := read(in, opt); err != nil || len(rows) != 2 {
		t.Errorf("leniently: %d rows, %v", len(rows), err)
	}
	opt.Strict = true
	rows, _, err := read(in, opt)
	if err == nil || len(rows) != 1 || !strings.Contains(err.Error(), "t.jsonl:2: hash_ranges: block 1: the row breaks V9") {
		t.Errorf("strictly: %d rows, %v", len(rows), err)
	}
}

// With more ids or ranges than the bound, V9 is not checked, and the checker says so.
func TestAgreementBeyondItsBound(t *testing.T) {
	for name, opt := range map[string]CheckOptions{
		"too many hash ids": {FineBlockSize: 16, MaxIDs: 3}, "too many ranges": {FineBlockSize: 16, MaxIDs: 40},
	} {
		c := NewChecker(opt)
		for i := range uint64(100) {
			c.Add(&Row{InputLength: Some[int64](32), HashIDs: []uint64{min(i, 30)}, HashRanges: []HashRange{{1000 - 3*i, 2}}}, 1)
		}
		if c.UncheckedRanges() == "" || c.ranges.chain != nil {
			t.Errorf("%s: %q", name, c.UncheckedRanges())
		}
	}
}
