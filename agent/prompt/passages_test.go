// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// pieceTokens returns a tokenizer whose tokens are the words of a text, cut into pieces of four letters.
func pieceTokens(text string) (tokens []string) {
	for word := range strings.FieldsSeq(text) {
		for ; len(word) > 4; word = word[4:] {
			tokens = append(tokens, word[:4]+"-")
		}
		tokens = append(tokens, word)
	}
	return tokens
}

// passagesOf returns passages of words of one to forty letters, which have one to ten tokens. Some words have a quote, which must be
// escaped.
func passagesOf(t *testing.T, words int) *Passages {
	t.Helper()
	var segments []string
	var tokens []int
	var order []uint32
	for i := range 40 {
		s := " " + strings.Repeat(string(rune('a'+i%26)), 1+i) + map[bool]string{true: `"`}[i%7 == 0]
		segments, tokens = append(segments, s), append(tokens, len(pieceTokens(s)))
	}
	for i := range words {
		order = append(order, uint32(i*i+i/3)%40)
	}
	p, err := NewPassages(order, segments, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPassages: every prompt has exactly as many tokens as its row says. Blocks with the same id have the same text, and blocks with
// different ids do not. A block that is cut is the beginning of the whole one, except for less than a segment at its end.
func TestPassages(t *testing.T) {
	text := passagesOf(t, 3000)
	const overhead, fine = 5, 16
	for _, block := range []int{16, 64, 512} {
		b, err := NewBuilder(Options{Text: text, BlockSize: block, FineBlockSize: fine, Overhead: overhead, Endpoint: Completions, Seed: 7})
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, uint64(block)))
		whole := make(map[string]uint64) // text to id
		of := make(map[uint64]string)
		for i := range int64(300) {
			row := lengthRow(overhead+1+random.Int64N(int64(6*block)), 1)
			for k := range mooncake.BlockCount(row.InputLength.V, block) {
				row.HashIDs = append(row.HashIDs, uint64(k)<<8|random.Uint64N(4))
			}
			if i%3 == 0 { // the rest is the row's own
				row.HashIDs = row.HashIDs[:len(row.HashIDs)/2]
			}
			if i%5 == 0 {
				row.HashIDs = nil
				row.HashRanges = []mooncake.HashRange{{First: random.Uint64N(9), Count: 2}, {First: 40, Count: int64(mooncake.BlockCount(row.InputLength.V, fine)) - 2}}
				if row.HashRanges[1].Count < 1 {
					row.HashRanges = nil
				}
			}
			p, err := b.Build(i, row, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := pieceTokens(strings.TrimPrefix(content(t, p.Request), "go"))
			if int64(len(got)) != row.InputLength.V-overhead || p.Tokens != row.InputLength.V {
				t.Fatalf("block %d, row %d: %d tokens of %d", block, i, len(got), row.InputLength.V)
			}
			for k, id := range row.HashIDs {
				from, to := k*block, (k+1)*block
				if to > len(got) {
					// What is left of a block that is cut.
					before, known := of[id]
					if have := got[min(from, len(got)):]; known && len(have) > MaxSegmentTokens {
						if s := strings.Join(have[:len(have)-MaxSegmentTokens+1], " "); !strings.HasPrefix(before, s) {
							t.Fatalf("block %d, row %d: %q is not the beginning of %q", block, i, s, before)
						}
					}
					break
				}
				s := strings.Join(got[from:to], " ")
				if before, known := of[id]; known && before != s {
					t.Fatalf("block %d: id %d is %q and %q", block, id, before, s)
				}
				if before, known := whole[s]; known && before != id {
					t.Fatalf("block %d: ids %d and %d are one text", block, before, id)
				}
				of[id], whole[s] = s, id
			}
		}
		if len(of) < 20 {
			t.Errorf("block %d: only %d whole blocks were seen", block, len(of))
		}
		if d := b.DescribeText(); d.Invented < 8./float64(block) || d.Invented > (8.+MaxSegmentTokens)/float64(block) {
			t.Errorf("block %d: %+v", block, d)
		}
	}
}

// TestPassagesAreRead: a body has the stated size, and the same bytes in each attempt, whatever the sizes of the reads.
func TestPassagesAreRead(t *testing.T) {
	b, err := NewBuilder(Options{Text: passagesOf(t, 2000), BlockSize: 32, Overhead: 3})
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Build(4, lengthRow(777, 1, 1, 2, 3, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	read := func(body send.Body, how func(io.Reader) io.Reader) string {
		all, err := io.ReadAll(how(body.Open()))
		if err != nil || int64(len(all)) != body.Size {
			t.Fatalf("%d bytes of %d, %v", len(all), body.Size, err)
		}
		return string(all)
	}
	first := read(p.Request.Body, func(r io.Reader) io.Reader { return r })
	for _, how := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
		if again := read(p.Request.Body, how); again != first {
			t.Error("another way to read gives other bytes")
		}
	}
}

// TestSeedsOfPassages: another seed selects other passages, so that a cache is cold.
func TestSeedsOfPassages(t *testing.T) {
	text := passagesOf(t, 2000)
	seen := make(map[string]bool)
	for seed := range uint64(20) {
		b, err := NewBuilder(Options{Text: text, Overhead: 1, Seed: Seed(seed)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := b.Build(0, lengthRow(512, 1, 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		seen[content(t, p.Request)] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d texts of 20 seeds", len(seen))
	}
}

// TestTooLittleText: text that is not sufficient for prompts is refused.
func TestTooLittleText(t *testing.T) {
	for name, tokens := range map[string]int{"segments without tokens": 0, "long segments": MaxSegmentTokens + 1, "too few tokens": 1} {
		order := make([]uint32, LeastText-1)
		if _, err := NewPassages(order, []string{" a"}, []int{tokens}); !errors.Is(err, ErrPassages) {
			t.Errorf("%s: %v", name, err)
		}
	}
	text := passagesOf(t, 2000)
	letters, err := NewLexicon("a", "", strings.Fields("a b c d e f g h i j k l m n o p"))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"token ids":            {Endpoint: Completions, Form: Tokens},
		"large block":          {BlockSize: MaxTextBlock + 1},
		"words without spaces": {Words: letters},
	} {
		if o.Text = text; o.Text != nil {
			if _, err := NewBuilder(o); !errors.Is(err, ErrOptions) || !strings.Contains(fmt.Sprint(err), "text") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
