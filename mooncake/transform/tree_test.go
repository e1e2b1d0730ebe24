// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// TestTree: blocks that are numbered by what the index knows have the ids that they get one by one: of prompts that go on where others end, in the middle
// of others, twice the same, with partial ends or without, and with ids for a part alone.
func TestTree(t *testing.T) {
	for n := range 60 {
		random := rand.New(rand.NewPCG(uint64(n), 3))
		var file bytes.Buffer
		w := mooncake.NewWriter(&file)
		var ids numbered
		var prompts [][]uint64 // whole blocks, as the trace calls them
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
			prompts = append(prompts, append([]uint64(nil), blocks...))
			length := int64(len(blocks)) * 512
			switch random.IntN(6) {
			case 0, 1: // a partial end that some others have, too
				blocks = append(blocks, 1<<60|blocks[len(blocks)-1]<<2|uint64(random.IntN(2)))
				length += int64(1 + random.IntN(511))
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
		}
		factor := []float64{0.5, 0.25, 0.1, 2, 3, 1.25}[random.IntN(6)]
		read := func(tree bool) (rows []string) {
			s, err := Open(Config{PrefixScale: factor}, source(file.Bytes(), 0))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if s.sizes.plain == nil {
				t.Fatal("no tree")
			}
			if !tree {
				s.sizes.plain = nil
			}
			for {
				row, err := s.Next()
				if errors.Is(err, io.EOF) {
					return rows
				}
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, fmt.Sprint(row.InputLength.V, row.HashIDs))
			}
		}
		if diff := cmp.Diff(read(false), read(true)); diff != "" {
			t.Fatalf("seed %d, factor %g (-one by one +by the tree):\n%s", n, factor, diff)
		}
	}
}
