// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"math/rand/v2"
	"testing"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Numbers are in the same buckets as with HdrHistogram, at every size up to a day in ns.
func TestBucketsAreThoseOfHdrHistogram(t *testing.T) {
	limit := scaleMillis.limit
	ours, theirs := newBuckets(limit), hdr.New(1, limit, 3)
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := []int64{0, 1, 255, 256, 1023, 1024, 2047, 2048, 2049, 4095, 4096, limit - 1, limit}
	for range 20000 {
		numbers = append(numbers, rng.Int64N(limit)>>rng.IntN(47))
	}
	for _, n := range numbers {
		ours.add(n)
		if err := theirs.RecordValue(n); err != nil {
			t.Fatal(err)
		}
		if from, to := rangeOf(bucketOf(n)); from > n || to < n {
			t.Fatalf("%d lies in a bucket from %d to %d", n, from, to)
		}
	}
	next := ours.iterate()
	for _, bar := range theirs.Distribution() {
		if bar.Count == 0 {
			continue
		}
		from, to, n := next()
		if from != bar.From || to != bar.To || n != bar.Count {
			t.Fatalf("%d numbers from %d to %d; HdrHistogram has %d from %d to %d", n, from, to, bar.Count, bar.From, bar.To)
		}
	}
	if _, _, n := next(); n != 0 {
		t.Error("HdrHistogram has fewer buckets")
	}
}

// iterate returns a function that returns the next bucket that is not empty, and 0 numbers at the end.
func (b *buckets) iterate() func() (from, to, n int64) {
	var of, counts []int64
	for i, n := range b.all {
		of, counts = append(of, int64(i)), append(counts, n)
	}
	return func() (from, to, n int64) {
		if len(of) == 0 {
			return 0, 0, 0
		}
		from, to = rangeOf(int(of[0]))
		n = counts[0]
		of, counts = of[1:], counts[1:]
		return from, to, n
	}
}

// Similar numbers share pages.
func TestBucketsTakeMemoryWhereNumbersLie(t *testing.T) {
	b := newBuckets(scaleMillis.limit)
	for i := range int64(100_000) {
		b.add(1_000_000 + i)
	}
	b.count()
	pages := 0
	for _, p := range b.pages {
		if p != nil {
			pages++
		}
	}
	if pages > 2 { // 1.0 to 1.1 ms: about 150 buckets of 512 or 1,024 ns
		t.Errorf("%d pages", pages)
	}
}

// A counter that overflows loses no number.
func TestBucketsOverflow(t *testing.T) {
	b := newBuckets(scaleMillis.limit)
	b.add(300)
	b.count()
	b.pages[bucketOf(300)/pageSize][bucketOf(300)%pageSize] = math.MaxUint32 // as after so many numbers
	for range 3 {
		b.add(300)
	}
	b.add(5000)
	next := b.iterate()
	if _, _, n := next(); n != math.MaxUint32+3 {
		t.Errorf("%d numbers, want 2^32 + 2", n)
	}
	if got := b.at(math.MaxUint32 + 3); got != bucketOf(300) {
		t.Errorf("the last of them is in bucket %d", got)
	}
	if got := b.at(math.MaxUint32 + 4); got != bucketOf(5000) {
		t.Errorf("the number after them is in bucket %d", got)
	}
}

// Numbers that are not counted yet are in every figure.
func TestBucketsShowRecentNumbers(t *testing.T) {
	for n := range int64(40) { // several times as many as wait to be counted
		b := newBuckets(scaleMillis.limit)
		for i := range n {
			b.add(i)
		}
		all := int64(0)
		for bucket, count := range b.all {
			if count != 1 {
				t.Errorf("%d numbers: %d in bucket %d", n, count, bucket)
			}
			all++
		}
		if all != n {
			t.Errorf("%d of %d numbers", all, n)
		}
	}
}
