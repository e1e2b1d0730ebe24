// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// inOrder sets the order of requests, as a receiver that is configured with it does.
func inOrder(records []journal.Record, order journal.PromptOrder) []journal.Record {
	for _, r := range records {
		r.(*journal.Inference).Order = order
	}
	return records
}

// uncounted removes the counts of cached tokens.
func uncounted(records []journal.Record) []journal.Record {
	for _, r := range records {
		r.(*journal.Inference).CachedTokens = mooncake.Opt[int64]{}
	}
	return records
}

// desks returns the requests of n conversations at two desks, each desk with its own system text and, if wanted, tools.
func desks(seed uint64, n int, tools bool) (chats []chat) {
	w := newAuthor(seed)
	var heads [2][][2]string
	for i := range heads {
		if tools {
			heads[i] = append(heads[i], [2]string{"tools", w.text(900)}, [2]string{"tools", w.text(400)})
		}
		heads[i] = append(heads[i], [2]string{"system", w.text(2500 + 1500*i)})
	}
	for i := range n {
		m := slices.Clone(heads[i%2])
		for range 2 + w.IntN(4) {
			m = append(m, [2]string{"user", w.text(60 + w.IntN(500))})
			chats = append(chats, chat{messages: slices.Clone(m)})
			m = append(m, [2]string{"assistant", w.text(100 + w.IntN(1200))})
		}
	}
	return chats
}

// TestDeclaredOrder: if the receiver is configured with the order of a model's template, rows share what their prompts share in that order,
// even with no count of cached tokens or too few to decide.
func TestDeclaredOrder(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	for _, c := range []struct {
		why   string
		order journal.PromptOrder
		tools bool
		moved []string
	}{
		{"as sent", journal.AsSent, true, nil},
		{"system text last", journal.SystemLast, false, []string{"system"}},
		{"system text last, tools first", journal.SystemLast, true, []string{"system"}},
		{"tools last", journal.ToolsLast, true, []string{"tools"}},
		{"both last", journal.BothLast, true, []string{"tools", "system"}},
	} {
		template := asRecorded
		if c.moved != nil {
			template = movedLast(c.moved...)
		}
		for _, counts := range []int{0, leastCounts - 1} {
			records, truth := productionOf(t, h, desks(uint64(len(c.why)), 12, c.tools), 16, template)
			ofModel(t, records, "m", 1)
			for i, r := range records {
				if (i+1)*counts/len(records) == i*counts/len(records) {
					r.(*journal.Inference).CachedTokens = mooncake.Opt[int64]{}
				}
			}
			off := func(order journal.PromptOrder, follow FollowEngine) (points, within float64, told any) {
				m, res := compileBytes(t, Options{FollowEngine: follow}, journalOf(inOrder(records, order)...))
				prompt, had, got, near := 0, 0, 0, 0
				for i, hit := range hits(t, m.rows(t, production), mooncake.BlockSize) {
					hit = hit / 16 * 16
					prompt, had, got = prompt+len(truth[i].prompt), had+truth[i].cached, got+hit
					if diff := hit - truth[i].cached; diff >= -16 && diff <= 16 {
						near++
					}
				}
				return 100 * float64(got-had) / float64(prompt), 100 * float64(near) / float64(len(truth)),
					res.Traces[0].Meta.Transformations[0].Parameters["prompt_order"]
			}
			if points, _, told := off("", FollowAuto); c.order != journal.AsSent && (points < 5 || told != nil) {
				t.Errorf("%s: %+.1f points and order %v although none was declared: the test proves nothing", c.why, points, told)
			}
			points, within, told := off(c.order, FollowAuto)
			t.Logf("%s, %d counts: %d requests, by the trace %+.2f points; within a block %.1f %%", c.why, counts, len(truth), points, within)
			// Without a count, it is unknown how many of the tokens belong to the tools, and how many to the system text.
			if most := map[bool]float64{true: 1, false: 6}[counts > 0]; points < -most || points > most || counts > 0 && within < 95 {
				t.Errorf("%s, %d counts: %+.2f points, %.1f %% within a block: want %.0f points at most, and with counts 95 %%", c.why, counts, points, within, most)
			}
			equal(t, c.why, any(map[string]journal.PromptOrder{"m": c.order}), told)
			if points, _, told := off(c.order, FollowNever); c.order != journal.AsSent && (points < 5 || told != nil) {
				t.Errorf("%s: %+.1f points and order %v with never", c.why, points, told)
			}
		}
	}
}

