// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
)

// A request ends within a second, however it ends. A row that is skipped is not one.
func TestPulseDone(t *testing.T) {
	var p pulse
	var v View
	for outcome, n := range map[measure.Outcome]int{measure.Served: 1, measure.Failed: 2, measure.Disconnected: 4, measure.Skipped: 8, measure.Cancelled: 16} {
		for range n {
			v.count(&measure.Record{Outcome: outcome})
		}
	}
	p.advance(time.Second, &v)
	if s := p.seconds[0]; s.Done != 23 || s.Failed != 2 {
		t.Errorf("%d done, %d failed; want 23 and 2", s.Done, s.Failed)
	}
	if line := v.String(); !strings.Contains(line, "  failed 2 ") || !strings.HasSuffix(line, " · skipped 8 · cancelled 16 · disconnected 4") {
		t.Error(line)
	}
}

// Of a run that continues, the first second does not have what was over before.
func TestPulseResumed(t *testing.T) {
	var l Live
	(&past{journal: &report.Journaled{}, view: View{Served: 4, Failed: 3, Cancelled: 1}}).addTo(&l)
	l.view.Served++
	l.pulse.advance(time.Second, &l.view)
	if s := l.pulse.seconds[0]; s.Done != 1 || s.Failed != 0 || s.Sent != 0 || s.Due != 0 || l.view.Sent != 8 {
		t.Errorf("%+v; want 1 done, and nothing else", s)
	}
}

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

// When a run has ended, its metrics say so, even if its last rows were skipped.
func TestProgressAtTheEnd(t *testing.T) {
	const end = time.Hour // of the trace: the clock of this test does not get there
	for _, c := range []struct {
		name string
		zero time.Duration // before now
		view View
		part float64
		left bool
	}{
		{"under way", 0, View{Rows: 10, Served: 6, Skipped: 2, Offset: end / 2, End: end}, 0.5, true},
		{"the last rows were skipped", 2 * end, View{Rows: 10, Served: 8, Skipped: 2, Offset: end / 2, End: end}, 1, false},
		{"replies are outstanding", 2 * end, View{Rows: 10, Served: 6, Skipped: 2, Offset: end, End: end}, 1, false},
		{"stopped", 0, View{Rows: 10, Served: 5, Offset: end / 2, End: end, Stopped: true}, 0.5, false},
	} {
		l := Live{clk: clock.New(), zero: -c.zero, view: c.view}
		if p := l.progress(); p.Part != c.part || p.Left < 0 || (p.Left > 0) != c.left {
			t.Errorf("%s: part %v, %v left; want part %v, time left: %t", c.name, p.Part, p.Left, c.part, c.left)
		}
	}
}
