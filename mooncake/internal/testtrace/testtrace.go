// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package testtrace has traces for tests of several packages: the public one, and conversations whose every token is known.
package testtrace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// PublicTrace returns the path of the public conversation trace, which is next to the repository. If it is not there, the test is skipped.
func PublicTrace(tb testing.TB) string {
	tb.Helper()
	root, err := filepath.Abs(".")
	for ; err == nil; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			tb.Fatal("no go.mod above the package")
		}
	}
	path := filepath.Join(root, "..", "shared", "data", "conversation_trace.jsonl")
	if _, err := os.Stat(path); err != nil {
		tb.Skip("the public conversation trace is not there: ../shared/data/conversation_trace.jsonl from the repository root")
	}
	return path
}

// PublicData returns the bytes of the public trace, or of its first lines.
func PublicData(tb testing.TB, lines int) []byte {
	tb.Helper()
	data, err := os.ReadFile(PublicTrace(tb))
	if err != nil {
		tb.Fatal(err)
	}
	end := 0
	for range lines {
		end += bytes.IndexByte(data[end:], '\n') + 1
	}
	if lines > 0 {
		return data[:end]
	}
	return data
}

// Request is a request together with the tokens that its ids stand for.
type Request struct {
	Model   string
	Tokens  []int // of the prompt, followed by the reply
	Length  int   // of the prompt
	By      int   // index of the request whose conversation it continues; its own for the first
	IDs     []uint64
	FineIDs []uint64
	Replies [][3]int64 // how many requests back; tokens before the reply; tokens of the reply
}

// Conversations makes rows of interleaved conversations. Most turns contain the turn before, its reply and new tokens. Others repeat the
// earlier prompt, stop within it, or diverge from it. The ids of blocks of both sizes are made from the tokens.
func Conversations(rng *rand.Rand, rows, block, fine int) []Request {
	var out []Request
	fresh := 0
	more := func(n int) []int {
		list := make([]int, n)
		for i := range list {
			fresh++
			list[i] = fresh
		}
		return list
	}
	trunk := more(rng.IntN(3 * block))
	coarse, finer := map[string]uint64{}, map[string]uint64{}
	ids := func(model string, tokens []int, size int, names map[string]uint64) []uint64 {
		var list []uint64
		for at := 0; at < len(tokens); at += size {
			// The key stands for all tokens up to the end of the block: the previous id stands for those before the block.
			key := fmt.Sprint(list[max(0, len(list)-1):], tokens[at:min(len(tokens), at+size)])
			if _, known := names[key]; !known {
				names[key] = uint64(len(names))
			}
			list = append(list, names[key])
		}
		return list
	}
	for len(out) < rows {
		m := Request{By: len(out)}
		prompt := slices.Concat(trunk, more(1+rng.IntN(2*block)))
		if len(out) > 0 && rng.IntN(4) > 0 {
			m.By = rng.IntN(len(out))
			before := out[m.By]
			length := before.Length
			switch m.Model = before.Model; rng.IntN(8) {
			case 0: // the same again
				prompt = slices.Clone(before.Tokens[:length])
			case 1: // its beginning
				prompt = slices.Clone(before.Tokens[:1+rng.IntN(length)])
			case 2: // a prompt that diverges within the earlier one
				prompt = slices.Concat(before.Tokens[:rng.IntN(length)], more(1+rng.IntN(block)))
			default: // the next turn
				prompt = slices.Concat(before.Tokens, more(1+rng.IntN(block)))
				m.Replies = nil
				for _, r := range before.Replies {
					r[0] += int64(len(out) - m.By)
					m.Replies = append(m.Replies, r)
				}
				m.Replies = append(m.Replies, [3]int64{int64(len(out) - m.By), int64(length), int64(len(before.Tokens) - length)})
			}
		} else if rng.IntN(5) == 0 {
			m.Model = "other"
		}
		m.Tokens = slices.Concat(prompt, more(1+rng.IntN(block)))
		m.Length = len(prompt)
		m.IDs, m.FineIDs = ids(m.Model, prompt, block, coarse), ids(m.Model, prompt, fine, finer)
		out = append(out, m)
	}
	return out
}
