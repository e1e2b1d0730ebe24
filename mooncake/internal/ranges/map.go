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
	firsts []uint64 // id of each chunk, side by side
	n      int
	// near is, for each page of ids, about where the chunk is that has them: to look for it among all would take most of the time.
	near []uint32
	// The place that was sought last, since what Find does not find is often inserted next.
	last      uint64
	chunk, at int
	isLast    bool
	// found are what ids had that were asked for, each where its hash says: the same ranges are asked for again and again.
	found []found
}

// found is an id whose number is known, and how many ids from it on have the numbers that follow, or had when it was asked for.
type found struct {
	id, to uint64
	count  int64
}

const (
	foundBits  = 14
	manyRanges = 1 << 10 // fewer need no such table
)

// place returns where the table has an id; nil is no table.
func (m *Map) place(id uint64) *found {
	if m.found == nil {
		if m.n < manyRanges {
			return nil
		}
		m.found = make([]found, 1<<foundBits)
	}
	const odd = 0x9e3779b97f4a7c15
	return &m.found[id*odd>>(64-foundBits)]
}

// interval gives the ids first to last the numbers from to on.
type interval struct{ first, last, to uint64 }

// Len returns the number of ranges.
func (m *Map) Len() int { return m.n }

// maxChunk is the number of ranges at which a chunk becomes two.
const maxChunk = 64

// Pages are of 64 ids. There are as many as ids below some multiple of the number of ranges need: ids that are far apart have none.
const (
	pageBits      = 6
	pagesPerRange = 4
)

// seek returns the place of the last range that begins at an id or before it; at is -1 when there is none.
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

// chunkOf returns the last chunk that begins at an id or before it. There is one.
func (m *Map) chunkOf(id uint64) int {
	last := len(m.firsts) - 1
	if id >= m.firsts[last] { // new ids are behind all others
		return last
	}
	page := id >> pageBits
	if page < uint64(len(m.near)) { // where it was, or one further on since another one became two
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

// Find returns the number of an id and how many ids from it on have the numbers that follow; or, where the id has none, how
// many from it on have none.
func (m *Map) Find(id uint64) (to uint64, count int64, known bool) {
	p := m.place(id)
	if p != nil && p.count > 0 && p.id == id {
		return p.to, p.count, true
	}
	c, i := m.seek(id)
	if i >= 0 {
		if r := m.chunks[c][i]; id <= r.last {
			to, count = r.to+(id-r.first), CountTo(id, r.last)
			if p != nil {
				*p = found{id, to, count}
			}
			return to, count, true
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

// add begins a last chunk.
func (m *Map) add(r interval) {
	list := append(make([]interval, 0, maxChunk), r)
	m.chunks, m.firsts = append(m.chunks, list), append(m.firsts, r.first)
}

// Insert gives ids that have no number the numbers from to on.
func (m *Map) Insert(first uint64, count int64, to uint64) {
	r := interval{first, first + uint64(count-1), to} //nolint:gosec // 1 or more
	c, i := m.seek(first)
	if p := m.place(first); p != nil {
		*p = found{first, to, count}
	}
	if m.isLast = false; len(m.chunks) == 0 {
		m.add(r)
		m.n = 1
		return
	}
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
