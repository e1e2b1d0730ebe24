// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import "testing"

// benchRecords returns a record with all fields, and records of the most frequent kinds.
func benchRecords(b *testing.B) map[string]Record {
	b.Helper()
	return map[string]Record{
		"every field": full(b),
		"engine": &Inference{
			Span: ref(1, 2), Parent: sid(1), Start: at(1), End: at(101), InputTokens: opt[int64](16 * 512), OutputTokens: opt[int64](100),
			Prompt: Prompt{Identity: Engine, HashIDs: make([]uint64, 16), BlockSize: 512, Domain: 7}, Model: name(b, "org/model-1"),
		},
		"link": &Link{Span: ref(1, 1), Parent: sid(9), Session: 3},
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	for what, r := range benchRecords(b) {
		b.Run(what, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendRecord(dst[:0], r)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for what, r := range benchRecords(b) {
		b.Run(what, func(b *testing.B) {
			var d Decoder
			p := AppendRecord(nil, r)
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Decode(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
