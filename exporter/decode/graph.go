// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

// This file reads the parts of graphs: what a row of a replay waited for, and the ids of tool calls.

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// waitedFor reads the rows that a row waited for. If one cannot be read, all are dropped: with only a part of them, a replay of the record
// would send the row too early.
func (w *worker) waitedFor(key string, v pcommon.Value) (edges []journal.RowEdge, ok bool) {
	ok = v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() <= mooncake.MaxWaitFor
	for i := 0; ok && i < v.Slice().Len(); i++ {
		e := v.Slice().At(i)
		ok = e.Type() == pcommon.ValueTypeInt && e.Int() >= 0 && e.Int() <= maxCount
		edges = append(edges, journal.RowEdge{Row: e.Int()})
	}
	return valid(w, key, edges, ok), ok
}

// evidence reads how edges were found.
func (w *worker) evidence(key string, v pcommon.Value) (all []mooncake.Evidence) {
	ok := v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() <= mooncake.MaxWaitFor
	for i := 0; ok && i < v.Slice().Len(); i++ {
		var e mooncake.Evidence
		if e, ok = mooncake.ParseEvidence(v.Slice().At(i).Str()); ok {
			all = append(all, e)
		}
	}
	return valid(w, key, all, ok)
}

// inGraph combines the attributes about a row's position in a graph, in any order. Only the row of a replay has one.
func (w *worker) inGraph(evidence []mooncake.Evidence) {
	r := &w.inference
	if !r.Row.Set || !r.Waits.InGraph {
		r.Waits = journal.Waits{}
		return
	}
	if len(evidence) == len(r.Waits.For) {
		for i, e := range evidence {
			r.Waits.For[i].Evidence = e
		}
	} else if evidence != nil {
		w.counts.invalid(semconv.WaitEvidence)
	}
}

// toolIDs reads hashes of the ids of tool calls. If one cannot be read, all are dropped.
func (w *worker) toolIDs(key string, v pcommon.Value) (ids []uint64) {
	ok := v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() <= journal.MaxToolIDs
	for i := 0; ok && i < v.Slice().Len(); i++ {
		e := v.Slice().At(i)
		ok = e.Type() == pcommon.ValueTypeInt
		ids = append(ids, uint64(e.Int())) //nolint:gosec // two's complement is the contract
	}
	return valid(w, key, ids, ok)
}
