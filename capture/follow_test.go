// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// movedLast returns a template that writes messages of some roles directly before the last message of the user.
func movedLast(roles ...string) func([][2]string) [][2]string {
	return func(messages [][2]string) [][2]string {
		var moved, out [][2]string
		for _, m := range messages {
			if slices.Contains(roles, m[0]) {
				moved = append(moved, m)
			} else {
				out = append(out, m)
			}
		}
		at := len(out) - 1
		for out[at][0] != "user" {
			at--
		}
		return slices.Insert(out, at, moved...)
	}
}

// withTools puts definitions of tools before the system text of conversations: one of three sets, by the system text.
func withTools(chats []chat) []chat {
	w := newAuthor(77)
	var kinds [3][][2]string
	for i := range kinds {
		for range 2 + i {
			kinds[i] = append(kinds[i], [2]string{"tools", w.text(300 + w.IntN(900))})
		}
	}
	of := map[string][][2]string{}
	for i, c := range chats {
		system := c.messages[0][1]
		if of[system] == nil {
			of[system] = kinds[len(of)%len(kinds)]
		}
		chats[i].messages = slices.Concat(of[system], c.messages)
	}
	return chats
}

// ofModel sets the model of requests, and makes their trace ids differ from those of requests for other models.
func ofModel(t *testing.T, records []journal.Record, model string, trace uint64) []journal.Record {
	t.Helper()
	for _, r := range records {
		r := r.(*journal.Inference)
		r.Model = name(t, model)
		r.Span.TraceID[0] = byte(trace)
	}
	return records
}

// TestFollow: a trace shares what the engine had cached, even if its template writes prompts in a different order than telemetry shows.
func TestFollow(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	for _, c := range []struct {
		why   string
		want  journal.PromptOrder
		tools bool
		moved []string
	}{
		{"system text last", journal.SystemLast, false, []string{"system"}},
		{"system text last, tools first", journal.SystemLast, true, []string{"system"}},
		{"tools last", journal.ToolsLast, true, []string{"tools"}},
		{"both last", journal.BothLast, true, []string{"tools", "system"}},
	} {
		if testing.Short() && c.want != journal.BothLast {
			continue
		}
		chats := conversations(uint64(len(c.why)), 30)
		if c.tools {
			chats = withTools(chats)
		}
		records, truth := productionOf(t, h, chats, 16, movedLast(c.moved...))
		ofModel(t, records, "m", 1)
		for _, follow := range []FollowEngine{FollowNever, FollowAuto} {
			m, res := compileBytes(t, Options{FollowEngine: follow}, journalOf(records...))
			prompt, had, got, within := 0, 0, 0, 0
			for i, hit := range hits(t, m.rows(t, production), mooncake.BlockSize) {
				hit = hit / 16 * 16
				prompt, had, got = prompt+len(truth[i].prompt), had+truth[i].cached, got+hit
				if diff := hit - truth[i].cached; diff >= -16 && diff <= 16 {
					within++
				}
			}
			points := 100 * float64(got-had) / float64(prompt)
			t.Logf("%s, %s: %d requests, cached %.2f %%, by the trace %+.2f points; within a block %.1f %%; %s", c.why, follow, len(truth),
				100*float64(had)/float64(prompt), points, 100*float64(within)/float64(len(truth)), res.Traces[0].Meta.Transformations[0].Effect)
			order := res.Traces[0].Meta.Transformations[0].Parameters["prompt_order"]
			switch {
			case follow == FollowNever:
				if points < 5 || order != nil {
					t.Errorf("%s: %+.1f points and order %v in telemetry's order: the test proves nothing", c.why, points, order)
				}
			case points < -2 || points > 2 || 100*within < 95*len(truth):
				t.Errorf("%s: want the hit rate within 2 points, and 95 of 100 requests within a block", c.why)
			default:
				equal(t, c.why, any(map[string]journal.PromptOrder{"m": c.want}), order)
			}
		}
	}
}

// TestFollowEach: of two models, the one whose engine reorders is followed; the other one's rows do not change.
func TestFollowEach(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	one, _ := productionOf(t, h, conversations(3, 12), 16, movedLast("system"))
	two, _ := productionOf(t, h, conversations(4, 12), 16, asRecorded)
	records := slices.Concat(ofModel(t, one, "one", 1), ofModel(t, two, "two", 2))
	auto, res := compileBytes(t, Options{}, journalOf(records...))
	equal(t, "orders", any(map[string]journal.PromptOrder{"one": journal.SystemLast}), res.Traces[0].Meta.Transformations[0].Parameters["prompt_order"])
	never, _ := compileBytes(t, Options{FollowEngine: FollowNever}, journalOf(records...))
	hit := func(rows []*mooncake.Row, model string) (out []int) {
		for i, n := range hits(t, rows, mooncake.BlockSize) {
			if rows[i].Model == model {
				out = append(out, n)
			}
		}
		return out
	}
	before, after := never.rows(t, production), auto.rows(t, production)
	equal(t, "the model that does not reorder", hit(before, "two"), hit(after, "two"))
	if slices.Equal(hit(before, "one"), hit(after, "one")) {
		t.Error("the model that reorders shares the same")
	}
	// However much memory there is.
	small, _ := compileBytes(t, Options{Memory: 1 << 12}, journalOf(records...))
	equal(t, "in 4 KiB", string(auto[production]), string(small[production]))
}

