// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee

import (
	"cmp"
	"math"
	"slices"

	"github.com/moonloop/moonloop/agent/clock"
)

// This file pairs requests with the schedule: by the number at the end of a header, else by their lengths, else by their order. Requests of
// one length, or without lengths, are paired in order. If one side has more, its surplus is chosen so that the rest is most regular,
// which favours the generator.

// pairing has the request of each row of a schedule.
type pairing struct {
	request []int  // of each row; -1: none
	by      string // name of a header, byLength or byOrder
}

// Ways to pair, in addition to the name of a header.
const (
	byLength = "length"
	byOrder  = "order"
)

// maxAligned limits the memory of an alignment, at four bytes for each row and each position that it may have.
const maxAligned = 16 << 20

// pair finds the request of each row.
func (s *Schedule) pair(all []Request) ([]due, pairing) {
	arrived := arrivals(all)
	if name, numbers := numbering(all, s.Count); name != "" {
		first, last := math.MaxInt, 0
		for _, i := range numbers {
			if i >= 0 {
				first, last = min(first, i), max(last, i)
			}
		}
		if first > 1 || s.Count > 0 && last < s.Count {
			first = 0 // else they may be numbered from 1
		}
		rows := s.expected(last - first + 1)
		p := pairing{none(len(rows)), name}
		for q, i := range numbers {
			if i >= 0 {
				p.request[i-first] = q
			}
		}
		return rows, p
	}
	rows := s.expected(len(all))
	at := make([]float64, len(rows))
	for i, r := range rows {
		at[i] = r.at
	}
	groups, by := lengths(rows, all, byArrival(all), func(r *Request) int64 { return r.Asked.Tokens })
	return rows, pairing{pairInOrder(at, arrived, groups), by}
}

func arrivals(all []Request) []float64 {
	at := make([]float64, len(all))
	for i := range all {
		at[i] = clock.Millis(all[i].Arrived())
	}
	return at
}

// byArrival returns the indices of the requests, in the order in which they arrived.
func byArrival(all []Request) []int {
	at, order := arrivals(all), make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	return order
}

func none(n int) []int { return slices.Repeat([]int{-1}, n) }

// numbering finds a header with numbers for the requests: nine of ten must have a number of their own, and none may be far above the number
// of requests. If the number of rows is known, a number beyond the last row does not count. Rows are numbered from 0 or, if no request has
// 0, from 1. It returns the number of each request, -1 for one without.
func numbering(all []Request, rows int) (header string, numbers []int) {
	names := map[string]bool{}
	for i := range all {
		for name := range all[i].Header {
			names[name] = true
		}
	}
	sorted := []string{requestID} // before others
	for name := range names {
		if name != requestID {
			sorted = append(sorted, name)
		}
	}
	slices.Sort(sorted[1:])
	for _, name := range sorted {
		numbers, seen, least, most := none(len(all)), map[int]bool{}, math.MaxInt, -1
		for i := range all {
			n := int(number(all[i].Header.Get(name)))
			if n < 0 || seen[n] || rows > 0 && n > rows {
				continue
			}
			numbers[i], seen[n] = n, true
			least, most = min(least, n), max(most, n)
		}
		if len(seen) == 0 || 10*len(seen) < 9*len(all) {
			continue
		}
		if most > 2*len(all)+1000 {
			continue
		}
		if rows > 0 && least == 0 { // they are numbered from 0
			for i := range numbers {
				if numbers[i] == rows {
					numbers[i] = -1
				}
			}
		}
		return name, numbers
	}
	return "", nil
}

// group is rows and requests of one kind, each in order.
type group struct{ rows, requests []int }

// lengths groups rows and requests by the number of output tokens, if at least nine of ten have a partner in their group and there is more
// than one group. Otherwise all are one group. The order is that of the requests.
func lengths(rows []due, all []Request, order []int, tokens func(*Request) int64) (groups []group, by string) {
	of := map[int64]*group{}
	at := func(n int64) *group {
		if of[n] == nil {
			of[n] = &group{}
		}
		return of[n]
	}
	for i, r := range rows {
		at(r.output).rows = append(at(r.output).rows, i)
	}
	for _, q := range order {
		g := at(tokens(&all[q]))
		g.requests = append(g.requests, q)
	}
	partners := 0
	for _, g := range of {
		partners += min(len(g.rows), len(g.requests))
		groups = append(groups, *g)
	}
	if 10*partners < 9*min(len(rows), len(all)) || len(of) == 1 {
		one := group{requests: order}
		for i := range rows {
			one.rows = append(one.rows, i)
		}
		return []group{one}, byOrder
	}
	slices.SortFunc(groups, func(a, b group) int { return slices.Compare(a.rows, b.rows) })
	return groups, byLength
}

