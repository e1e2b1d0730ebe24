// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"slices"
)

// maxRefusals is the maximum number of refused rows that are remembered: 8 MiB.
const maxRefusals = 1 << 20

// refusals are the indexes of the rows that a reader has refused. Later stages do not know of these rows, so the number of rows back to the
// row of a reply must be reduced by the refused rows in between.
type refusals struct {
	at     []int64 // ascending, from 0
	forgot int64   // rows before this index may have been refused, and are no longer listed in at
}

// add records that the row at an index was refused.
func (f *refusals) add(index int64) {
	if len(f.at) == maxRefusals {
		half := maxRefusals / 2
		f.forgot = f.at[half-1] + 1
		f.at = slices.Delete(f.at, 0, half)
	}
	f.at = append(f.at, index)
}

// has reports whether the row at an index was refused, or may have been.
func (f *refusals) has(index int64) bool {
	_, refused := slices.BinarySearch(f.at, index)
	return refused || index < f.forgot
}

// remap recomputes how many rows back the replies of a row are, without the refused rows, and removes replies to refused rows. index is the
// row's own index, counted with the refused rows.
func (f *refusals) remap(row *Row, index int64) (lost int64, bad *RowError) {
	kept := row.Replies[:0]
	for i, reply := range row.Replies {
		target := index - reply.Back
		if target < 0 {
			return 0, fault("replies", element(i),
				fmt.Sprintf("is the reply of a row %d back, but this one is row %d of the trace", reply.Back, index+1),
				"rows may have been cut off the beginning of the trace: take the whole trace, or leave replies out")
		}
		before, refused := slices.BinarySearch(f.at, target)
		if refused || target < f.forgot {
			lost++
			continue
		}
		reply.Back -= int64(len(f.at) - before)
		kept = append(kept, reply)
	}
	if row.Replies = kept; len(kept) == 0 {
		row.Replies = nil
	}
	return lost, nil
}
