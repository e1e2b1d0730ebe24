// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// TestLoopVerdict makes the demonstration's comparison fail in each possible way.
func TestLoopVerdict(t *testing.T) {
	good := func() *loop {
		meta := mooncake.Meta{Rows: 3, Digests: mooncake.Digests{Seq: strings.Repeat("a", 64), Tree: strings.Repeat("b", 64), Arrival: strings.Repeat("c", 64)}}
		return &loop{captured: capture.TraceResult{Meta: meta}, replayed: capture.TraceResult{Meta: meta}, sent: Sent{Requests: 3}}
	}
	for _, tc := range []struct {
		name string
		bend func(*loop)
		want string // in the output; "" is a closed loop
	}{
		{"closed", func(*loop) {}, ""},
		{"timestamps 1 ms apart are allowed", func(l *loop) { l.traces.Apart = 1 }, ""},
		{"timestamps further apart are not", func(l *loop) {
			l.traces.Apart, l.traces.Timestamps = 1.01, stats.Difference{Count: 1}
		}, "1.01 ms"},
		{"a request of production is missing", func(l *loop) { l.sent.Requests = 4 }, "production sent 4"},
		{"a row of the replay is missing", func(l *loop) { l.replayed.Meta.Rows = 2 }, "DIFFERENT"},
		{"different sharing", func(l *loop) { l.traces.Blocks.Count = 1 }, "DIFFERENT lengths and shared blocks"},
		{"different lengths", func(l *loop) { l.traces.Lengths.Count = 1 }, "DIFFERENT lengths and shared blocks"},
		{"sharing that was not compared", func(l *loop) { l.traces.Unchecked = 1 }, "same"},
		{"text in a file", func(l *loop) { l.found = []string{"journal/x"} }, "in journal/x;"},
	} {
		l := good()
		tc.bend(l)
		if closed := tc.want == ""; l.closed() != closed {
			t.Errorf("%s: closed is %v", tc.name, l.closed())
		}
		var b strings.Builder
		l.write(&b)
		verdict := "Loop        closed; the measurement of the replay is valid"
		if tc.want != "" {
			verdict = "Loop        NOT CLOSED; the measurement of the replay is valid"
		}
		if !slices.Contains(strings.Split(b.String(), "\n"), verdict) || !strings.Contains(b.String(), tc.want) {
			t.Errorf("%s: want %q and %q in\n%s", tc.name, verdict, tc.want, &b)
		}
	}
}
