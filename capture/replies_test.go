// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// TestUnseenReplies: if telemetry lacks the reply to a prompt, the assistant's message that follows this prompt in a later one is taken for
// the reply, provided that only one request with an unseen reply had this prompt, and that the engine's count says that the message was
// cached.
func TestUnseenReplies(t *testing.T) {
	h := newHasher(t, blockhash.TextDomain)
	text := longText(20_000)
	question, answer, next := text[:2000], text[3000:4200], text[5000:5400] // 500, 300, 100 tokens
	prompt := func(reply bool, messages ...string) journal.Prompt {
		h.Reset()
		for i, m := range messages {
			h.Role([]string{"user", "assistant"}[i%2])
			h.Text(m)
		}
		c := h.Chain()
		c.Cells, c.Ends = slices.Clone(c.Cells), slices.Clone(c.Ends)
		p := journal.Prompt{Identity: journal.Text, Domain: 9, Chain: c}
		if reply {
			h.Role("assistant")
			h.Text(answer)
			p.Reply, _ = h.End()
		}
		return p
	}
	first := func(trace uint64, output int64, reply bool) *journal.Inference {
		return call(trace, 1, 0, int64(trace), tokens(500, output), func(r *journal.Inference) { r.Prompt = prompt(reply, question) })
	}
	second := func(said string, change ...func(*journal.Inference)) *journal.Inference {
		return call(9, 1, 0, 9000, tokens(910, 50), func(r *journal.Inference) {
			r.Prompt = prompt(false, question, said, next)
			for _, c := range change {
				c(r)
			}
		})
	}
	for _, c := range []struct {
		why     string
		records []journal.Record
		want    []mooncake.Reply
	}{
		{"the reply is known: no count is needed", []journal.Record{first(1, 300, true), second(answer)}, []mooncake.Reply{{Back: 1, At: 500, Tokens: 300}}},
		{"the reply is known, and differs", []journal.Record{first(1, 300, true), second(strings.ToUpper(answer), cached(790))}, nil},
		{"unseen, and the engine had it cached", []journal.Record{first(1, 300, false), second(answer, cached(790))}, []mooncake.Reply{{Back: 1, At: 500, Tokens: 300}}},
		{"unseen, and the engine does not say what it had cached", []journal.Record{first(1, 300, false), second(answer)}, nil},
		{"unseen, and the engine had only the prompt cached", []journal.Record{first(1, 300, false), second(answer, cached(496))}, nil},
		{"unseen, with a token count that does not fit its text", []journal.Record{first(1, 20, false), second(answer, cached(790))}, nil},
		{"unseen, of a prompt that two requests had", []journal.Record{first(1, 300, false), first(2, 300, false), second(answer, cached(790))}, nil},
	} {
		m, _ := compileBytes(t, Options{}, journalOf(c.records...))
		rows := m.rows(t, production)
		equal(t, c.why, c.want, rows[len(rows)-1].Replies)
	}
}
