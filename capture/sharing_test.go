// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// TestRangesOfReplays: a row has the ranges and replies that it was sent with. If rows were never sent, the gaps in ids and distances are
// closed, and a reply to a missing row is counted.
func TestRangesOfReplays(t *testing.T) {
	ranges := func(h ...mooncake.HashRange) []mooncake.HashRange { return h }
	row := func(row int64, ids []uint64, tokens int64, h []mooncake.HashRange, replies ...mooncake.Reply) *journal.Inference {
		r := replayed(t, "r", row, uint64(row+1), 1, 0, ids...)
		r.InputLength, r.HashRanges, r.FineBlockSize, r.Replies = opt(tokens), h, 16, replies
		return r
	}
	first := row(0, []uint64{0}, 100, ranges(mooncake.HashRange{First: 0, Count: 7}))
	second := row(1, []uint64{1}, 64, ranges(mooncake.HashRange{First: 7, Count: 4}))
	third := row(2, []uint64{2}, 200, ranges(mooncake.HashRange{First: 0, Count: 6}, mooncake.HashRange{First: 11, Count: 7}),
		mooncake.Reply{Back: 2, At: 100, Tokens: 30})
	fourth := row(3, []uint64{3}, 300, ranges(mooncake.HashRange{First: 7, Count: 4}, mooncake.HashRange{First: 18, Count: 15}),
		mooncake.Reply{Back: 2, At: 64, Tokens: 30}, mooncake.Reply{Back: 1, At: 120, Tokens: 30})
	bad := row(4, []uint64{4}, 300, ranges(mooncake.HashRange{First: 7, Count: 4}))

	m, res := compileBytes(t, Options{}, journalOf(first, second, third, fourth, bad))
	rows := m.rows(t, "run r")
	for i, r := range []*journal.Inference{first, second, third, fourth} {
		equal(t, "ranges as sent", r.HashRanges, rows[i].HashRanges)
		equal(t, "replies as sent", r.Replies, rows[i].Replies)
	}
	equal(t, "ranges that are not those of the prompt", 0, len(rows[4].HashRanges))
	equal(t, "counted", int64(1), dropped(res.Traces[0].Meta.Dropped, lostRanges))
	equal(t, "fine block size", 16, res.Traces[0].Meta.FineBlockSize)

	m, res = compileBytes(t, Options{}, journalOf(first, third, fourth))
	rows = m.rows(t, "run r")
	equal(t, "the row before is one closer", []mooncake.Reply{{Back: 1, At: 100, Tokens: 30}}, rows[1].Replies)
	equal(t, "ids close up", ranges(mooncake.HashRange{First: 0, Count: 6}, mooncake.HashRange{First: 7, Count: 7}), rows[1].HashRanges)
	equal(t, "one reply is to a row that was not sent", []mooncake.Reply{{Back: 1, At: 120, Tokens: 30}}, rows[2].Replies)
	equal(t, "new ids", ranges(mooncake.HashRange{First: 14, Count: 19}), rows[2].HashRanges)
	equal(t, "counted", int64(1), dropped(res.Traces[0].Meta.Dropped, lostReply))

	m, _ = compileBytes(t, Options{Format: FormatMooncake}, journalOf(first, third, fourth))
	for _, r := range m.rows(t, "run r") {
		equal(t, "a plain row", 0, len(r.HashRanges)+len(r.Replies))
	}
	equal(t, "no fine block size", 0, m.meta(t, "run r").FineBlockSize)
}
