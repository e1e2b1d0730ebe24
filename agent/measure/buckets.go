// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import "math/bits"

// buckets counts whole numbers from 0 up, to three significant digits: each number up to 2,047 has a bucket, and each later power of two
// 1,024 of them. That is HdrHistogram's layout. Unlike there, only the pages in which a number lies take memory: the figures of a run are
// some forty histograms from nanoseconds to a day, whose buckets nearly all stay empty. Whole, they take 10 MiB, which the collector keeps
// and lets the heap grow by.
type buckets []*page

// page has some buckets: 2 KiB, which a run allocates in less than a microsecond.
type page [pageSize]int64

const (
	pageSize = 256
	half     = 1024 // buckets of a power of two
)

// newBuckets returns the empty buckets of the numbers up to a limit.
func newBuckets(limit int64) buckets { return make(buckets, bucketOf(limit)/pageSize+1) }

// bucketOf returns the bucket of a number, 0 or above.
func bucketOf(n int64) int {
	shift := max(0, bits.Len64(uint64(n))-bits.Len64(2*half-1)) //nolint:gosec // it is 0 or above
	return shift*half + int(n>>shift)
}

// rangeOf returns the least and the greatest number of a bucket.
func rangeOf(bucket int) (from, to int64) {
	shift := max(0, bucket/half-1)
	from = int64(bucket-shift*half) << shift
	return from, from + 1<<shift - 1
}

// add counts a number: 0 or above, at most the limit.
func (b buckets) add(n int64) {
	i := bucketOf(n)
	p := b[i/pageSize]
	if p == nil {
		p = new(page)
		b[i/pageSize] = p
	}
	p[i%pageSize]++
}

// all calls yield with each bucket that is not empty, ascending, and how many numbers it has.
func (b buckets) all(yield func(bucket int, n int64) bool) {
	for i, p := range b {
		if p == nil {
			continue
		}
		for j, n := range p {
			if n > 0 && !yield(i*pageSize+j, n) {
				return
			}
		}
	}
}

// at returns the bucket of the number at a rank, 1 being the least number's; the greatest number's beyond the last rank.
func (b buckets) at(rank int64) (bucket int) {
	for i, n := range b.all {
		bucket = i
		if rank -= n; rank <= 0 {
			break
		}
	}
	return bucket
}
