// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
)

// TestContents tests prompts that are in log records.
func TestContents(t *testing.T) {
	const bytesPerBlock = 2048 // of 512 tokens
	text := longText(8 * bytesPerBlock)
	chainOf := func(from, to int) journal.Prompt {
		return journal.Prompt{Identity: journal.Text, Domain: 9, Chain: chain(t, text[from*bytesPerBlock:to*bytesPerBlock])}
	}
	whole := func(trace uint64, blocks int, ms int64) *journal.Inference {
		return call(trace, 1, 0, ms, tokens(int64(blocks*512), 1), func(r *journal.Inference) { r.Prompt = chainOf(0, blocks) })
	}
	seen := func(trace uint64, blocks int, ms int64, change ...func(*journal.Inference)) *journal.Inference {
		return call(trace, 1, 0, ms, append(change, tokens(int64(blocks*512), 1), func(r *journal.Inference) { r.Identity = journal.None })...)
	}
	part := func(trace, span uint64, ms int64, p journal.Prompt) *journal.Content {
		return &journal.Content{Span: ref(trace, span), Parent: sid(1), Start: at(ms), Prompt: p}
	}
	for _, c := range []struct {
		why     string
		records []journal.Record
		shared  int // leading ids that the two rows have in common
		lost    map[loss]int64
	}{
		{"one record with the whole prompt", []journal.Record{whole(1, 4, 0), seen(2, 4, 1), part(2, 2, 1, chainOf(0, 4))}, 4, nil},
		{
			"two parts: the first is known as far as another prompt has it",
			[]journal.Record{whole(1, 6, 0), seen(2, 6, 1), part(2, 3, 1, chainOf(0, 3)), part(2, 2, 2, chainOf(3, 6))},
			2,
			map[loss]int64{lostPart: 1, lostRest: 1}, // a border is half a cell late: the third block is longer than the part
		},
		{
			"the second part begins like another prompt, but is not mistaken for it",
			[]journal.Record{
				call(1, 1, 0, 0, tokens(512*3, 1), func(r *journal.Inference) { r.Prompt = chainOf(3, 6) }),
				seen(2, 6, 1), part(2, 2, 9, chainOf(3, 6)), part(2, 3, 1, chainOf(0, 3)),
			},
			0,
			map[loss]int64{lostPart: 1, lostRest: 1},
		},
		{
			"two parts with the same time: neither is used",
			[]journal.Record{whole(1, 6, 0), seen(2, 6, 1), part(2, 3, 1, chainOf(0, 3)), part(2, 2, 1, chainOf(3, 6))},
			0,
			map[loss]int64{lostPart: 2},
		},
		{
			"the same part twice is one part, of the earlier time",
			[]journal.Record{
				whole(1, 6, 0), seen(2, 6, 1), part(2, 2, 5, chainOf(0, 3)), part(2, 3, 4, chainOf(3, 6)), part(2, 4, 3, chainOf(0, 3)),
			},
			2,
			map[loss]int64{lostPart: 1, lostSecond: 1, lostRest: 1},
		},
		{
			"a span that has its prompt needs no part",
			[]journal.Record{whole(1, 4, 0), whole(2, 4, 1), part(2, 2, 1, chainOf(0, 3))},
			4,
			map[loss]int64{lostSecond: 1},
		},
		{
			"a beginning that no prompt shares",
			[]journal.Record{whole(1, 4, 0), call(2, 1, 0, 1, func(r *journal.Inference) { r.Prompt = chainOf(5, 7); r.Prefix = true })},
			0,
			map[loss]int64{lostRest: 1},
		},
		{
			"two beginnings, cut at the same place: their continuations are unknown",
			[]journal.Record{
				call(1, 1, 0, 0, func(r *journal.Inference) { r.Prompt = chainOf(0, 2); r.Prefix = true }),
				call(2, 1, 0, 1, func(r *journal.Inference) { r.Prompt = chainOf(0, 2); r.Prefix = true }),
			},
			0,
			map[loss]int64{lostRest: 2},
		},
		{
			"another model is another tokenizer",
			[]journal.Record{whole(1, 4, 0), seen(2, 4, 1, func(r *journal.Inference) { r.Model = name(t, "other") }), part(2, 2, 1, chainOf(0, 4))},
			0, nil,
		},
		{
			"another domain is another key",
			[]journal.Record{whole(1, 4, 0), func() journal.Record { r := whole(2, 4, 1); r.Domain = 10; return r }()},
			0, nil,
		},
		{
			"a receiver found nothing that identifies the prompt: the record's cells are ignored",
			[]journal.Record{whole(1, 4, 0), func() journal.Record { r := whole(2, 4, 1); r.Identity = journal.None; return r }()},
			0, nil,
		},
	} {
		m, res := compileBytes(t, Options{}, journalOf(c.records...))
		rows := m.rows(t, production)
		if len(rows) != 2 {
			t.Fatalf("%s: %d rows", c.why, len(rows))
		}
		shared := 0
		for _, id := range rows[1].HashIDs {
			if slices.Contains(rows[0].HashIDs, id) {
				shared++
			}
		}
		equal(t, c.why+": shared", c.shared, shared)
		for _, l := range []loss{lostPart, lostSecond, lostRest, lostOrphan, lostCells} {
			equal(t, c.why+": "+l.reason, c.lost[l], dropped(res.Traces[0].Meta.Dropped, l))
		}
	}
}

// longText returns n bytes that do not repeat.
func longText(n int) string {
	return newAuthor(9).text(n)[:n]
}

// TestEstimatesAreNoAnchors: estimates never displace counts.
func TestEstimatesAreNoAnchors(t *testing.T) {
	text := longText(40_000)
	with := func(n int) func(*journal.Inference) {
		c := chain(t, text[:n])
		return func(r *journal.Inference) { r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: c} }
	}
	counted := []journal.Record{call(1, 1, 0, 0, with(30_000), tokens(15_000, 1)), call(2, 1, 0, 1, with(40_000), tokens(20_000, 1))}
	m, _ := compileBytes(t, Options{MissingTokens: MissingEstimate}, journalOf(counted...))
	want := m.rows(t, production)
	// Counts of other text halve the estimate, which would decide the borders of the shorter prompt.
	other := call(4, 1, 0, 3, tokens(100, 1), func(r *journal.Inference) {
		r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 9, Chain: chain(t, longText(90_000)[50_000:])}
	})
	guess := call(3, 1, 0, 2, with(20_000), noTokens, inSession(4))
	m, _ = compileBytes(t, Options{MissingTokens: MissingEstimate}, journalOf(append(counted, other, guess)...))
	got := m.rows(t, production)
	equal(t, "rows", 4, len(got))
	equal(t, "ids", [][]uint64{want[0].HashIDs, want[1].HashIDs}, [][]uint64{got[0].HashIDs, got[1].HashIDs})
	if n := got[2].InputLength.V; n < 1000 || n > 8000 {
		t.Errorf("%d tokens estimated", n)
	}
}
