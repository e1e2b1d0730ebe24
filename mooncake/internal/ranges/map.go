// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package ranges holds what reading, checking and measuring traces have in common: a map and a set of prefixes of ids that come in
// ranges, each as large as the number of ranges, never as that of ids.
package ranges

import (
	"math"
	"slices"
)

// Map is a map from ids to numbers that are given to ids in ranges: ids that follow one another have numbers that do.
// It takes memory and time by the number of ranges, never by that of ids. The zero value is empty.
type Map struct {
	// chunks hold the ranges in order of their ids, so that one that comes between others moves a chunk at most.
	chunks [][]interval
	firsts []uint64 // id of each chunk, side by side, since most of the time goes into looking for it
	n      int
}

// interval gives the ids first to last the numbers from to on.
type interval struct{ first, last, to uint64 }

// Len returns the number of ranges.
func (m *Map) Len() int { return m.n }

// maxChunk is the number of ranges at which a chunk becomes two.
const maxChunk = 512

// seek returns the place of the last range that begins at an id or before it; at is -1 when there is none.
func (m *Map) seek(id uint64) (chunk, at int) {
	chunk = len(m.chunks) - 1
	if chunk < 0 || id < m.firsts[0] {
		return 0, -1
	}
	if id < m.firsts[chunk] { // new ids are behind all others
		low, high := 0, chunk // the chunk is from low to below high
		for high-low > 1 {
			if middle := (low + high) / 2; m.firsts[middle] > id {
				high = middle
			} else {
				low = middle
			}
		}
		chunk = low
	}
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

// Find returns the number of an id and how many ids from it on have the numbers that follow; or, where the id has none, how
// many from it on have none.
func (m *Map) Find(id uint64) (to uint64, count int64, known bool) {
	c, i := m.seek(id)
	if i >= 0 {
		if r := m.chunks[c][i]; id <= r.last {
			return r.to + (id - r.first), CountTo(id, r.last), true
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

// CountTo returns the number of ids from one to another, itself included, or the largest that there is.
func CountTo(first, last uint64) int64 {
	return int64(min(last-first, math.MaxInt64-1)) + 1
}

// Insert gives ids that have no number the numbers from to on.
func (m *Map) Insert(first uint64, count int64, to uint64) {
	r := interval{first, first + uint64(count-1), to} //nolint:gosec // 1 or more
	if len(m.chunks) == 0 {
		m.chunks, m.firsts = [][]interval{{r}}, []uint64{first}
		m.n = 1
		return
	}
	c, i := m.seek(first)
	list := m.chunks[c]
	i++ // its place
	before := i > 0 && list[i-1].last+1 == r.first && list[i-1].to+(r.first-list[i-1].first) == r.to
	after := i < len(list) && r.last+1 == list[i].first && r.to+(list[i].first-r.first) == list[i].to
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
		list[i].first, list[i].to = r.first, r.to
		m.firsts[c] = list[0].first
		return
	}
	m.n++
	if i == maxChunk && c == len(m.chunks)-1 { // ids that come in their order fill each chunk
		m.chunks, m.firsts = append(m.chunks, []interval{r}), append(m.firsts, first)
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
