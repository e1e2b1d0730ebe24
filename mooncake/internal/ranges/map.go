// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package ranges has the data structures that reading, checking and measuring traces share: a map of ids and a set of prefixes of ids. Both
// store ids as ranges. Their size depends on the number of ranges, never on that of ids.
package ranges

import (
	"math"
	"slices"
)

// Map is a map from ids to numbers, in ranges: consecutive ids have consecutive numbers. Memory and time depend on the number of ranges,
// never on that of ids. The zero value is empty.
type Map struct {
	// chunks have the ranges in order of their ids, so that inserting a range moves one chunk at most.
	chunks [][]interval
	firsts []uint64 // the first id of each chunk, in a slice of its own for a fast search
	n      int
	// near has, for each page of ids, the approximate index of the chunk with these ids. A search among all chunks would be too slow.
	near []uint32
	// The position of the last search, because an id that Find does not find is often inserted next.
	last      uint64
	chunk, at int
	isLast    bool
	// found is a cache of ids that were looked up, by hash, because the same ranges are looked up again and again.
	found []found
}

// found is an id whose number is known, and how many ids from it on have consecutive numbers, or had when it was looked up.
type found struct {
	id, number uint64
	count      int64
}

const (
	foundBits  = 14
	manyRanges = 1 << 10 // with fewer, no cache is needed
)

// cached returns the position of an id in the cache; nil if there is no cache.
func (m *Map) cached(id uint64) *found {
	if m.found == nil {
		if m.n < manyRanges {
			return nil
		}
		m.found = make([]found, 1<<foundBits)
	}
	const odd = 0x9e3779b97f4a7c15
	return &m.found[id*odd>>(64-foundBits)]
}

// interval maps the ids from first through last to the numbers number, number+1, and so on.
type interval struct{ first, last, number uint64 }

// Len returns the number of ranges.
func (m *Map) Len() int { return m.n }

// maxChunk is the maximum number of ranges in a chunk; a chunk with more is split.
const maxChunk = 64

// Pages have 64 ids. There are at most pagesPerRange pages for each range; ids beyond these pages, as when ids are far apart, are searched
// for among all chunks.
const (
	pageBits      = 6
	pagesPerRange = 4
)

// seek returns the position of the last range that begins at or before an id; at is -1 if there is none.
func (m *Map) seek(id uint64) (chunk, at int) {
	if !m.isLast || m.last != id {
		m.chunk, m.at = m.find(id)
		m.last, m.isLast = id, true
	}
	return m.chunk, m.at
}

func (m *Map) find(id uint64) (chunk, at int) {
	if len(m.chunks) == 0 || id < m.firsts[0] {
		return 0, -1
	}
	chunk = m.chunkOf(id)
	list := m.chunks[chunk]
	if at = len(list) - 1; list[at].first > id {
		low, high := 0, at
		for high-low > 1 {
			if middle := (low + high) / 2; list[middle].first > id {
				high = middle
			} else {
				low = middle
			}
		}
		at = low
	}
	return chunk, at
}

// chunkOf returns the last chunk that begins at or before an id. There must be one.
func (m *Map) chunkOf(id uint64) int {
	last := len(m.firsts) - 1
	if id >= m.firsts[last] { // new ids come after all others
		return last
	}
	page := id >> pageBits
	if page < uint64(len(m.near)) { // at the old index, or one further after a split
		for c := int(m.near[page]); c < min(int(m.near[page])+2, last); c++ {
			if m.firsts[c] <= id && id < m.firsts[c+1] {
				return c
			}
		}
	}
	low, high := 0, last // the chunk is from low to below high
	for high-low > 1 {
		if middle := (low + high) / 2; m.firsts[middle] > id {
			high = middle
		} else {
			low = middle
		}
	}
	if page < uint64(len(m.near)) {
		m.near[page] = uint32(low)
	} else if page < uint64(pagesPerRange*m.n) { //nolint:gosec // above 0
		m.near = append(m.near, make([]uint32, page+1-uint64(len(m.near)))...)
		m.near[page] = uint32(low)
	}
	return low
}

// Find returns the number of an id, and how many ids from it on have consecutive numbers. If the id has no number, it returns how many ids
// from it on have none.
func (m *Map) Find(id uint64) (number uint64, count int64, known bool) {
	p := m.cached(id)
	if p != nil && p.count > 0 && p.id == id {
		return p.number, p.count, true
	}
	c, i := m.seek(id)
	if i >= 0 {
		if r := m.chunks[c][i]; id <= r.last {
			number, count = r.number+(id-r.first), CountTo(id, r.last)
			if p != nil {
				*p = found{id, number, count}
			}
			return number, count, true
		}
	}
	i++
	if c < len(m.chunks) && i == len(m.chunks[c]) {
		c, i = c+1, 0
	}
	if c < len(m.chunks) {
		return 0, CountTo(id, m.chunks[c][i].first-1), false
	}
	return 0, math.MaxInt64, false
}

// CountTo returns the number of ids from one to another, inclusive, or the largest int.
func CountTo(first, last uint64) int64 {
	return int64(min(last-first, math.MaxInt64-1)) + 1
}

// add appends a chunk with one range.
func (m *Map) add(r interval) {
	list := append(make([]interval, 0, maxChunk), r)
	m.chunks, m.firsts = append(m.chunks, list), append(m.firsts, r.first)
}

// Insert maps the given count of ids, from first on, to the numbers number, number+1, and so on. None of these ids may have a number yet.
func (m *Map) Insert(first uint64, count int64, number uint64) {
	r := interval{first, first + uint64(count-1), number} //nolint:gosec // 1 or more
	c, i := m.seek(first)
	if p := m.cached(first); p != nil {
		*p = found{first, number, count}
	}
	if m.isLast = false; len(m.chunks) == 0 {
		m.add(r)
		m.n = 1
		return
	}
	list := m.chunks[c]
	i++ // the new range's index
	before := i > 0 && list[i-1].last+1 == r.first && list[i-1].number+(r.first-list[i-1].first) == r.number
	after := i < len(list) && r.last+1 == list[i].first && r.number+(list[i].first-r.first) == list[i].number
	switch {
	case before && after:
		list[i-1].last = list[i].last
		m.chunks[c] = slices.Delete(list, i, i+1)
		m.n--
		return
	case before:
		list[i-1].last = r.last
		return
	case after:
		list[i].first, list[i].number = r.first, r.number
		m.firsts[c] = list[0].first
		return
	}
	m.n++
	if i == maxChunk && c == len(m.chunks)-1 { // ids in ascending order fill each chunk
		m.add(r)
		return
	}
	list = slices.Insert(list, i, r)
	m.chunks[c], m.firsts[c] = list, list[0].first
	if len(list) > maxChunk {
		half := len(list) / 2
		m.chunks[c] = slices.Clone(list[:half])
		m.chunks = slices.Insert(m.chunks, c+1, slices.Clone(list[half:]))
		m.firsts = slices.Insert(m.firsts, c+1, list[half].first)
	}
}
