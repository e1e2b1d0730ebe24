// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"cmp"
	"errors"
	"math"
	"slices"
)

// A continuous replay, such as that of a shadow, is compared with production row by row, as its records arrive.

// maxWindowLateness is the p99 of the lateness, in ms, above which the times of rows do not count: the bound of a valid run.
const maxWindowLateness = 10

// TwinRow is a record of a replay next to what production observed.
type TwinRow struct {
	row
	lateness float64
}

// ParseTwinRow reads a line of requests.jsonl.
func ParseTwinRow(line []byte) (TwinRow, error) {
	r, late, err := parseLine(line)
	return TwinRow{r, late}, err
}

// AnyObserved reports whether a row says what production observed.
func AnyObserved(rows []TwinRow) bool {
	return slices.ContainsFunc(rows, func(r TwinRow) bool { return r.observed() })
}

// TwinOf compares rows that were sent at the times of production. Their times do not count if the replay itself was late. If most is nil,
// the tolerances are the defaults.
func TwinOf(rows []TwinRow, most map[string]float64) (*Twin, error) {
	if !AnyObserved(rows) {
		return nil, errors.New("no row says what production observed")
	}
	if most == nil {
		most, _ = ParseTolerances("")
	}
	plain, late := make([]row, len(rows)), make([]float64, len(rows))
	for i, r := range rows {
		plain[i], late[i] = r.row, r.lateness
	}
	slices.Sort(late)
	t := &Twin{Verdict: ValidVerdict, Rows: len(rows), Speedup: 1}
	if late[max(0, int(math.Ceil(0.99*float64(len(late))))-1)] > maxWindowLateness {
		t.Verdict = "late"
	}
	slices.SortStableFunc(plain, func(a, b row) int { return cmp.Compare(a.timestamp, b.timestamp) })
	for i := range plain { // the rows may be from several replays, whose clocks do not matter
		plain[i].intended = plain[i].timestamp - plain[0].timestamp
	}
	t.compare(plain, most)
	return t, nil
}
