// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

// TestKeptEnds: as many ends as allowed are kept, the most important ones, in the order of the text.
func TestKeptEnds(t *testing.T) {
	h := testHasher(t)
	short := func(roles ...string) (messages []message) {
		for _, role := range roles {
			messages = append(messages, message{role, "short"})
		}
		return messages
	}
	chat := slices.Repeat([]string{"user", "assistant"}, 6)
	tools := slices.Repeat([]string{"tool"}, 9)
	for _, c := range []struct {
		why      string
		messages []message
		want     []int
	}{
		{"no more ends than the minimum: all are kept", short("system", "user", "assistant", "user"), []int{0, 1, 2, 3}},
		{"the system text, and the last turn", short(slices.Concat([]string{"system"}, chat, []string{"user"})...), []int{0, 11, 12, 13}},
		{"no system text", short(append(slices.Clone(chat), "user")...), []int{9, 10, 11, 12}},
		{"a call of many tools", short(slices.Concat([]string{"system", "user", "assistant"}, tools)...), []int{0, 1, 2, 11}},
		{"only the user", short(slices.Repeat([]string{"user"}, 9)...), []int{5, 6, 7, 8}},
		{
			"a long system text, tools, a task, and two calls",
			append([]message{{"system", strings.Repeat("x", 3000)}}, short(slices.Concat([]string{"tools", "user", "assistant"}, tools, []string{"assistant"}, tools)...)...),
			[]int{0, 1, 2, 12, 13, 22},
		},
	} {
		chain := hash(h, c.messages)
		kept := chain.KeptEnds()
		want := make([]blockhash.End, 0, len(c.want))
		for _, i := range c.want {
			want = append(want, chain.Ends[i])
		}
		if len(want) < blockhash.MostEnds(chain.Bytes) && len(want) < len(chain.Ends) {
			t.Errorf("%s: %d ends may be kept", c.why, blockhash.MostEnds(chain.Bytes))
		}
		for _, e := range want {
			if !slices.Contains(kept, e) {
				t.Errorf("%s: kept %v, want %v", c.why, kept, want)
				break
			}
		}
	}
	r := rand.New(rand.NewPCG(9, 9))
	for range 300 {
		chain := hash(h, randomMessages(r, 1+r.IntN(40)))
		all := slices.Clone(chain.Ends)
		kept := chain.KeptEnds()
		if n := min(len(all), blockhash.MostEnds(chain.Bytes)); len(kept) != n || !slices.Equal(all, chain.Ends) {
			t.Fatalf("%d of %d ends are kept, want %d", len(kept), len(all), n)
		}
		last := kept[len(kept)-1]
		if chain.Ends = kept; last.Bytes != chain.Bytes || chain.Validate() != nil {
			t.Fatalf("ends %v are kept of %d bytes: %v", kept, chain.Bytes, chain.Validate())
		}
		if again := chain.KeptEnds(); !slices.Equal(again, kept) {
			t.Fatalf("of the kept ends %v, only %v are kept the second time", kept, again)
		}
	}
}
