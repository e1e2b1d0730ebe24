// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// say appends a message to a conversation.
func (c *chat) say(role, text string) {
	c.messages = append(slices.Clip(c.messages), [2]string{role, text})
	c.tokens = tokenize(slices.Clip(c.tokens), role, text)
}

// few returns a few words, of about 30 bytes.
func (w *author) few() string {
	text := ""
	for range 2 + w.IntN(6) {
		text += w.words[w.IntN(len(w.words))] + " "
	}
	return text + "."
}

// smallTalk returns the requests of n mixed conversations of up to 40 turns, in which each message has about 30 bytes.
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

// manyTools returns the requests of n agents with one system prompt and a task each, which call 6 to 20 tools between two requests. Each
// tool answers in a few words.
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

// asReceived changes records to those that a receiver makes. If kept is set, only some of the ends of many short messages are left. The
// records get no counts of cached tokens, so that only text counts. It returns how many ends there were, and how many there are.
func asReceived(records []journal.Record, kept bool) (were, are int) {
	for _, r := range records {
		r := r.(*journal.Inference)
		r.CachedTokens = mooncake.Opt[int64]{}
		were += len(r.Chain.Ends)
		if kept {
			r.Chain.Ends = r.Chain.KeptEnds()
		}
		are += len(r.Chain.Ends)
	}
	return were, are
}

// sampled returns a function that returns about one in three of the requests of chats, as if telemetry were sampled.
func sampled(chats func(seed uint64, n int) []chat) func(seed uint64, n int) []chat {
	return func(seed uint64, n int) (out []chat) {
		w := newAuthor(seed)
		for _, c := range chats(seed, n) {
			if w.IntN(3) == 0 {
				out = append(out, c)
			}
		}
		return out
	}
}

// TestShortMessages: if there are many short messages, few ends are recorded, but rows share as much as with all of them, and as an engine
// has cached. If telemetry lacks requests, they share somewhat less.
func TestShortMessages(t *testing.T) {
	otherInput(t)
	h := newHasher(t, blockhash.TextDomain)
	for _, c := range []struct {
		name  string
		chats func(seed uint64, n int) []chat
		most  float64 // maximum share of the ends that are kept
		price float64 // points less than with all ends: if turns are missing from the telemetry, their replies and borders are known only to a cell
	}{
		{"small talk", smallTalk, 0.25, 0.2},
		{"small talk, sampled", sampled(smallTalk), 0.25, 5},
		{"agents", manyTools, 0.25, 0.2},
		{"agents, sampled", sampled(manyTools), 0.25, 4},
		{"long messages", conversations, 1, 0.2},
	} {
		t.Run(c.name, func(t *testing.T) {
			chats := c.chats(5, 16)
			type result struct {
				points, prompts, share float64 // error of the hit rate; hit rate by prompts alone; share of the ends
				within, replies        int
			}
			compiled := func(kept bool) (r result) {
				records, truth := productionOf(t, h, chats, 1, asRecorded)
				were, are := asReceived(records, kept)
				var s rowsOnly
				if _, err := Compile(t.Context(), Options{TempDir: t.TempDir()}, s.sink, buffer("test", journalOf(records...))); err != nil {
					t.Fatal(err)
				}
				equal(t, "rows", len(chats), len(s.rows))
				hits(t, s.rows, mooncake.BlockSize) // ids that contradict one another end the test
				p := stats.NewPredictor(stats.PredictorOptions{FineBlockSize: FineBlockSize})
				prompt, had, got, alone := 0, 0, 0, 0
				for i, row := range s.rows {
					predicted, _ := p.Predict(row)
					hit, want := int(predicted.Finest), truth[i].cached
					prompt, had, got, alone = prompt+len(truth[i].prompt), had+want, got+hit, alone+int(p.WithoutReplies())
					if hit-want >= -FineBlockSize && hit-want <= FineBlockSize {
						r.within++
					}
					r.replies += len(row.Replies)
				}
				percent := func(n, of int) float64 { return 100 * float64(n) / float64(of) }
				r.points, r.prompts, r.share = percent(got-had, prompt), percent(alone, prompt), float64(are)/float64(were)
				r.within = 100 * r.within / len(chats)
				return r
			}
			all, kept := compiled(false), compiled(true)
			t.Logf("%d requests, %.0f %% of the ends: %+.3f points, %d %% within a block, %.2f %% by prompts alone, %d replies; all ends: %+.3f points, %d %%, %.2f %%, %d replies",
				len(chats), 100*kept.share, kept.points, kept.within, kept.prompts, kept.replies, all.points, all.within, all.prompts, all.replies)
			if math.Abs(all.points) > 0.5 || math.Abs(kept.points-all.points) > c.price || math.Abs(kept.prompts-all.prompts) > c.price {
				t.Errorf("want the hit rate of the engine within 0.5 points with all ends, and that within %.1f with those that are kept", c.price)
			}
			if c.price < 1 && (kept.within < all.within-1 || kept.replies < all.replies*99/100) {
				t.Error("want as many requests within a block, and the replies that are found with all ends")
			}
			if all.replies == 0 || kept.share > c.most {
				t.Error("this test measures nothing")
			}
		})
	}
}
