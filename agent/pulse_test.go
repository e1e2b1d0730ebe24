// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"
)

// Seconds add up to the whole, and quantiles are those of the last ten seconds.
func TestPulse(t *testing.T) {
	var p pulse
	var v View
	sent := int64(0)
	for ms := range int64(90_000) {
		now := time.Duration(ms) * time.Millisecond
		p.advance(now, &v)
		if ms%10 == 0 {
			v.Sent++
			sent++
			p.ttft.add(time.Duration(ms) * time.Microsecond)
		}
	}
	p.advance(90*time.Second, &v)
	total := int64(0)
	for _, s := range p.seconds {
		total += s.Sent
		if s.Sent != 100 {
			t.Errorf("a second with %d requests, want 100", s.Sent)
		}
	}
	if len(p.seconds) != maxSeconds || total != 100*maxSeconds || sent != 9000 {
		t.Errorf("%d seconds with %d of %d requests", len(p.seconds), total, sent)
	}
	q := p.ttft.quantiles()
	if q.P50 < 80*time.Millisecond || q.P50 > 90*time.Millisecond || q.P99 < q.P50 || q.P99 > 91*time.Millisecond {
		t.Errorf("quantiles of the last ten seconds: %v", q)
	}
	p.advance(time.Hour, &v) // nobody looked for a long time
	if len(p.seconds) > maxSeconds || p.next != time.Hour+time.Second {
		t.Errorf("%d seconds, the next one ends at %v", len(p.seconds), p.next)
	}
}
