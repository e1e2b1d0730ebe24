// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import "math/bits"

// buckets counts whole numbers from 0 up, to three significant digits: each number up to 2,047 has a bucket of its own, and the numbers
// from each later power of two to the next have 1,024 buckets. That is HdrHistogram's layout, but only pages with a number use memory: the
// figures of a run are some forty histograms from nanoseconds to a day, nearly all of whose buckets stay empty. With all buckets in memory,
// they would need 5 MiB, and the garbage collector would let the heap grow by as much again.
//
// A number is counted some numbers later. Between two requests, the counters leave the processor's caches: to reach one takes two reads of
// main memory, of which a request needs dozens. Reads for several numbers at once overlap.
type buckets struct {
	recent [15]uint32 // buckets of numbers that are not counted yet: these and their number fill a cache line
	held   uint32     // how many
	pages  []*page
	// more has, by bucket, how many numbers its counter does not show, because it overflowed.
	more map[int]int64
}

// page has the counters of some buckets: 1 KiB, which a run allocates in less than a microsecond. A counter that overflows starts anew.
type page [pageSize]uint32

const (
	pageSize = 256
	overflow = 1 << 32
	half     = 1024 // buckets of a power of two
)

// newBuckets returns the empty buckets of the numbers up to a limit.
func newBuckets(limit int64) buckets {
	return buckets{pages: make([]*page, bucketOf(limit)/pageSize+1)}
}

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
func (b *buckets) add(n int64) {
	b.recent[b.held] = uint32(bucketOf(n)) //nolint:gosec // there are at most 64 times 1,024 buckets
	if b.held++; b.held == uint32(len(b.recent)) {
		b.count()
	}
}

// count counts the recent numbers.
func (b *buckets) count() {
	for _, i := range b.recent[:b.held] {
		p := b.pages[i/pageSize]
		if p == nil {
			p = new(page)
			b.pages[i/pageSize] = p
		}
		if p[i%pageSize]++; p[i%pageSize] == 0 {
			if b.more == nil {
				b.more = make(map[int]int64)
			}
			b.more[int(i)] += overflow
		}
	}
	b.held = 0
}

// all calls yield with each bucket that is not empty, ascending, and how many numbers it has.
func (b *buckets) all(yield func(bucket int, n int64) bool) {
	b.count()
	for i, p := range b.pages {
		if p == nil {
			continue
		}
		for j, n := range p {
			bucket := i*pageSize + j
			if n := int64(n) + b.more[bucket]; n > 0 && !yield(bucket, n) {
				return
			}
		}
	}
}

// at returns the bucket of the number at a rank, where the least number has rank 1; for higher ranks than the last, the bucket of the
// greatest number.
func (b *buckets) at(rank int64) (bucket int) {
	for i, n := range b.all {
		bucket = i
		if rank -= n; rank <= 0 {
			break
		}
	}
	return bucket
}
