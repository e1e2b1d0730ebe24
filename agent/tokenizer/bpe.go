// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

import (
	"fmt"

	"github.com/moonloop/moonloop/internal/heap"
)

// bpe merges neighbouring symbols: the pair with the best rank first, and among equal ranks the leftmost pair.
type bpe struct {
	vocab        map[string]uint32
	merges       map[uint64]merge // by the ids of both symbols
	unk          int64            // -1: none
	fuseUnk      bool
	bytes        []uint32 // ids of the tokens <0x00> to <0xFF>; nil: they do not exist, or are not used
	ignoreMerges bool     // a piece that is a token stays that token
}

type merge struct{ rank, id uint32 }

func pair(a, b uint32) uint64 { return uint64(a)<<32 | uint64(b) }

// symbol is one symbol of a piece, in a linked list.
type symbol struct {
	id         uint32
	prev, next int32 // -1: none
	gone       bool
}

// candidate is a possible merge.
type candidate struct {
	merge
	at int32
}

func (m *bpe) encode(ids []uint32, text string) []uint32 {
	if m.ignoreMerges {
		if id, is := m.vocab[text]; is {
			return append(ids, id)
		}
	}
	symbols := m.symbols(text)
	queue := heap.New(func(a, b candidate) bool { return a.rank < b.rank || a.rank == b.rank && a.at < b.at })
	look := func(at int32) {
		if at < 0 || symbols[at].next < 0 {
			return
		}
		if rule, is := m.merges[pair(symbols[at].id, symbols[symbols[at].next].id)]; is {
			queue.Push(candidate{rule, at})
		}
	}
	for i := range symbols {
		look(int32(i))
	}
	for queue.Len() > 0 {
		c := queue.Pop()
		s := &symbols[c.at]
		if s.gone || s.next < 0 {
			continue
		}
		next := &symbols[s.next]
		if rule, is := m.merges[pair(s.id, next.id)]; !is || rule != c.merge { // one of the two has changed since
			continue
		}
		s.id, s.next, next.gone = c.id, next.next, true
		if s.next >= 0 {
			symbols[s.next].prev = c.at
		}
		look(s.prev)
		look(c.at)
	}
	for i := range symbols {
		if !symbols[i].gone {
			ids = append(ids, symbols[i].id)
		}
	}
	return ids
}

// symbols returns the characters of a text as tokens.
func (m *bpe) symbols(text string) []symbol {
	list := make([]symbol, 0, len(text))
	add := func(id uint32) {
		n := int32(len(list)) //nolint:gosec // a text is shorter than 2 GiB
		list = append(list, symbol{id: id, prev: n - 1, next: n + 1})
	}
	unknown := false
	for len(text) > 0 {
		n := runeLen(text)
		char := text[:n]
		text = text[n:]
		id, known := m.vocab[char]
		switch {
		case known:
			add(id)
		case m.bytes != nil:
			for i := range len(char) {
				add(m.bytes[char[i]])
			}
			known = true
		case m.unk >= 0 && (!unknown || !m.fuseUnk):
			add(uint32(m.unk)) //nolint:gosec // of 32 bits in the file
		}
		unknown = !known
	}
	if len(list) > 0 {
		list[len(list)-1].next = -1
	}
	return list
}

// byteTokens returns the ids of the tokens of single bytes in a vocabulary; nil if one is missing.
func byteTokens(vocab map[string]uint32) []uint32 {
	ids := make([]uint32, 256)
	for b := range ids {
		id, is := vocab[fmt.Sprintf("<0x%02X>", b)]
		if !is {
			return nil
		}
		ids[b] = id
	}
	return ids
}
