// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// someRows returns rows with prompts that continue where others end, that end in the middle of others, that occur twice, with partial ends
// or without, and with ids for only a part. If strange is set, some ids follow other ids than before.
func someRows(t *testing.T, random *rand.Rand, strange bool) (file []byte, rows []*mooncake.Row) {
	t.Helper()
	var out bytes.Buffer
	w := mooncake.NewWriter(&out)
	var ids numbered
	var prompts [][]uint64 // whole blocks, as the trace numbers them
	for i := range 300 {
		var blocks []uint64
		if len(prompts) > 0 && random.IntN(5) > 0 {
			before := prompts[random.IntN(len(prompts))]
			if random.IntN(3) == 0 {
				before = prompts[len(prompts)-1]
			}
			blocks = append(blocks, before[:random.IntN(len(before)+1)]...)
		}
		for len(blocks) == 0 || random.IntN(3) > 0 {
			blocks = append(blocks, uint64(i)<<20|uint64(len(blocks)))
		}
		if strange && len(prompts) > 0 && random.IntN(4) == 0 {
			other := prompts[random.IntN(len(prompts))]
			blocks = slices.Insert(blocks, random.IntN(len(blocks)+1), other[random.IntN(len(other))])
		}
		prompts = append(prompts, slices.Clone(blocks))
		length := int64(len(blocks)) * 512
		switch random.IntN(6) {
		case 0, 1: // a partial end that some others have, too
			end := random.IntN(2)
			blocks = append(blocks, 1<<60|blocks[len(blocks)-1]<<2|uint64(end))
			length += int64(100 + 300*end)
		case 2: // an end without ids
			length += int64(600 + random.IntN(2000))
		}
		ids.row(0, blocks)
		row := &mooncake.Row{Timestamp: mooncake.Some(float64(i)), InputLength: mooncake.Some(length), OutputLength: mooncake.Some(int64(1)), HashIDs: blocks}
		if random.IntN(20) == 0 {
			row.HashIDs = nil
		}
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return out.Bytes(), rows
}

// oneByOne assigns blocks to rows by the definition: two rows have the same new block if it ends in the same old one, after the same old
// ones.
func oneByOne(c Config, rows []*mooncake.Row) (lines []string) {
	shared := func(row int) (most int64) {
		for i, other := range rows {
			n := 0
			for n < min(len(other.HashIDs), len(rows[row].HashIDs)) && other.HashIDs[n] == rows[row].HashIDs[n] {
				n++
			}
			if i != row {
				most = max(most, int64(n))
			}
		}
		return min(512*most, rows[row].InputLength.V)
	}
	names := map[string]uint64{}
	for i, row := range rows {
		if c.MaxInput > 0 && row.InputLength.V > c.MaxInput {
			continue
		}
		ids, length, size := row.HashIDs, row.InputLength.V, 512
		whole := len(ids) == mooncake.BlockCount(length, size)
		at := func(end int64) int { return int((end - 1) / 512) }
		switch {
		case c.BlockSize > 0:
			size = c.BlockSize
		default:
			p := newPrompt(length, 0, 1, c.InputScale)
			if c.PrefixScale > 0 {
				p = newPrompt(length, shared(i), c.PrefixScale, 1)
			}
			length, at = p.now, func(end int64) int { return p.back(int((end-1)/512), 512) }
		}
		var out []uint64
		for j := range mooncake.BlockCount(length, size) {
			end := min(int64(j+1)*int64(size), length)
			last, key := at(end), fmt.Sprint(j)
			if whole && end == length {
				last = len(ids) - 1
				if c.BlockSize == 0 && end%512 != 0 || c.BlockSize > 0 && len(ids)%(size/512) != 0 {
					key = "partial"
				}
			}
			if last >= len(ids) {
				break
			}
			key = fmt.Sprint(key, ids[:last+1])
			if _, known := names[key]; !known {
				names[key] = uint64(len(names))
			}
			out = append(out, names[key])
		}
		lines = append(lines, fmt.Sprint(length, out))
	}
	return lines
}

// TestTree: rows whose blocks change still share what they shared.
func TestTree(t *testing.T) {
	for n := range repeated(90, 15) {
		random := rand.New(rand.NewPCG(uint64(n), 3))
		strange := n%3 == 2
		file, rows := someRows(t, random, strange)
		c := []Config{
			{InputScale: []float64{0.5, 0.25, 0.1, 2, 3, 1.25}[random.IntN(6)]}, {BlockSize: 512 * (2 + random.IntN(3))}, {PrefixScale: []float64{0.5, 0.25, 0.1, 2, 3, 1.25}[random.IntN(6)]},
		}[random.IntN(3-n%3/2)] // the prefixes of strange ids are unknown
		if c.PrefixScale == 0 && random.IntN(2) == 0 {
			c.MaxInput = 2500 // what remains has other numbers
		}
		got, _, _ := transformed(t, c, source(file, 0))
		var lines []string
		for _, row := range got {
			lines = append(lines, fmt.Sprint(row.InputLength.V, row.HashIDs))
		}
		if diff := cmp.Diff(oneByOne(c, rows), lines); diff != "" {
			t.Fatalf("seed %d, %+v (-one by one +by the tree):\n%s", n, c, diff)
		}
	}
}

// TestNoRowIsLeft: the error names the step that left no row, whatever other steps there are.
func TestNoRowIsLeft(t *testing.T) {
	const row = `{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [0]}` + "\n"
	for _, c := range []struct {
		trace string
		c     Config
		want  string
	}{
		{row, Config{MaxInput: 600, Scale: 0.01, TimeScale: 2}, `step "scale" kept none of 1 row (the largest cluster has 1 row, and is never divided);`},
		{row + row, Config{MaxInput: 600, MinOutput: 2, First: 1, Roots: 2}, `step "output length" kept none of 2 rows;`},
		{row, Config{Start: time.Hour, Scale: 2}, `step "window" kept none of 1 row;`},
		{"", Config{TimeScale: 2}, "the trace has none"},
	} {
		stream, err := Open(c.c, source([]byte(c.trace), 0))
		for err == nil {
			_, err = stream.Next()
		}
		if !strings.Contains(err.Error(), "no row is left: "+c.want) {
			t.Errorf("%+v: %v, want %q", c.c, err, c.want)
		}
		if stream != nil { // a step that needs all rows reads them when it opens
			stream.Close()
		}
	}
}

// TestIndexOfStrangeRows: an existing id that comes after a new one, at a page of ids of its own, causes no panic.
func TestIndexOfStrangeRows(t *testing.T) {
	var first []string
	for i := range page {
		first = append(first, fmt.Sprint(i))
	}
	trace := fmt.Sprintf(`{"timestamp": 0, "input_length": %d, "output_length": 1, "hash_ids": [%s]}
{"timestamp": 1, "input_length": 1536, "output_length": 1, "hash_ids": [0, %d, 5]}
`, page*512, strings.Join(first, ", "), page)
	for _, c := range []Config{{Roots: 2}, {PrefixScale: 2}, {Scale: 2}, {Scale: 0.5}} {
		stream, err := Open(c, source([]byte(trace), 0))
		for err == nil {
			_, err = stream.Next()
		}
		if !errors.Is(err, io.EOF) && c.Scale != 0.5 { // which may keep no row
			t.Errorf("%+v: %v", c, err)
		}
		stream.Close()
	}
}
