// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package encoding

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// TestSizes: docs/fleet.md gives the size of a record in a message, which decides the cost of a topic or a bucket. The prompt has 12,035
// tokens, the mean of the public conversation trace.
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

// TestSizesOfConversations: docs/fleet.md gives the bytes of a request of the public conversation trace, whose prompts share: in messages
// of several sizes, and in the journal of an exporter. Its rows have blocks of 512 tokens. Finer blocks and cells of text share what these
// share, and not more, although prompts that diverge within a block share its beginning.
func TestSizesOfConversations(t *testing.T) {
	if testing.Short() {
		t.Skip("sizes of 12,031 rows")
	}
	rows := conversations(t)
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for _, c := range []struct {
		what             string
		of               func(*mooncake.Row) journal.Prompt
		one, talk        int // bytes of a record that is alone in its message, and of one in a message with the records of its conversation
		hundred          int // of one of a hundred
		thousand, packed int // of one of a thousand, and after zstd
		journal          int // of one in the journal of all
	}{
		{"blocks of 512 tokens", func(r *mooncake.Row) journal.Prompt { return blocksOf(r, 512) }, 387, 312, 353, 326, 233, 295},
		{"blocks of 16 tokens", func(r *mooncake.Row) journal.Prompt { return blocksOf(r, 16) }, 6231, 4126, 5924, 5019, 4992, 4644},
		{"text, in cells of 128 bytes", textOf, 3226, 2169, 3060, 2608, 2540, 2226},
	} {
		records := make([]journal.Record, len(rows))
		for i, row := range rows {
			records[i] = requestOf(t, i, row, c.of(row))
		}
		messages := func(n int) (raw int, sent [][]byte) {
			for part := range slices.Chunk(records, n) {
				var b journal.Batch
				for _, r := range part {
					require.NoError(t, b.Add(r))
				}
				m := b.AppendMessage(nil)
				raw += len(m)
				sent = append(sent, m)
			}
			return raw / len(records), sent
		}
		one, _ := messages(1)
		talks := 0
		for _, talk := range groups(rows) {
			var b journal.Batch
			for _, i := range talk {
				require.NoError(t, b.Add(records[i]))
			}
			talks += len(b.AppendMessage(nil))
		}
		talks /= len(records)
		hundred, _ := messages(100)
		thousand, sent := messages(1000)
		packed := 0
		for _, m := range sent {
			packed += len(encoder.EncodeAll(m, nil))
		}
		packed /= len(records)
		w, err := journal.OpenWriter(filepath.Join(t.TempDir(), "journal"), journal.WriterOptions{NoSync: true})
		require.NoError(t, err)
		for part := range slices.Chunk(records, 100) {
			require.NoError(t, w.Append(part...))
		}
		whole := int(w.Size()) / len(records)
		require.NoError(t, w.Close())
		t.Logf("%-30s alone %5d, of a conversation %5d, of a hundred %5d, of a thousand %5d, after zstd %5d, in a journal %5d", c.what, one, talks, hundred, thousand, packed, whole)
		for what, n := range map[string][2]int{"alone": {c.one, one}, "conversation": {c.talk, talks}, "hundred": {c.hundred, hundred}, "thousand": {c.thousand, thousand}, "zstd": {c.packed, packed}, "journal": {c.journal, whole}} {
			assert.InDelta(t, n[0], n[1], float64(n[1])/50+2, c.what+", "+what)
		}
	}
}

// conversations returns the rows of the public conversation trace.
func conversations(t *testing.T) (rows []*mooncake.Row) {
	t.Helper()
	name := filepath.Join("..", "..", "shared", "data", "conversation_trace.jsonl")
	f, err := os.Open(name)
	if err != nil {
		t.Skip("the public conversation trace is missing: ../shared/data/conversation_trace.jsonl from the repository root")
	}
	defer func() { _ = f.Close() }()
	for r := mooncake.NewReader(f, mooncake.ReaderOptions{Name: name}); ; {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows
		}
		require.NoError(t, err)
		own := *row
		own.HashIDs = slices.Clone(row.HashIDs)
		rows = append(rows, &own)
	}
}

// groups returns the rows of each conversation: those that share their first block after the common beginning.
func groups(rows []*mooncake.Row) map[uint64][]int {
	talks := map[uint64][]int{}
	for i, row := range rows {
		key := uint64(1<<63) + uint64(i) // of its own
		if len(row.HashIDs) > 1 {
			key = row.HashIDs[1]
		}
		talks[key] = append(talks[key], i)
	}
	return talks
}

// keyedOf returns the keyed value of a part of a block, which looks random.
func keyedOf(block uint64, part int) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], block)
	binary.LittleEndian.PutUint64(b[8:], uint64(part))
	return xxhash.Sum64(b[:])
}

// blocksOf returns the prompt of a row in blocks of a size that divides 512.
func blocksOf(r *mooncake.Row, size int) journal.Prompt {
	p := journal.Prompt{Identity: journal.Engine, BlockSize: uint32(size), Domain: 0x0a1b2c3d, Key: 0x5eed5eed}
	for i := range (int(r.InputLength.V) + size - 1) / size {
		if at := i * size / 512; at < len(r.HashIDs) {
			p.HashIDs = append(p.HashIDs, keyedOf(r.HashIDs[at], i*size%512))
		}
	}
	return p
}

// textOf returns the prompt of a row as a text of 4 bytes a token.
func textOf(r *mooncake.Row) journal.Prompt {
	p := blocksOf(r, blockhash.CellSize/4)
	return journal.Prompt{
		Identity: journal.Text, Domain: p.Domain, Key: p.Key,
		Chain: blockhash.Chain{Cells: p.HashIDs, Tail: keyedOf(uint64(r.InputLength.V), -1), Bytes: 4 * r.InputLength.V},
	}
}

// requestOf returns the record of a row.
func requestOf(t *testing.T, i int, row *mooncake.Row, p journal.Prompt) journal.Record {
	t.Helper()
	model, err := journal.ParseName("llama-3.1-8b-instruct")
	require.NoError(t, err)
	finish, err := journal.ParseName("stop")
	require.NoError(t, err)
	var span mooncake.SpanRef
	binary.BigEndian.PutUint64(span.TraceID[:], keyedOf(uint64(i), -2))
	binary.BigEndian.PutUint64(span.TraceID[8:], keyedOf(uint64(i), -3))
	binary.BigEndian.PutUint64(span.SpanID[:], keyedOf(uint64(i), -4))
	start := int64(1_800_000_000)*1e9 + int64(row.Timestamp.V*1e6)
	return &journal.Inference{
		Span: span, Parent: journal.SpanID{1, 2, 3, 4, 5, 6, 7, byte(i) | 1}, Start: start, End: start + 3e9, FirstToken: mooncake.Some(start + 4e8),
		InputTokens: row.InputLength, OutputTokens: row.OutputLength, CachedTokens: mooncake.Some[int64](4096),
		Prompt: p, Session: journal.Session(keyedOf(uint64(i), -5)), Model: model, Answered: model, Finish: finish,
		Response: journal.ResponseOf(fmt.Sprint(i)), Producer: 0x0123456789abcdef, Clock: 0xfedcba9876543210,
	}
}
