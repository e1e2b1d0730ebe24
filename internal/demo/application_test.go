// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPlanProduction checks that production has what the demonstration needs: conversations that share system prompts, prompts of several
// blocks, the same conversations every time, and an end in time.
func TestPlanProduction(t *testing.T) {
	const length = 16 * time.Second
	plan := Plan(length, 1)
	if diff := cmp.Diff(plan, Plan(length, 1), cmp.AllowUnexported(Conversation{}, Turn{})); diff != "" {
		t.Errorf("two plans of one seed differ:\n%s", diff)
	}
	systems := map[string]int{}
	texts := map[string]bool{}
	var tokens, blocks int
	for _, c := range plan {
		systems[c.System]++
		prompt := len(strings.Fields(c.System))
		at := c.Start
		for _, turn := range c.Turns {
			at += turn.Think
			prompt += len(strings.Fields(turn.Question))
			if texts[turn.Question] {
				t.Errorf("two questions are equal: %.60q", turn.Question)
			}
			texts[turn.Question] = true
			tokens += prompt
			blocks += prompt / 512
			if prompt < 900 || prompt > 12_000 {
				t.Errorf("a prompt of %d words: want a few thousand", prompt)
			}
			prompt += turn.Reply
		}
		if at > length {
			t.Errorf("%s asks %s after the start, want within %s", c.ID, at, length)
		}
	}
	if len(systems) != 2 {
		t.Errorf("%d system prompts, want 2", len(systems))
	}
	if n := Turns(plan); n < 50 || n > 200 || tokens/n < 1500 || tokens/n > 6000 {
		t.Errorf("%d prompts of %d words on average: want about 100 prompts of about 3,000 words", n, tokens/n)
	}
	t.Logf("%d conversations, %d prompts, %d words, %d full blocks", len(plan), Turns(plan), tokens, blocks)
	for _, c := range Plan(time.Second, 2) {
		if len(c.Turns) == 0 {
			t.Errorf("%s asks nothing", c.ID)
		}
	}
}

// TestTextSearch: the search finds texts of the kind that the demonstration claims to be in no file.
func TestTextSearch(t *testing.T) {
	p := NewProse(3)
	texts := []string{p.System(200), p.Question(300), "short"}
	search := NewSearch(texts)
	if len(search) < 100 {
		t.Fatalf("%d pieces to look for", len(search))
	}
	for _, tc := range []struct {
		name string
		file string
		want bool
	}{
		{"an empty file", "", false},
		{"a trace", strings.Repeat(`{"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": [0, 1]}`, 20), false},
		{"another text", NewProse(4).text(20, func() string { return "Something else altogether is written here." }), false},
		{"a whole text", texts[1], true},
		{"a piece in the middle of something", "\x00\x01{" + texts[0][100:131] + "}", true},
		{"a piece that is too short to be sure", texts[0][1:16], false},
	} {
		if got := search.In([]byte(tc.file)); got != tc.want {
			t.Errorf("%s: found is %v, want %v", tc.name, got, tc.want)
		}
	}
}
