// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// TestProductionCache: production's cached tokens are next to those of this engine, over the same requests only.
func TestProductionCache(t *testing.T) {
	a := NewAggregate(Options{})
	add := func(observed mooncake.Opt[int64], cached int64, outcome Outcome) {
		r := served()
		row := *r.Row
		row.Observed.CachedTokens = observed
		r.Row, r.Exchange.Usage.Cached, r.Outcome = &row, cached, outcome
		a.Add(r)
	}
	add(mooncake.Some[int64](768), 512, Served)
	add(mooncake.Some[int64](0), 0, Served)              // 0 is a count
	add(mooncake.Opt[int64]{}, 512, Served)              // production says nothing
	add(mooncake.Some[int64](768), send.Unknown, Served) // this engine says nothing
	add(mooncake.Some[int64](768), 512, Failed)
	want := ProductionCache{Requests: 2, InputTokens: 2000, Production: 768, Replay: 512}
	if d := cmp.Diff(want, a.Figures().Cache.Production); d != "" {
		t.Error(d)
	}
}
