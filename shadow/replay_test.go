// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"context"
	"testing"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// TestNothingStartsAfterTheEnd: rows that wait when the shadow ends are left to the next process, and start no replay.
func TestNothingStartsAfterTheEnd(t *testing.T) {
	cfg := configFor(t, t.TempDir(), t.TempDir(), nil)
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	f := newFeeder(&cfg)
	due := float64(time.Now().UnixMilli())
	f.add([]entry{{Row: &mooncake.Row{Timestamp: mooncake.Some(due)}}, {Row: &mooncake.Row{Timestamp: mooncake.Some(due)}}})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	f.run(ctx, 1)
	if started, drops := f.news(); len(started)+len(drops) > 0 {
		t.Errorf("%d replays were started, and %d rows dropped", len(started), len(drops))
	}
}
