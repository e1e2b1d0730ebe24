// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// talks returns batches of requests whose prompts have this many blocks and share two in five of them with earlier prompts, as in the public
// conversation trace.
func talks(b *testing.B, blocks int) [][]Record {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var prompts [][]uint64
	var batches [][]Record
	for range 20 {
		var batch []Record
		for range 100 {
			var ids []uint64
			if len(prompts) > 0 {
				before := prompts[max(0, len(prompts)-1-rng.IntN(200))]
				ids = append(ids, before[:min(len(before), blocks*2/5)]...)
			}
			for len(ids) < blocks {
				ids = append(ids, rng.Uint64())
			}
			prompts = append(prompts, ids)
			n := uint64(len(prompts))
			batch = append(batch, &Inference{
				Span: ref(rng.Uint64(), n), Parent: sid(n), Start: at(int64(n)), End: at(int64(n) + 3000), InputTokens: opt[int64](12035), OutputTokens: opt[int64](343),
				Prompt: Prompt{Identity: Engine, HashIDs: ids, BlockSize: 512, Domain: 7, Key: 8}, Model: name(b, "org/model-1"), Response: ResponseOf(string(rune(n))),
				Producer: 9, Clock: 10, Session: Session(rng.Uint64()), Finish: name(b, "stop"),
			})
		}
		batches = append(batches, batch)
	}
	return batches
}

// BenchmarkJournal writes requests to a journal that is not synced, and reads them, with prompts of 12,035 tokens in blocks of two sizes.
func BenchmarkJournal(b *testing.B) {
	for what, blocks := range map[string]int{"512": 24, "16": 753} {
		batches := talks(b, blocks)
		file := filepath.Join(b.TempDir(), "j")
		b.Run("write/"+what, func(b *testing.B) {
			b.ReportAllocs()
			var batch Batch
			n := 0
			for b.Loop() {
				_ = os.Remove(file)
				w, err := OpenWriter(file, WriterOptions{NoSync: true})
				if err != nil {
					b.Fatal(err)
				}
				for _, records := range batches {
					batch.Reset()
					for _, r := range records {
						if err := batch.Add(r); err != nil {
							b.Fatal(err)
						}
					}
					if err := w.AppendBatch(&batch); err != nil {
						b.Fatal(err)
					}
					n += batch.Len()
				}
				b.SetBytes(w.Size())
				_ = w.file.Close() // without waiting for the disk
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
		})
		journal, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("read/"+what, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				r := NewReader("j", bytes.NewReader(journal))
				for {
					if _, _, err := r.NextEncoded(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					n++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
		})
	}
}
