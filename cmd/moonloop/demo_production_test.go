// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPlanProduction holds the demonstration's production to what it is for: conversations that share system prompts,
// prompts of several blocks, the same ones every time, and an end.
func TestPlanProduction(t *testing.T) {
	const length = 16 * time.Second
	plan := planProduction(length, 1)
	if diff := cmp.Diff(plan, planProduction(length, 1), cmp.AllowUnexported(conversation{}, turn{})); diff != "" {
		t.Errorf("two plans of one seed differ:\n%s", diff)
	}
	systems := map[string]int{}
	texts := map[string]bool{}
	var tokens, blocks int
	for _, c := range plan {
		systems[c.system]++
		prompt := len(strings.Fields(c.system))
		at := c.start
		for _, turn := range c.turns {
			at += turn.think
			prompt += len(strings.Fields(turn.question))
			if texts[turn.question] {
				t.Errorf("two questions are equal: %.60q", turn.question)
			}
			texts[turn.question] = true
			tokens += prompt
			blocks += prompt / 512
			if prompt < 900 || prompt > 12_000 {
				t.Errorf("a prompt of %d words: want a few thousand", prompt)
			}
			prompt += turn.reply
		}
		if at > length {
			t.Errorf("%s asks %s after the start, want within %s", c.id, at, length)
		}
	}
	if len(systems) != 2 {
		t.Errorf("%d system prompts, want 2", len(systems))
	}
	if n := turnsOf(plan); n < 50 || n > 200 || tokens/n < 1500 || tokens/n > 6000 {
		t.Errorf("%d prompts of %d words on average: want some 100 of some 3,000", n, tokens/n)
	}
	t.Logf("%d conversations, %d prompts, %d words, %d full blocks", len(plan), turnsOf(plan), tokens, blocks)
	for _, c := range planProduction(time.Second, 2) {
		if len(c.turns) == 0 {
			t.Errorf("%s asks nothing", c.id)
		}
	}
}

// TestTextSearch finds what the demonstration says is nowhere.
func TestTextSearch(t *testing.T) {
	p := newProse(3)
	texts := []string{p.system(200), p.question(300), "short"}
	search := newTextSearch(texts)
	if len(search) < 100 {
		t.Fatalf("%d pieces to look for", len(search))
	}
	for _, tc := range []struct {
		name string
		file string
		want bool
	}{
		{"nothing", "", false},
		{"numbers", strings.Repeat(`{"timestamp": 1, "input_length": 2, "output_length": 3, "hash_ids": [0, 1]}`, 20), false},
		{"another text", newProse(4).text(20, func() string { return "Something else altogether is written here." }), false},
		{"a whole text", texts[1], true},
		{"a piece in the middle of something", "\x00\x01{" + texts[0][100:131] + "}", true},
		{"a piece that is too short to be sure", texts[0][1:16], false},
	} {
		if got := search.in([]byte(tc.file)); got != tc.want {
			t.Errorf("%s: found is %v, want %v", tc.name, got, tc.want)
		}
	}
}
