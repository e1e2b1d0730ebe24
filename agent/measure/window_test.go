// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/send"
)

// during returns a served request of 10 tokens, one every 100 ms, that is in flight for a second from an instant on.
func during(start time.Duration) *Record {
	r := &Record{Sent: true, Intended: start, Dispatched: start, Admitted: start, Predicted: send.Unknown, Finest: send.Unknown}
	x := &r.Exchange
	x.Start, x.Wire, x.FirstEvent, x.FirstAnswer, x.End = start, start, start+100*ms, start+100*ms, start+1000*ms
	x.Attempts, x.Usage = 1, send.Usage{Prompt: 50, Completion: 10, Cached: send.Unknown, Reasoning: send.Unknown}
	for i := range 10 {
		x.At = append(x.At, int64(start+time.Duration(i+1)*100*ms))
	}
	return r
}

// A load that rises to 4 requests at once, stays, and drains: the plateau is where it is 4. A window of it has the throughput of 4 streams
// of 10 tokens a second; the whole run has less.
func TestPlateau(t *testing.T) {
	whole := NewAggregate(Options{})
	var all []*Record
	for i := range 40 { // a request every 250 ms, each for 1 s
		all = append(all, during(2*time.Second+time.Duration(i)*250*ms))
	}
	for _, r := range all {
		whole.Add(r)
	}
	p, ok := whole.Plateau()
	if !ok || p.Level != 4 || p.Peak != 4 || p.Window != (Window{2750 * ms, 11750 * ms}) {
		t.Fatalf("plateau %+v, %v", p, ok)
	}
	within := NewAggregate(Options{Window: &p.Window})
	for _, r := range all {
		within.Add(r)
	}
	f := within.Figures()
	if f.Rows.Total != 36 || f.Rows.Served != 36 {
		t.Errorf("%+v rows, want the 36 that began from 2.75 to 11.75 s, the last one left out", f.Rows)
	}
	near(t, "duration", stat(t, f, Duration).Avg, 9, 1e-9)
	near(t, "tokens/s", stat(t, f, TokenThroughput).Avg, 40, 1)
	near(t, "requests/s", stat(t, f, RequestThroughput).Avg, 4, 0.2)
	near(t, "input and output tokens/s", stat(t, f, TotalThroughput).Avg, 240, 10)
	near(t, "latency", stat(t, f, Latency).Avg, 1000, 1)
	if s := stat(t, f, PeakConcurrency); s.Avg != 4 {
		t.Errorf("at most %v at once, want 4", s.Avg)
	}
	if all, _ := whole.Figures().Stat(TokenThroughput); all.Avg > 39 {
		t.Errorf("the whole run has %v tokens/s: the test shows nothing", all.Avg)
	}
}

// A window counts a long request that began in it, however late it ends. Otherwise only short ones would remain.
func TestWindowKeepsLongRequests(t *testing.T) {
	a := NewAggregate(Options{Window: &Window{0, 500 * ms}})
	long := during(400 * ms)
	long.Exchange.Usage.Completion = 20 // two in each chunk, as the engine counts
	a.Add(long)
	a.Add(during(600 * ms))
	f := a.Figures()
	if f.Rows.Served != 1 || stat(t, f, Latency).Avg != 1000 {
		t.Errorf("%+v, latency %v", f.Rows, stat(t, f, Latency))
	}
	near(t, "tokens/s of the window", stat(t, f, TokenThroughput).Avg, 0, 1e-9)
	if _, any := f.Stat(PeakTokens); any {
		t.Error("a token after the window makes a peak in it")
	}
}

// A run has no plateau if it sent nothing, or everything at once.
func TestNoPlateau(t *testing.T) {
	a := NewAggregate(Options{})
	if p, ok := a.Plateau(); ok {
		t.Errorf("of nothing: %+v", p)
	}
	a.Add(during(time.Second))
	if p, ok := a.Plateau(); ok {
		t.Errorf("of one request: %+v", p)
	}
	a.Add(&Record{Outcome: Skipped})
	a.Add(during(time.Second))
	if p, ok := a.Plateau(); ok {
		t.Errorf("of two at once: %+v", p)
	}
}
