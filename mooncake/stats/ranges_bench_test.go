// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"bytes"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// ranged adds ranges to rows with hash ids, in blocks of 16 tokens that share as much, and the replies to the rows that a row continues.
func ranged(rows []*mooncake.Row) []*mooncake.Row {
	const fine = mooncake.BlockSize / 16
	first := map[uint64]uint64{} // for each hash id, the first id of ranges in its block
	ends := map[uint64]int{}     // by last full block: the row that ended with it
	next := uint64(0)
	out := clone(rows)
	for i, row := range out {
		left := int64(mooncake.BlockCount(row.InputLength.V, 16))
		for _, id := range row.HashIDs {
			count := min(fine, left)
			left -= count
			at, known := first[id]
			if !known {
				at = next
				first[id] = at
				next += uint64(count)
			}
			if n := len(row.HashRanges); n > 0 && row.HashRanges[n-1].First+uint64(row.HashRanges[n-1].Count) == at {
				row.HashRanges[n-1].Count += count
			} else {
				row.HashRanges = append(row.HashRanges, mooncake.HashRange{First: at, Count: count})
			}
		}
		for k, id := range row.HashIDs {
			if before, known := ends[id]; known && k < len(row.HashIDs)-1 {
				at := rows[before].InputLength.V
				if tokens := min(rows[before].OutputLength.V, row.InputLength.V-at-1); tokens > 0 && (len(row.Replies) == 0 || at >= row.Replies[len(row.Replies)-1].At+row.Replies[len(row.Replies)-1].Tokens) {
					row.Replies = append(row.Replies, mooncake.Reply{Back: int64(i - before), At: at, Tokens: tokens})
				}
			}
		}
		if n := row.InputLength.V / mooncake.BlockSize; n > 0 {
			ends[row.HashIDs[n-1]] = i
		}
	}
	return out
}

// kinds calls f with the rows of the public trace, and with the same rows with ranges, which must not be much slower.
func kinds(b *testing.B, f func(name string, rows []*mooncake.Row, fine int)) {
	b.Helper()
	rows := publicRows(b, 0)
	f("ids", rows, 0)
	f("ranges", ranged(rows), 16)
}

func BenchmarkRangesReader(b *testing.B) {
	kinds(b, func(name string, rows []*mooncake.Row, fine int) {
		var text []byte
		for _, row := range rows {
			text = append(mooncake.AppendRow(text, row), '\n')
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				readAll(b, mooncake.NewReader(bytes.NewReader(text), mooncake.ReaderOptions{FineBlockSize: fine}))
			}
		})
	})
}

func BenchmarkRangesPredictor(b *testing.B) {
	kinds(b, func(name string, rows []*mooncake.Row, fine int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p := NewPredictor(PredictorOptions{FineBlockSize: fine})
				for _, row := range rows {
					p.Predict(row)
				}
			}
		})
	})
}

func BenchmarkRangesAnalyzer(b *testing.B) {
	kinds(b, func(name string, rows []*mooncake.Row, fine int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v := analyze(rows, AnalyzeOptions{FineBlockSize: fine}).Violations; len(v) > 0 {
					b.Fatal(v)
				}
			}
		})
	})
}
