// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"

	"slices"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/mooncake"
)

// say appends a message to a conversation.
func (c *chat) say(role, text string) {
	c.messages = append(slices.Clip(c.messages), [2]string{role, text})
	c.tokens = tokenize(slices.Clip(c.tokens), role, text)
}

// few returns a few words, of some 30 bytes.
func (w *author) few() string {
	text := ""
	for range 2 + w.IntN(6) {
		text += w.words[w.IntN(len(w.words))] + " "
	}
	return text + "."
}

// smallTalk returns the requests of n conversations of up to 40 turns in which everybody says some 30 bytes, mixed.
func smallTalk(seed uint64, n int) []chat {
	w := newAuthor(seed)
	greeting := w.text(300)
	open, left := make([]chat, n), make([]int, n)
	for i := range open {
		open[i].say("system", greeting)
		left[i] = 10 + w.IntN(30)
	}
	var out []chat
	for len(open) > 0 {
		i := w.IntN(len(open))
		open[i].say("user", w.few())
		out = append(out, open[i])
		open[i].say("assistant", w.few())
		if left[i]--; left[i] == 0 {
			open, left = slices.Delete(open, i, i+1), slices.Delete(left, i, i+1)
		}
	}
	return out
}

// manyTools returns the requests of n agents that have one task, and call 6 to 20 tools between two requests. Each answers in a few words.
func manyTools(seed uint64, n int) []chat {
	w := newAuthor(seed)
	system := w.text(1500)
	open, left := make([]chat, n), make([]int, n)
	for i := range open {
		open[i].say("system", system)
		open[i].say("user", w.text(300))
		left[i] = 3 + w.IntN(10)
	}
	var out []chat
	for len(open) > 0 {
		i := w.IntN(len(open))
		out = append(out, open[i])
		open[i].say("assistant", w.text(100+w.IntN(200)))
		for range 6 + w.IntN(15) {
			open[i].say("tool", w.few())
		}
		if left[i]--; left[i] == 0 {
			open, left = slices.Delete(open, i, i+1), slices.Delete(left, i, i+1)
		}
	}
	return out
}

// edge makes records those that the receiver makes of the prompts, which keeps some of the ends of many short messages, and without counts
// of cached tokens if text alone is to tell. It returns how many ends there were, and are.
func edge(records []Record, counts bool) (were, are int) {
	for _, r := range records {
		r := r.(*Inference)
		were += len(r.Chain.Ends)
		r.Chain.Ends = r.Chain.KeptEnds()
		are += len(r.Chain.Ends)
		if !counts {
			r.CachedTokens = mooncake.Opt[int64]{}
		}
	}
	return were, are
}

// TestShortMessages: of many short messages few ends are recorded, and rows share as much as if all were: as an engine has it cached.
func TestShortMessages(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	for _, c := range []struct {
		name  string
		chats func(seed uint64, n int) []chat
		n     int
	}{{"small talk", smallTalk, 12}, {"agents", manyTools, 12}, {"long messages", conversations, 20}} {
		t.Run(c.name, func(t *testing.T) {
			chats := c.chats(5, c.n)
			compiled := func(kept bool) (rows []*mooncake.Row, truth []served, share float64) {
				records, truth := productionOf(t, h, chats, 1, asRecorded)
				were, are := 0, 1
				if kept {
					were, are = edge(records, false)
				} else {
					for _, r := range records {
						r.(*Inference).CachedTokens = mooncake.Opt[int64]{}
					}
				}
				var s rowsOnly
				if _, err := Compile(t.Context(), Options{TempDir: t.TempDir()}, s.sink, buffer("test", journal(records...))); err != nil {
					t.Fatal(err)
				}
				equal(t, "rows", len(chats), len(s.rows))
				return s.rows, truth, float64(are) / float64(max(were, 1))
			}
			measure := func(rows []*mooncake.Row, truth []served) (points float64, within, replies int) {
				prompt, had, got := 0, 0, 0
				for i, hit := range hits(t, rows, mooncake.BlockSize) {
					prompt, had, got = prompt+len(truth[i].prompt), had+truth[i].cached, got+hit
					if diff := hit - truth[i].cached; diff >= -FineBlockSize && diff <= FineBlockSize {
						within++
					}
					replies += len(rows[i].Replies)
				}
				return 100 * float64(got-had) / float64(prompt), 100 * within / len(rows), replies
			}
			all, truth, _ := compiled(false)
			kept, _, share := compiled(true)
			points, within, replies := measure(kept, truth)
			allPoints, allWithin, allReplies := measure(all, truth)
			t.Logf("%d requests, %.0f %% of the ends: %+.3f points, %d %% within a block, %d replies; all ends: %+.3f points, %d %%, %d replies",
				len(chats), 100*share, points, within, replies, allPoints, allWithin, allReplies)
			if math.Abs(points) > 0.5 || math.Abs(points-allPoints) > 0.1 || within < allWithin-1 || replies != allReplies {
				t.Error("want the hit rate of the engine within 0.5 points, and all as if all ends were known")
			}
			if replies == 0 || c.n == 12 && share > 0.25 {
				t.Error("this test measures nothing")
			}
		})
	}
}
