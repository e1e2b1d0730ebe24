// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"hash/fnv"
	"math"

	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
)

// errorParts is the number of smaller samples from which the error of an estimate is computed.
const errorParts = 10

// estimate is a [Reuse] over the rows of a trace that also estimates its own standard error. It takes further, independent samples at a
// tenth of the rate. Their standard deviation is √10 times that of a sample at the full rate.
type estimate struct {
	blockSize int
	all       *Reuse
	parts     [errorParts]*Reuse
	since     [errorParts + 1]Hits // the hits when counting started; the last element is for the sample itself
	chain     []uint64             // of the current row
	rows      int64
}

func newEstimate(blockSize int, rate float64, maxBlocks int) *estimate {
	e := &estimate{blockSize: blockSize, all: NewReuse(ReuseOptions{Rate: rate, MaxBlocks: maxBlocks})}
	for i := range e.parts {
		e.parts[i] = NewReuse(ReuseOptions{Rate: rate / errorParts, MaxBlocks: maxBlocks, Seed: uint64(i) + 1})
	}
	return e
}

// add counts a row. A block is identified by the ids before it and the model, as in a cache.
func (e *estimate) add(row *mooncake.Row) {
	if !row.InputLength.Set {
		return
	}
	e.rows++
	model := fnv.New64a()
	_, _ = model.Write([]byte(row.Model))
	e.chain = e.chain[:0]
	before := model.Sum64()
	for _, id := range row.Blocks(e.blockSize) {
		before = splitmix.Next(before ^ splitmix.Next(id))
		e.chain = append(e.chain, before)
	}
	e.each(func(_ int, r *Reuse) { r.Add(e.chain, float64(e.blockSize), float64(row.InputLength.V), 0) })
}

// restart resets the counts. The samples keep their content.
func (e *estimate) restart() {
	e.rows = 0
	e.each(func(i int, r *Reuse) { e.since[i] = r.Hits() })
}

func (e *estimate) each(visit func(i int, r *Reuse)) {
	for i, r := range e.parts {
		visit(i, r)
	}
	visit(errorParts, e.all)
}

// hits returns the counts: first those of the parts, last that of the sample itself.
func (e *estimate) hits() (counted [errorParts + 1]Hits) {
	e.each(func(i int, r *Reuse) {
		now := r.Hits()
		counted[i] = now.Since(e.since[i])
	})
	return counted
}

// standardError returns the standard error of the estimated hit rate of a cache of this many tokens.
func standardError(counted *[errorParts + 1]Hits, capacity float64) float64 {
	mean, squares := 0., 0.
	for i := range errorParts {
		rate := counted[i].Rate(capacity)
		mean += rate / errorParts
		squares += rate * rate
	}
	return math.Sqrt(max(squares-errorParts*mean*mean, 0) / (errorParts - 1) / errorParts)
}
