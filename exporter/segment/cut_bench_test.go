// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
)

// BenchmarkCut ends a segment of 32 MiB between two others of that size, and makes its trace. The time for which Append waits is reported
// separately.
func BenchmarkCut(b *testing.B) {
	opt := Options{Directory: filepath.Join(b.TempDir(), "j"), Name: "b", MaxBytes: 1 << 40, Grace: time.Hour, NoSync: true, Compile: &capture.Options{}}
	j, err := Open(opt)
	if err != nil {
		b.Fatal(err)
	}
	n, waited := uint64(1), time.Duration(0)
	fill := func() {
		for ; j.Size() < 32<<20; n += 1000 {
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
			if _, err := j.Append(&batch); err != nil {
				b.Fatal(err)
			}
		}
	}
	cut := func() {
		j.mu.Lock()
		start := time.Now()
		c := j.cut(start)
		waited += time.Since(start)
		j.mu.Unlock()
		if c.Err != nil {
			b.Fatal(c.Err)
		}
	}
	fill()
	cut()
	fill()
	middle := j.open.id
	b.SetBytes(j.Size())
	b.ReportAllocs()
	cut()
	fill()
	waited = 0
	for b.Loop() {
		b.StopTimer()
		if err := j.writePending(middle, 0); err != nil {
			b.Fatal(err)
		}
		_ = os.Remove(j.opt.path(middle, traceSuffix))
		b.StartTimer()
		if _, err := j.compile(b.Context(), middle); err != nil {
			b.Fatal(err)
		}
	}
	cut()
	b.ReportMetric(waited.Seconds()*1e3, "ms-wait")
	if err := j.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
