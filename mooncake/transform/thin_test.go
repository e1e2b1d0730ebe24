// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// held is a trace in memory.
type held struct {
	rows []*mooncake.Row
	next int
}

func (h *held) Read() (*mooncake.Row, error) {
	if h.next == len(h.rows) {
		return nil, io.EOF
	}
	row := *h.rows[h.next]
	row.HashIDs = slices.Clone(row.HashIDs) // the stream changes them
	h.next++
	return &row, nil
}
func (h *held) Line() int64      { return int64(h.next) }
func (*held) BlockSize() int     { return mooncake.BlockSize }
func (*held) FineBlockSize() int { return 0 }

// rowsOf reads a whole trace, and its trunk.
func rowsOf(t *testing.T, data []byte) (rows []*mooncake.Row, trunk *mooncake.Trunk) {
	t.Helper()
	d := mooncake.NewDigester(mooncake.CheckOptions{})
	r := mooncake.NewReader(bytes.NewReader(data), mooncake.ReaderOptions{})
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, d.Trunk()
		}
		if err != nil {
			t.Fatal(err)
		}
		d.Add(row, r.Line())
		rows = append(rows, row)
	}
}

// TestSampleError: the error of the hit rate of samples by the rule of Collectors, over as many seeds as for scaling: the actual error,
// and the one that a sample itself reports.
func TestSampleError(t *testing.T) {
	seeds := repeated(40, 4)
	rows, trunk := rowsOf(t, public(t))
	whole := hitsOf(rows)
	for _, c := range []struct{ rate, bias, sd float64 }{ // bounds in points of the hit rate, with a margin of three standard errors
		{0.1, 3, 7}, {0.01, 10, 15},
	} {
		var sum, squares, said float64
		within := 0
		for seed := range uint64(seeds) {
			s, err := Open(Config{Sample: c.rate, Seed: seed + 1}, Source{Name: "public", Trunk: trunk, Open: func() (Rows, error) { return &held{rows: rows}, nil }})
			if err != nil {
				t.Fatal(err)
			}
			a := stats.NewAnalyzer(stats.AnalyzeOptions{Sample: &stats.SampleOptions{Rate: c.rate, Trunk: trunkOfOut(t, rows, trunk)}})
			n := int64(0)
			for row, err := s.Next(); !errors.Is(err, io.EOF); row, err = s.Next() {
				if err != nil {
					t.Fatal(err)
				}
				n++
				a.Add(row, n)
			}
			s.Close()
			out := a.Analysis()
			if share := float64(n) / float64(len(rows)); math.Abs(share-c.rate) > 5*c.rate {
				t.Errorf("%d of %d rows at a rate of %g", n, len(rows), c.rate)
			}
			off := 100 * (hitRate(out) - whole)
			se := 100 * out.Sample.StandardError
			sum, squares, said = sum+off, squares+off*off, said+se
			if math.Abs(off) <= 2*se {
				within++
			}
		}
		n := float64(seeds)
		mean := sum / n
		sd := math.Sqrt((squares - n*mean*mean) / (n - 1))
		t.Logf("%g %%, %d seeds: hit rate off by %+.2f points on average, standard deviation %.2f; samples say %.2f on average, and %d of %d are within twice what they say",
			100*c.rate, seeds, mean, sd, said/n, within, seeds)
		if math.Abs(mean) > c.bias || sd > c.sd || within < seeds*3/4 {
			t.Errorf("rate %g: off by %.2f points, standard deviation %.2f, %d within", c.rate, mean, sd, within)
		}
	}
}

// trunkOfOut returns the trunk in the numbering of the written rows, which is the given trunk for the public trace, in which every row
// begins with block 0.
func trunkOfOut(t *testing.T, rows []*mooncake.Row, trunk *mooncake.Trunk) *mooncake.Trunk {
	t.Helper()
	for _, row := range rows {
		if row.HashIDs[0] != 0 {
			t.Fatal("the public trace has another root")
		}
	}
	if len(trunk.Blocks) != 1 || trunk.Blocks[0] != [2]uint64{0, 1} {
		t.Fatalf("the trunk of the public trace is %v", trunk.Blocks)
	}
	return trunk
}

// TestSampleKeepsGroups: a sample has all or none of the rows of a session, or of the rows that share a block after the trunk, with and
// without the trunk of a sidecar; a lower rate has a subset of a higher one.
func TestSampleKeepsGroups(t *testing.T) {
	rows, trunk := rowsOf(t, talks(t, 3, 400))
	group := func(row *mooncake.Row, at uint64) mooncake.Group {
		return row.Group(trunk, mooncake.SampleSession, mooncake.BlockSize, at)
	}
	named := func(row *mooncake.Row) string {
		return fmt.Sprint(row.Timestamp, row.Delay, row.InputLength, row.OutputLength, row.SessionID)
	}
	all := map[mooncake.Group]int{}
	for i, row := range rows {
		all[group(row, uint64(i))]++
	}
	var before map[string]bool
	for _, rate := range []float64{0.05, 0.5} {
		for _, said := range []*mooncake.Trunk{trunk, nil} {
			s, err := Open(Config{Sample: rate, Seed: 3}, Source{Name: "talks", Trunk: said, Open: func() (Rows, error) { return &held{rows: rows}, nil }})
			if err != nil {
				t.Fatal(err)
			}
			at := map[string]bool{}
			for row, err := s.Next(); !errors.Is(err, io.EOF); row, err = s.Next() {
				if err != nil {
					t.Fatal(err)
				}
				at[named(row)] = true
			}
			s.Close()
			kept := map[mooncake.Group]int{}
			for i, row := range rows {
				if at[named(row)] {
					kept[group(row, uint64(i))]++
				}
			}
			if len(kept) == 0 || len(kept) == len(all) {
				t.Fatalf("rate %g: %d of %d groups: the test shows nothing", rate, len(kept), len(all))
			}
			for g, n := range kept {
				if n != all[g] {
					t.Errorf("rate %g: %d of %d rows of group %v", rate, n, all[g], g)
				}
			}
			for row := range before {
				if rate == 0.5 && !at[row] {
					t.Fatalf("the row %s is kept at a lower rate, and not at %g", row, rate)
				}
			}
			if rate == 0.05 {
				before = at
			}
			if r := s.Report(); r.Steps[0].Name != "sample" || r.After.Rows != int64(len(at)) {
				t.Errorf("rate %g: %+v", rate, r)
			}
		}
	}
}
