// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
)

// BenchmarkCut ends a segment of 32 MiB of which a tenth is carried on: the time for which Append waits.
func BenchmarkCut(b *testing.B) {
	opt := Options{Directory: filepath.Join(b.TempDir(), "j"), Name: "b", MaxBytes: 1 << 40, Grace: time.Minute, NoSync: true, Compile: &capture.Options{}}
	j, err := Open(opt)
	if err != nil {
		b.Fatal(err)
	}
	for n := uint64(1); j.Size() < 32<<20; n += 1000 {
		var batch journal.Batch
		for i := range uint64(1000) {
			r := engine(n+i, 1, 0)
			for k := range uint64(10) {
				r.HashIDs = append(r.HashIDs, (n+i)<<32+k)
			}
			if err := batch.Add(r); err != nil {
				b.Fatal(err)
			}
		}
		if err := j.Append(&batch); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(j.Size())
	b.ReportAllocs()
	carried := int64(0)
	for b.Loop() {
		j.mu.Lock()
		c := j.newCarry(time.Now())
		j.mu.Unlock()
		if err := c.find(b.Context(), c.now.Add(-time.Hour), 1); err != nil {
			b.Fatal(err)
		}
		n := 0
		for trace := range c.traces {
			if n++; n%10 != 0 {
				delete(c.traces, trace)
			}
		}
		if err := c.copy(b.Context(), filepath.Join(b.TempDir(), "copy")); err != nil {
			b.Fatal(err)
		}
		c.discard()
		carried = int64(len(c.traces))
	}
	b.ReportMetric(float64(carried), "carried")
	if err := j.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