// sharedWith returns how many fine blocks the rows of one kind have in common with those of another one.
func sharedWith(rows []*mooncake.Row, one, other func(*mooncake.Row) bool) (n int) {
	ids := map[uint64]bool{}
	for _, row := range rows {
		if one(row) {
			for _, id := range fineIDs(row) {
				ids[id] = true
			}
		}
	}
	for _, row := range rows {
		if other(row) {
			for _, id := range fineIDs(row) {
				if ids[id] {
					n++
				}
			}
		}
	}
	return n
}

// TestDeclaredOrders: requests for one model that name different orders share nothing with each other; those that name none have the one
// order that others of the model name.
func TestDeclaredOrders(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	half := func(rest journal.PromptOrder) []journal.Record {
		records, _ := productionOf(t, h, desks(3, 6, false), 16, movedLast("system"))
		uncounted(ofModel(t, records, "m", 1))
		for i, r := range records {
			one := r.(*journal.Inference)
			if one.Order = journal.SystemLast; i%2 == 1 {
				one.Order = rest
				one.Finish = name(t, "odd")
			}
		}
		return records
	}
	odd := func(row *mooncake.Row) bool { return row.Observed.FinishReason == "odd" }
	even := func(row *mooncake.Row) bool { return !odd(row) }

	both, res := compileBytes(t, Options{}, journalOf(half(journal.SystemLast)...))
	if n := sharedWith(both.rows(t, production), even, odd); n == 0 {
		t.Error("requests of one order have nothing in common: the test says nothing")
	}
	equal(t, "one order", any(map[string]journal.PromptOrder{"m": journal.SystemLast}), res.Traces[0].Meta.Transformations[0].Parameters["prompt_order"])
	some, _ := compileBytes(t, Options{}, journalOf(half("")...))
	equal(t, "an order that half of the requests name", string(both[production]), string(some[production]))

	two, res := compileBytes(t, Options{}, journalOf(half(journal.AsSent)...))
	if n := sharedWith(two.rows(t, production), even, odd); n != 0 {
		t.Errorf("requests of two orders have %d blocks in common", n)
	}
	equal(t, "two orders", any(map[string]journal.PromptOrder{"m": "as_sent,system_last"}), res.Traces[0].Meta.Transformations[0].Parameters["prompt_order"])
	records := half(journal.AsSent)
	slices.Reverse(records)
	again, _ := compileBytes(t, Options{}, journalOf(records...))
	equal(t, "in the reverse order of records", string(two[production]), string(again[production]))
}

// TestDeclaredWithoutEnds: if the ends of messages are unknown, a text cannot be put in the declared order, so it shares nothing.
func TestDeclaredWithoutEnds(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	records, _ := productionOf(t, h, desks(3, 6, false), 16, movedLast("system"))
	for _, r := range inOrder(uncounted(records), journal.SystemLast) {
		r.(*journal.Inference).Chain.Ends, r.(*journal.Inference).Reply = nil, blockhash.End{}
	}
	m, _ := compileBytes(t, Options{}, journalOf(records...))
	for i, hit := range hits(t, m.rows(t, production), mooncake.BlockSize) {
		if hit != 0 {
			t.Errorf("row %d shares %d tokens", i, hit)
		}
	}
}

// TestDeclaredAbove: a request has the order that the span of its client names, even if the engine's own span is used.
func TestDeclaredAbove(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	records, _ := productionOf(t, h, desks(3, 6, false), 16, movedLast("system"))
	uncounted(ofModel(t, records, "m", 1))
	want, _ := compileBytes(t, Options{}, journalOf(inOrder(slices.Clone(records), journal.SystemLast)...))
	hit := func(m memory) []int { return hits(t, m.rows(t, production), mooncake.BlockSize) }
	for name, join := range map[string]func(client, engine *journal.Inference){
		"below": func(client, engine *journal.Inference) { engine.Parent = client.Span.SpanID },
		"by the response": func(client, engine *journal.Inference) {
			client.Response = journal.ResponseOf(string(client.Span.TraceID[:]))
			engine.Response = client.Response
			engine.Span.TraceID[1] = 7
		},
	} {
		var both []journal.Record
		for _, r := range records {
			client := *r.(*journal.Inference)
			engine := client
			engine.Span.SpanID, engine.Prompt, engine.Order = sid(9), journal.Prompt{Identity: journal.None}, ""
			engine.Start, engine.End = engine.Start+10, engine.End-10
			join(&client, &engine)
			both = append(both, &client, &engine)
		}
		got, _ := compileBytes(t, Options{}, journalOf(both...))
		equal(t, name, hit(want), hit(got))
	}
}
