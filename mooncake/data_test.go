// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/moonloop/moonloop/mooncake/internal/testtrace"
)

// readAll reads every row of a trace.
func readAll(tb testing.TB, r *Reader) []*Row {
	tb.Helper()
	var rows []*Row
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, row)
	}
}

func publicRows(tb testing.TB, lines int) []*Row {
	tb.Helper()
	return readAll(tb, NewReader(bytes.NewReader(testtrace.PublicData(tb, lines)), ReaderOptions{Name: "conversation", Strict: true}))
}

// toyRows returns the rows for which the reference digests were computed by hand.
func toyRows() []*Row {
	row := func(t float64, n, m int64, ids ...uint64) *Row {
		return &Row{Timestamp: Some(t), InputLength: Some(n), OutputLength: Some(m), HashIDs: ids}
	}
	return []*Row{
		row(100, 1000, 5, 7, 9), row(100, 1536, 1, 7, 3, 4), row(350, 1000, 5, 7, 9), row(400, 10, 2, 8),
	}
}

func digest(rows []*Row) Digests {
	d := NewDigester(CheckOptions{})
	for i, row := range rows {
		d.Add(row, int64(i+1))
	}
	return d.Digests()
}

// modelled is a row together with the tokens of its ids.
type modelled struct {
	Row
	tokens []int // of the prompt, followed by those of the reply
	by     int   // index of the row whose conversation it continues; itself for the first
}

// conversations returns the conversations of package testtrace as rows.
func conversations(rng *rand.Rand, rows, block, fine int) []modelled {
	var out []modelled
	for i, r := range testtrace.Conversations(rng, rows, block, fine) {
		m := modelled{tokens: r.Tokens, by: r.By, Row: Row{
			Model: r.Model, Timestamp: Some(float64(i)), HashIDs: r.IDs, HashRanges: collapse(r.FineIDs),
			InputLength: Some(int64(r.Length)), OutputLength: Some(int64(len(r.Tokens) - r.Length)),
		}}
		for _, x := range r.Replies {
			m.Replies = append(m.Replies, Reply{Back: x[0], At: x[1], Tokens: x[2]})
		}
		out = append(out, m)
	}
	return out
}

// expand returns the ids of ranges, one by one.
func expand(ranges []HashRange) []uint64 {
	var ids []uint64
	for _, h := range ranges {
		for i := range uint64(h.Count) {
			ids = append(ids, h.First+i)
		}
	}
	return ids
}

// collapse returns the fewest ranges for a list of ids.
func collapse(ids []uint64) []HashRange {
	var ranges []HashRange
	for i, id := range ids {
		if n := len(ranges); i > 0 && id == ids[i-1]+1 {
			ranges[n-1].Count++
		} else {
			ranges = append(ranges, HashRange{First: id, Count: 1})
		}
	}
	return ranges
}
