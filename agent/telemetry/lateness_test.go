// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/semconv"
)

// The classes of the lateness of a request are those by which a run is judged.
func TestLatenessClassIsJudged(t *testing.T) {
	classes := map[judge.Class]string{
		judge.Valid: semconv.LatenessOnTime, judge.Degraded: semconv.LatenessLate, judge.Invalid: semconv.LatenessVeryLate,
	}
	seen := map[string]bool{}
	for late := time.Duration(0); late <= time.Second; late += 500 * time.Microsecond {
		want := classes[judge.Judge(judge.Facts{Served: 100, Rows: 100, Records: 100, Scheduled: 100, LatenessP99: judge.Know(clock.Millis(late))}).Class]
		if got := latenessClass(late); got != want {
			t.Fatalf("%v is %s, but judged as %s", late, got, want)
		}
		seen[want] = true
	}
	if len(seen) != 3 {
		t.Errorf("only %v occur", seen)
	}
}
