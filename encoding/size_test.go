// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package encoding

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// TestSizes: docs/fleet.md says how many bytes a record takes in a message, which decides what a topic or a bucket costs. The prompt has
// 12,035 tokens, the mean of the public conversation trace.
func TestSizes(t *testing.T) {
	const tokens = 12_035
	rng := rand.New(rand.NewPCG(5, 6))
	keyed := func(n int) []uint64 {
		ids := make([]uint64, n)
		for i := range ids {
			ids[i] = rng.Uint64()
		}
		return ids
	}
	blocks := func(size int) journal.Prompt {
		return journal.Prompt{Identity: journal.Engine, HashIDs: keyed((tokens + size - 1) / size), BlockSize: uint32(size), Domain: 0x0a1b2c3d, Key: 0x5eed5eed}
	}
	model, err := journal.ParseName("llama-3.1-8b-instruct")
	require.NoError(t, err)
	finish, err := journal.ParseName("stop")
	require.NoError(t, err)
	const textBytes = 4 * tokens // of English
	text := journal.Prompt{
		Identity: journal.Text, Domain: 0x0a1b2c3d, Key: 0x5eed5eed,
		Chain: blockhash.Chain{Cells: keyed(textBytes / blockhash.CellSize), Tail: rng.Uint64(), Bytes: textBytes},
	}
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for _, c := range []struct {
		what    string
		prompt  *journal.Prompt
		alone   int // bytes of a message with one record
		another int // bytes of one more record
		packed  int // bytes of one of a thousand in one message, after zstd
	}{
		{"a request without a prompt", &journal.Prompt{Identity: journal.None}, 175, 148, 63},
		{"a request, blocks of 512 tokens", new(blocks(512)), 385, 358, 258},
		{"a request, blocks of 16 tokens", new(blocks(16)), 6230, 6203, 6204},
		{"a request, text in cells of 128 bytes", &text, 3220, 3191, 3087},
		{"another span", nil, 91, 64, 45},
	} {
		batchOf := func(n int) []byte {
			var b journal.Batch
			for i := range n {
				span := mooncake.SpanRef{}
				for j := range span.TraceID {
					span.TraceID[j] = byte(rng.Uint32())
				}
				for j := range span.SpanID {
					span.SpanID[j] = byte(rng.Uint32())
				}
				start := int64(1_800_000_000)*1e9 + int64(i)*1e6 + rng.Int64N(1e6)
				var r journal.Record = &journal.Link{Span: span, Parent: journal.SpanID{1, 2, 3, 4, 5, 6, 7, byte(i) | 1}, Session: journal.Session(rng.Uint64()), Start: start, End: start + 3e9}
				if c.prompt != nil {
					p := *c.prompt
					p.HashIDs = keyed(len(p.HashIDs))
					p.Chain.Cells = keyed(len(p.Chain.Cells))
					if p.Chain.Bytes == 0 {
						p.Chain.Cells = nil
					}
					if p.BlockSize == 0 {
						p.HashIDs = nil
					}
					r = &journal.Inference{
						Span: span, Parent: journal.SpanID{1, 2, 3, 4, 5, 6, 7, byte(i) | 1}, Start: start, End: start + 3e9, FirstToken: mooncake.Some(start + 4e8),
						InputTokens: mooncake.Some[int64](tokens), OutputTokens: mooncake.Some[int64](343), CachedTokens: mooncake.Some[int64](4096),
						Prompt: p, Session: journal.Session(rng.Uint64()), Model: model, Answered: model, Finish: finish,
						Response: journal.ResponseOf(fmt.Sprint(i)), Producer: 0x0123456789abcdef, Clock: 0xfedcba9876543210,
					}
				}
				require.NoError(t, b.Add(r))
			}
			return b.AppendMessage(nil)
		}
		one, thousand := batchOf(1), batchOf(1000)
		alone, another, packed := len(one), (len(thousand)-journal.MessageOverhead)/1000, len(encoder.EncodeAll(thousand, nil))/1000
		t.Logf("%-40s %6d %6d %6d", c.what, alone, another, packed)
		assert.InDelta(t, c.alone, alone, float64(alone)/100+2, c.what)
		assert.InDelta(t, c.another, another, float64(another)/100+1, c.what)
		assert.InDelta(t, c.packed, packed, float64(packed)/50+2, c.what)
	}
}
