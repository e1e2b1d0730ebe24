// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

import (
	"math"
	"slices"
)

// unigram finds the most probable sequence of tokens.
type unigram struct {
	ids     map[string]uint32
	scores  []float64 // log probabilities
	longest int       // length of the longest token, in bytes
	unk     uint32
	penalty float64  // score of an unknown character
	bytes   []uint32 // as in bpe
}

// node is the best path to a position in the text.
type node struct {
	score float64
	from  int32 // -1: not reached yet
	id    uint32
}

func (m *unigram) encode(ids []uint32, text string) []uint32 {
	best := make([]node, len(text)+1)
	for i := range best {
		best[i].from = -1
	}
	step := func(from, to int, id uint32, score float64) {
		score += best[from].score
		if n := &best[to]; n.from < 0 || score > n.score {
			*n = node{score, int32(from), id} //nolint:gosec // a text is shorter than 2 GiB
		}
	}
	for at := 0; at < len(text); {
		n := runeLen(text[at:])
		single := false
		for end := at + n; end <= len(text) && end-at <= m.longest; {
			if id, is := m.ids[text[at:end]]; is {
				step(at, end, id, m.scores[id])
				single = single || end == at+n
			}
			if end == len(text) {
				break
			}
			end += runeLen(text[end:])
		}
		if !single {
			step(at, at+n, m.unk, m.penalty)
		}
		at += n
	}
	// From the end back. Consecutive unknown characters are one token.
	var back []uint32
	unknownTo := -1
	flush := func(from int) {
		if unknownTo < 0 {
			return
		}
		part := text[from:unknownTo]
		unknownTo = -1
		if id, is := m.ids[part]; is {
			back = append(back, id)
		} else if m.bytes == nil {
			back = append(back, m.unk)
		} else {
			for i := len(part) - 1; i >= 0; i-- {
				back = append(back, m.bytes[part[i]])
			}
		}
	}
	at := len(text)
	for at > 0 {
		n := best[at]
		if n.id == m.unk {
			if unknownTo < 0 {
				unknownTo = at
			}
		} else {
			flush(at)
			back = append(back, n.id)
		}
		at = int(n.from)
	}
	flush(0)
	for _, id := range slices.Backward(back) {
		ids = append(ids, id)
	}
	return ids
}

// least returns the least of scores.
func least(scores []float64) float64 {
	low := math.Inf(1)
	for _, s := range scores {
		low = min(low, s)
	}
	return low
}
