// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// TestObserved: a row of production has what telemetry reports about the request; the sidecar compares the engine's cached tokens with
// those that the trace predicts.
func TestObserved(t *testing.T) {
	firstToken := func(ms int64) func(*journal.Inference) {
		return func(r *journal.Inference) { r.FirstToken = opt(r.Start + ms*1e6) }
	}
	records := []journal.Record{
		call(1, 1, 0, 0, engine(5, 6), cached(0), firstToken(40), func(r *journal.Inference) { r.Finish = name(t, "tool_calls") }),
		call(2, 1, 0, 1, engine(5, 6), cached(900)),
		call(3, 1, 0, 2, engine(5, 6), firstToken(-1), func(r *journal.Inference) { r.Finish = name(t, "no+word") }),
		call(4, 1, 0, 3, engine(5, 6), cached(1001), lasting(-1)), // more than the prompt has, and an end before its start
		replayed(t, "a", 0, 9, 1, 0, 7),
	}
	m, res := compileBytes(t, Options{}, journalOf(records...))
	rows := m.rows(t, production)
	equal(t, "rows", []mooncake.Observed{
		{CachedTokens: opt[int64](0), TTFT: opt(40.0), Duration: opt(100.0), FinishReason: "tool_calls"},
		{CachedTokens: opt[int64](900), Duration: opt(100.0)},
		{Duration: opt(100.0)},
		{},
	}, []mooncake.Observed{rows[0].Observed, rows[1].Observed, rows[2].Observed, rows[3].Observed})
	meta := m.meta(t, production)
	equal(t, "dropped", int64(1), dropped(meta.Dropped, lostObserved))
	// 1,000 tokens are a block of 512 and a partial one, which is not predicted.
	predicted := stats.NewPredictor(stats.PredictorOptions{BlockSize: 512})
	var want mooncake.ObservedCache
	for _, row := range rows {
		hit, _ := predicted.Predict(row)
		want.Add(row, hit.Whole, 512)
	}
	equal(t, "sidecar", &want, meta.ObservedCache)
	equal(t, "rows in the sidecar", int64(2), want.Rows)
	equal(t, "result", meta.ObservedCache, res.Traces[0].Meta.ObservedCache)

	run := m.rows(t, "run a")
	equal(t, "what a row of a replay says of production", mooncake.Observed{}, run[0].Observed)
	if got := m.meta(t, "run a").ObservedCache; got != nil {
		t.Errorf("the sidecar of a replay says %+v", got)
	}
}

// TestObservedPlain: a plain row has only its four fields, but the sidecar has the comparison.
func TestObservedPlain(t *testing.T) {
	m, _ := compileBytes(t, Options{Format: FormatMooncake}, journalOf(call(1, 1, 0, 0, engine(5, 6), cached(512))))
	equal(t, "row", mooncake.Observed{}, m.rows(t, production)[0].Observed)
	if o := m.meta(t, production).ObservedCache; o == nil || o.Cached != 512 {
		t.Errorf("sidecar: %+v", o)
	}
}
