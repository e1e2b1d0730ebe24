// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

func TestLayouts(t *testing.T) {
	const seed, block, index = 77, 16, 5
	private := func(k int64) uint64 { return privateID(index, k) }
	for _, tt := range []struct {
		why      string
		overhead int
		row      *mooncake.Row
		blocks   []uint64 // that the words come from
		words    int
		tooShort bool
		tailCut  bool
	}{
		{"exact tile", 1, lengthRow(33, 1, 4, 5), []uint64{4, 5, private(2)}, 32, false, false},
		{"exact tile less the overhead", 4, lengthRow(32, 1, 4, 5), []uint64{4, 5}, 28, false, false},
		{"partial last block", 1, lengthRow(41, 1, 4, 5, 6), []uint64{4, 5, 6}, 40, false, false},
		{"ids for the beginning only: the rest is the row's own", 1, lengthRow(60, 1, 4, 5), []uint64{4, 5, private(2), private(3)}, 59, false, false},
		{"no ids: everything is the row's own", 1, lengthRow(40, 1), []uint64{private(0), private(1), private(2)}, 39, false, false},
		{"more ids than blocks: only the first ids count", 1, lengthRow(20, 1, 4, 5, 6, 7), []uint64{4, 5}, 19, false, false},
		{"ids at the ends of 64 bits", 1, lengthRow(20, 1, 1<<63, 1<<64-1), []uint64{1 << 63, 1<<64 - 1}, 19, false, false},
		{"last block as long as the overhead: it is gone, the one before is whole", 8, lengthRow(40, 1, 4, 5, 6), []uint64{4, 5}, 32, false, true},
		{"last block shorter than the overhead: the one before is cut too", 10, lengthRow(40, 1, 4, 5, 6), []uint64{4, 5}, 30, false, true},
		{"last block longer than the overhead", 7, lengthRow(40, 1, 4, 5, 6), []uint64{4, 5, 6}, 33, false, false},
		{"what the overhead takes was the row's own", 8, lengthRow(40, 1, 4, 5), []uint64{4, 5}, 32, false, false},
		{"room for one word", 9, lengthRow(10, 1, 4), []uint64{4}, 1, false, false},
		{"no room: one word nevertheless", 10, lengthRow(10, 1, 4), []uint64{4}, 1, true, false},
		{"shorter than the overhead", 100, lengthRow(10, 1, 4), []uint64{4}, 1, true, false},
		{"no overhead given: the anchor counts", 0, lengthRow(10, 1, 4), []uint64{4}, 9, false, false},
	} {
		t.Run(tt.why, func(t *testing.T) {
			for _, endpoint := range []Endpoint{Chat, Completions} {
				b := newBuilder(t, Options{Endpoint: endpoint, Seed: seed, BlockSize: block, Overhead: tt.overhead})
				p := build(t, b, index, tt.row, nil)
				got := content(t, p.Request)
				if want := "go" + text(seed, block, tt.words, tt.blocks...); got != want {
					t.Errorf("%s: text\n%s, want\n%s", endpoint, got, want)
				}
				if n := len(strings.Fields(got)); n != tt.words+1 || p.Added != int64(tt.words) {
					t.Errorf("%s: %d words, Added %d; want %d and the anchor", endpoint, n, p.Added, tt.words)
				}
				if p.TooShort != tt.tooShort || p.TailCut != tt.tailCut || p.Skip {
					t.Errorf("%s: TooShort %v, TailCut %v, Skip %v", endpoint, p.TooShort, p.TailCut, p.Skip)
				}
				if want := tt.row.InputLength.V; !tt.tooShort && p.Tokens != want {
					t.Errorf("%s: Tokens %d, want the row's %d", endpoint, p.Tokens, want)
				}
				if want := int64(tt.overhead) + 1; tt.tooShort && p.Tokens != want {
					t.Errorf("%s: Tokens %d, want %d", endpoint, p.Tokens, want)
				}
			}
		})
	}
}

func TestTokenLayouts(t *testing.T) {
	const seed, block, index = 77, 16, 5
	b := newBuilder(t, Options{Endpoint: Completions, Form: Tokens, Seed: seed, BlockSize: block})
	for _, tt := range []struct {
		why    string
		row    *mooncake.Row
		blocks []uint64
	}{
		{"exact tile", lengthRow(32, 1, 4, 5), []uint64{4, 5}},
		{"partial last block", lengthRow(33, 1, 4, 5, 6), []uint64{4, 5, 6}},
		{"ids for the beginning only", lengthRow(40, 1, 4, 5), []uint64{4, 5, privateID(index, 2)}},
		{"one token", lengthRow(1, 1, 4), []uint64{4}},
		{"no ids", lengthRow(17, 1), []uint64{privateID(index, 0), privateID(index, 1)}},
	} {
		n := int(tt.row.InputLength.V)
		var want []byte
		for i, id := range tt.blocks {
			want = append(want, reference(tokens, seed, id, min(block, n-i*block))...)
		}
		p := build(t, b, index, tt.row, nil)
		body := string(read(t, p.Request))
		if !strings.Contains(body, `"prompt":[`+strings.TrimSuffix(string(want), ",")+`]`) {
			t.Errorf("%s: want the ids %s in %s", tt.why, want, body)
		}
		if got := len(decoded(t, p.Request)["prompt"].([]any)); got != n || p.Tokens != int64(n) || p.Added != int64(n) {
			t.Errorf("%s: %d ids, Tokens %d, Added %d; want %d", tt.why, got, p.Tokens, p.Added, n)
		}
		if p.TooShort || p.TailCut {
			t.Errorf("%s: flagged", tt.why)
		}
	}
}