// TestFollowNothing: no order explains what an engine lacks because its cache is small, because there are several engines, or because it
// does not cache.
func TestFollowNothing(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	records, _ := productionOf(t, h, conversations(5, 25), 16, asRecorded)
	rng := rand.New(rand.NewPCG(4, 4))
	for _, c := range []struct {
		why  string
		lose func(cached int64) int64
	}{
		{"evicted occasionally", func(cached int64) int64 {
			if rng.IntN(3) == 0 {
				return rng.Int64N(cached+1) / 16 * 16
			}
			return cached
		}},
		{"another replica occasionally", func(cached int64) int64 {
			if rng.IntN(2) == 0 {
				return 0
			}
			return cached
		}},
		{"never cached", func(int64) int64 { return 0 }},
	} {
		var lost []journal.Record
		for _, r := range records {
			one := *r.(*journal.Inference)
			one.CachedTokens.V = c.lose(one.CachedTokens.V)
			lost = append(lost, &one)
		}
		auto, res := compileBytes(t, Options{}, journalOf(lost...))
		never, _ := compileBytes(t, Options{FollowEngine: FollowNever}, journalOf(lost...))
		equal(t, c.why, string(never[production]), string(auto[production]))
		if m := res.Traces[0].Meta; m.Transformations[0].Parameters["prompt_order"] != nil || m.ObservedCache.Warning(m.BlockSize) == "" {
			t.Errorf("%s: %+v, warning %q", c.why, m.Transformations, m.ObservedCache.Warning(m.BlockSize))
		}
	}
}

// errands returns the requests of n conversations in which the assistant calls tools: a request follows each result.
func errands(seed uint64, n int) (chats []chat) {
	w := newAuthor(seed)
	systems := []string{w.text(3000), w.text(1200), w.text(6000)}
	for i := range n {
		m := [][2]string{{"system", systems[i%len(systems)]}}
		for range 1 + w.IntN(5) {
			m = append(m, [2]string{"user", w.text(100 + w.IntN(600))})
			chats = append(chats, chat{messages: slices.Clone(m)})
			for range w.IntN(4) {
				m = append(m, [2]string{"assistant", w.text(80 + w.IntN(300))}, [2]string{"tool", w.text(200 + w.IntN(2000))})
				chats = append(chats, chat{messages: slices.Clone(m)})
			}
			m = append(m, [2]string{"assistant", w.text(100 + w.IntN(900))})
		}
	}
	return chats
}

// TestFollowReplies: a reply after the last message of the user is in the cache in either order, and the rows say so.
func TestFollowReplies(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	records, truth := productionOf(t, h, errands(6, 30), 16, movedLast("system"))
	m, res := compileBytes(t, Options{}, journalOf(records...))
	rows, replies, within := m.rows(t, production), 0, 0
	for i, hit := range hits(t, rows, mooncake.BlockSize) {
		if diff := hit/16*16 - truth[i].cached; diff >= -16 && diff <= 16 {
			within++
		}
		for _, r := range rows[i].Replies {
			of := rows[i-int(r.Back)]
			if n := of.InputLength.V; r.At != n || !slices.Equal(truth[i].prompt[:n], truth[i-int(r.Back)].prompt) {
				t.Errorf("row %d: reply %+v to a different prompt than it begins with", i, r)
			}
			replies++
		}
	}
	t.Logf("%d requests, %d within a block, %d replies; %s", len(rows), within, replies, res.Traces[0].Meta.Transformations[0].Effect)
	if res.Traces[0].Meta.Transformations[0].Parameters["prompt_order"] == nil || 100*within < 95*len(rows) || replies == 0 {
		t.Error("want the order followed, 95 of 100 requests within a block, and replies")
	}
}

// TestFollowByChance: with few turns, and a system text for each conversation or for few, no loss looks like another order.
func TestFollowByChance(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	for seed := range uint64(12) {
		w := newAuthor(seed)
		common := []string{w.text(400 + w.IntN(9000)), w.text(400 + w.IntN(9000)), w.text(400 + w.IntN(9000))}
		var chats []chat
		for range 15 {
			system := common[w.IntN(len(common))]
			if seed%2 == 0 {
				system = w.text(1000 + w.IntN(9000))
			}
			m := [][2]string{{"system", system}}
			for range 1 + w.IntN(4) {
				m = append(m, [2]string{"user", w.text(40 + w.IntN(900))})
				chats = append(chats, chat{messages: slices.Clone(m)})
				m = append(m, [2]string{"assistant", w.text(60 + w.IntN(600))})
			}
		}
		records, _ := productionOf(t, h, chats, 16, asRecorded)
		for i, lose := range []func(cached int64) int64{
			func(cached int64) int64 { return cached * int64(w.IntN(2)) },
			func(cached int64) int64 { return w.Int64N(cached+1) / 16 * 16 },
			func(cached int64) int64 { return cached * 7 / 10 / 16 * 16 },
			func(cached int64) int64 { return min(cached, 512) },
		} {
			var lost []journal.Record
			for _, r := range records {
				one := *r.(*journal.Inference)
				one.CachedTokens.V = lose(one.CachedTokens.V)
				lost = append(lost, &one)
			}
			_, res := compileBytes(t, Options{}, journalOf(lost...))
			if effect := res.Traces[0].Meta.Transformations[0].Effect; effect != "" {
				t.Errorf("seed %d, loss %d: %s", seed, i, effect)
			}
		}
	}
}
