// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import "time"

// series is a sum per time bin, from the start of the run. When a time needs more bins than the limit, pairs of bins are merged into bins
// of twice the width. So memory is bounded, whatever the run's length.
type series struct {
	width time.Duration
	limit int // maximum number of bins
	bins  []int64
	early int64 // times before the run's start, counted in the first bin
	seen  int64 // the greatest running sum before a widening, which would hide intervals shorter than the new bins
}

// bin returns the index of the time's bin, and widens the bins until it exists.
func (s *series) bin(at time.Duration) int {
	if at < 0 {
		s.early++
		at = 0
	}
	for at/s.width >= time.Duration(s.limit) {
		s.widen()
	}
	i := int(at / s.width)
	if i >= len(s.bins) {
		s.bins = append(s.bins, make([]int64, i+1-len(s.bins))...)
	}
	return i
}

func (s *series) add(at time.Duration, n int64) { i := s.bin(at); s.bins[i] += n }

func (s *series) widen() {
	s.seen = s.peak()
	for i, n := range s.bins {
		if i%2 == 0 {
			s.bins[i/2] = n
		} else {
			s.bins[i/2] += n
		}
	}
	s.bins = s.bins[:(len(s.bins)+1)/2]
	s.width *= 2
}

// interval adds one request that was in flight from start to end, for peak. Times are rounded down to bins, so a request that ends in the
// bin in which another starts is not counted together with it (departures first, vLLM's rule). A request within one bin lasts one bin.
func (s *series) interval(start, end time.Duration) {
	last := s.bin(max(start, end, 0)) // first, because it may widen the bins
	first := s.bin(start)
	s.bins[first]++
	if last == first {
		last = s.bin((time.Duration(first) + 1) * s.width)
	}
	s.bins[last]--
}

// peak returns the greatest running sum.
func (s *series) peak() int64 {
	sum, most := int64(0), s.seen
	for _, n := range s.bins {
		sum += n
		most = max(most, sum)
	}
	return most
}

// most returns the greatest bin, in absolute terms.
func (s *series) most() int64 {
	most := int64(0)
	for _, n := range s.bins {
		most = max(most, n, -n)
	}
	return most
}