func TestSkip(t *testing.T) {
	b := newBuilder(t, Options{Overhead: 20, TooShort: Skip})
	p := build(t, b, 0, lengthRow(20, 1, 4), nil)
	if !p.TooShort || !p.Skip || p.Request.Body.Open != nil {
		t.Errorf("TooShort %v, Skip %v, has a body %v", p.TooShort, p.Skip, p.Request.Body.Open != nil)
	}
	if p := build(t, b, 0, lengthRow(21, 1, 4), nil); p.TooShort || p.Skip {
		t.Errorf("a row with room for a word: TooShort %v, Skip %v", p.TooShort, p.Skip)
	}
}

// Two prompts share exactly the bytes of their shared blocks.
func TestSharedPrefix(t *testing.T) {
	for _, o := range []Options{
		{Seed: 1, BlockSize: 32, Overhead: 3},
		{Seed: 1, BlockSize: 32, Endpoint: Completions, Form: Tokens},
	} {
		b := newBuilder(t, o)
		one := string(read(t, build(t, b, 0, lengthRow(120, 1, 9, 8, 7, 6), nil).Request))
		two := string(read(t, build(t, b, 1, lengthRow(120, 1, 9, 8, 5, 6), nil).Request))
		same := 0
		for same < len(one) && one[same] == two[same] {
			same++
		}
		unit := b.scheme.unit
		from := strings.Index(one, string(reference(b.scheme.alphabet, 1, 9, 32)))
		shared := (same - from) / unit
		// The third blocks differ from their first units on, because these encode their ids.
		if from < 0 || shared < 64 || shared >= 64+8 {
			t.Errorf("ids %v: the prompts share %d units, want the 64 of two blocks and none of the third whole", b.scheme.ids, shared)
		}
	}
}

// The same options, index and row give the same bytes, in any order and with any builder. The seed changes them, and so does the index if
// no id determines the tokens.
func TestPurity(t *testing.T) {
	o := Options{Model: "m", Stream: true, Seed: 12, BlockSize: 64, Overhead: 7}
	rows := []*mooncake.Row{lengthRow(500, 10, 1, 2, 3, 4, 5, 6, 7, 8), lengthRow(400, 3), lengthRow(300, 0, 1, 2), textRow("hello")}
	a, b := newBuilder(t, o), newBuilder(t, o)
	forward := make([]string, len(rows))
	for i, row := range rows {
		forward[i] = string(read(t, build(t, a, int64(i), row, nil).Request))
	}
	for i, row := range slices.Backward(rows) {
		if got := string(read(t, build(t, b, int64(i), row, nil).Request)); got != forward[i] {
			t.Errorf("row %d: another builder gives other bytes", i)
		}
	}
	elsewhere := string(read(t, build(t, a, 99, rows[0], nil).Request))
	if elsewhere != forward[0] {
		t.Error("a row whose ids cover it depends on its index")
	}
	if got := string(read(t, build(t, a, 99, rows[1], nil).Request)); got == forward[1] {
		t.Error("rows without ids share their words")
	}
	o.Seed = 13
	if got := string(read(t, build(t, newBuilder(t, o), 0, rows[0], nil).Request)); got == forward[0] {
		t.Error("another seed gives the same words")
	}
}

func TestRowErrors(t *testing.T) {
	chat := newBuilder(t, Options{})
	completions := newBuilder(t, Options{Endpoint: Completions})
	const secret = "sesame"
	for _, tt := range []struct {
		why string
		b   *Builder
		row *mooncake.Row
	}{
		{"no length", chat, &mooncake.Row{}},
		{"length 0", chat, lengthRow(0, 1)},
		{"negative length", chat, lengthRow(-1, 1)},
		{"longer than any prompt", chat, lengthRow(MaxPromptTokens+1, 1)},
		{"messages on completions", completions, messagesRow(`[{"role":"user","content":"` + secret + `"}]`)},
		{"messages are not an array", chat, messagesRow(`{"role":"` + secret + `"}`)},
		{"no message", chat, messagesRow(`[ ]`)},
		{"extra is not an object", chat, &mooncake.Row{TextInput: mooncake.Some("x"), Extra: []byte(`["` + secret + `"]`)}},
		{"extra is torn", chat, &mooncake.Row{TextInput: mooncake.Some("x"), Extra: []byte(`{"` + secret + `":"` + secret + `"`)}},
		{"payload is torn", chat, &mooncake.Row{Payload: []byte(`{"messages":"` + secret)}},
		{"payload is empty", chat, &mooncake.Row{Payload: []byte(`{}`)}},
		{"payload continues after its end", chat, &mooncake.Row{Payload: []byte(`{"a":1}{"` + secret + `":2}`)}},
	} {
		p, err := tt.b.Build(17, tt.row, nil)
		if !errors.Is(err, ErrRow) || !strings.Contains(err.Error(), "row 17") {
			t.Errorf("%s: error %v, want one of row 17 that wraps ErrRow", tt.why, err)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error quotes the row: %v", tt.why, err)
		}
		if p.Request.Body.Open != nil {
			t.Errorf("%s: a body together with an error", tt.why)
		}
	}
}