// pairInOrder pairs rows with requests, group by group. It gets the times at which rows are due (at) and requests arrived (arrived).
func pairInOrder(at, arrived []float64, groups []group) []int {
	request := none(len(at))
	var offsets []float64 // of rows whose requests are certain
	uneven := false
	for _, g := range groups {
		if len(g.rows) != len(g.requests) {
			uneven = true
			continue
		}
		for i, row := range g.rows {
			request[row] = g.requests[i]
			offsets = append(offsets, arrived[g.requests[i]]-at[row])
		}
	}
	if !uneven {
		return request
	}
	if len(offsets) > 0 {
		offset := Percentile(offsets, 0.5)
		for _, g := range groups {
			if len(g.rows) != len(g.requests) {
				alignGroup(at, arrived, g, offset, request)
			}
		}
		return request
	}
	// If nothing is certain, each end gives a first guess of the offset, and the alignment a better one.
	best, least := request, math.Inf(1)
	for _, fromEnd := range []bool{false, true} {
		offset := ends(at, arrived, groups, fromEnd)
		for range 3 {
			try := none(len(at))
			for _, g := range groups {
				alignGroup(at, arrived, g, offset, try)
			}
			var late []float64
			for row, q := range try {
				if q >= 0 {
					late = append(late, arrived[q]-at[row])
				}
			}
			if len(late) == 0 {
				break
			}
			offset = Percentile(late, 0.5)
			cost := 0.0
			for _, l := range late {
				cost += math.Abs(l - offset)
			}
			if cost < least {
				best, least = try, cost
			}
		}
	}
	return best
}

// ends returns the median offset of rows and requests that are paired from the first forwards, or from the last backwards.
func ends(at, arrived []float64, groups []group, fromEnd bool) float64 {
	var offsets []float64
	for _, g := range groups {
		n := min(len(g.rows), len(g.requests))
		rows, requests := g.rows[:n], g.requests[:n]
		if fromEnd {
			rows, requests = g.rows[len(g.rows)-n:], g.requests[len(g.requests)-n:]
		}
		for i := range n {
			offsets = append(offsets, arrived[requests[i]]-at[rows[i]])
		}
	}
	return Percentile(offsets, 0.5)
}

// alignGroup pairs the rows and requests of one group in order. From the longer side, it leaves out those that minimise the sum of the
// distances from the offset. If that would need too much memory, it leaves out the last ones.
func alignGroup(at, arrived []float64, g group, offset float64, request []int) {
	few, many := len(g.rows), len(g.requests)
	distance := func(i, k int) float64 { return math.Abs(arrived[g.requests[k]] - at[g.rows[i]] - offset) }
	enter := func(i, k int) { request[g.rows[i]] = g.requests[k] }
	if few > many {
		few, many = many, few
		distance = func(i, k int) float64 { return math.Abs(arrived[g.requests[i]] - at[g.rows[k]] - offset) }
		enter = func(i, k int) { request[g.rows[k]] = g.requests[i] }
	}
	places := many - few + 1
	if few == 0 || few*places > maxAligned {
		for i := range few {
			enter(i, i)
		}
		return
	}
	// cost[j] is the minimum cost of the first i of the few, if up to j of the many were left out.
	cost, from := make([]float64, places), make([]int32, few*places)
	for i := range few {
		for j := range places {
			cost[j] += distance(i, i+j)
			from[i*places+j] = int32(j)
			if j > 0 && cost[j-1] <= cost[j] {
				cost[j], from[i*places+j] = cost[j-1], from[i*places+j-1]
			}
		}
	}
	for i, j := few-1, places-1; i >= 0; i-- {
		j = int(from[i*places+j])
		enter(i, i+j)
	}
}
