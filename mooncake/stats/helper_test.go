// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/testtrace"
)

// readAll reads every row of a trace.
func readAll(tb testing.TB, r *mooncake.Reader) []*mooncake.Row {
	tb.Helper()
	var rows []*mooncake.Row
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

func publicRows(tb testing.TB, lines int) []*mooncake.Row {
	tb.Helper()
	return readAll(tb, mooncake.NewReader(bytes.NewReader(testtrace.PublicData(tb, lines)), mooncake.ReaderOptions{Name: "conversation", Strict: true}))
}

// toyRows returns the rows for which the reference digests were computed by hand.
func toyRows() []*mooncake.Row {
	row := func(t float64, n, m int64, ids ...uint64) *mooncake.Row {
		return &mooncake.Row{Timestamp: mooncake.Some(t), InputLength: mooncake.Some(n), OutputLength: mooncake.Some(m), HashIDs: ids}
	}
	return []*mooncake.Row{
		row(100, 1000, 5, 7, 9), row(100, 1536, 1, 7, 3, 4), row(350, 1000, 5, 7, 9), row(400, 10, 2, 8),
	}
}

func digest(rows []*mooncake.Row) mooncake.Digests {
	d := mooncake.NewDigester(mooncake.CheckOptions{})
	for i, row := range rows {
		d.Add(row, int64(i+1))
	}
	return d.Digests()
}

// clone copies rows, so that a test can change them.
func clone(rows []*mooncake.Row) []*mooncake.Row {
	out := make([]*mooncake.Row, len(rows))
	for i, r := range rows {
		c := *r
		c.HashIDs = slices.Clone(r.HashIDs)
		out[i] = &c
	}
	return out
}

// modelled is a row together with the tokens of its ids.
type modelled struct {
	mooncake.Row
	tokens []int // of the prompt, followed by those of the reply
	by     int   // index of the row whose conversation it continues; itself for the first
}

// conversations returns the conversations of package testtrace as rows.
func conversations(rng *rand.Rand, rows, block, fine int) []modelled {
	var out []modelled
	for i, r := range testtrace.Conversations(rng, rows, block, fine) {
		m := modelled{tokens: r.Tokens, by: r.By, Row: mooncake.Row{
			Model: r.Model, Timestamp: mooncake.Some(float64(i)), HashIDs: r.IDs, HashRanges: collapse(r.FineIDs),
			InputLength: mooncake.Some(int64(r.Length)), OutputLength: mooncake.Some(int64(len(r.Tokens) - r.Length)),
		}}
		for _, x := range r.Replies {
			m.Replies = append(m.Replies, mooncake.Reply{Back: x[0], At: x[1], Tokens: x[2]})
		}
		out = append(out, m)
	}
	return out
}

// expand returns the ids of ranges, one by one.
func expand(ranges []mooncake.HashRange) []uint64 {
	var ids []uint64
	for _, h := range ranges {
		for i := range uint64(h.Count) {
			ids = append(ids, h.First+i)
		}
	}
	return ids
}
