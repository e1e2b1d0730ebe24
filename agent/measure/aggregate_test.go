// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
)

// stat returns a figure that must exist.
func stat(t *testing.T, f *Figures, id ID) Stat {
	t.Helper()
	s, ok := f.Stat(id)
	if !ok {
		t.Fatalf("%s was not measured", id)
	}
	return s
}

// One record: every distribution holds the one value that the formulas of formula_test.go give.
func TestOneRecord(t *testing.T) {
	a := NewAggregate(Options{SLO: SLO{TTFT: 98 * ms}})
	a.Add(served())
	f := a.Figures()
	for id, want := range map[ID]float64{
		TTFT: 98, TTFTWire: 95, TTFTIntended: 100, TTFE: 93, TTFO: 108, TTST: 10,
		Latency: 158, LatencyWire: 155, LatencyIntended: 160,
		ITL: 15, TPOT: 16.25, TPOTWithFirst: 31.6, Decode: 60,
		InterChunk:             20, // (10 + 20 + 30) ÷ 3
		UserThroughput:         1 / 0.015,
		PrefillThroughput:      1000 / 0.098,
		RequestTokenThroughput: 5 / 0.158,
		InputLength:            1000, OutputLength: 5, CachedTokens: 512, PredictedTokens: 1000,
		HTTPBlocked: 0.5, HTTPDNS: 0.25, HTTPTLS: 1, HTTPSending: 0.75, HTTPWaiting: 45, HTTPReceiving: 120,
		HTTPConnecting: 1.5,    // 0.5 + 1
		HTTPOverhead:   2.25,   // 0.5 + 0.25 + 1.5
		HTTPDuration:   165.75, // 0.75 + 45 + 120
		HTTPTotal:      168,    // both
		HTTPSent:       2048, HTTPReceived: 900,
		Lateness: 1, LatenessUnexplained: 1, CapWait: 0, WireLag: 4, SendGap: 5,

		RequestCount: 1, ErrorCount: 0, ErrorRate: 0, TotalInput: 1000, TotalOutput: 5, TotalCached: 512,
		CacheReadPct: 51.2, // 100·512 ÷ 1000
		GoodCount:    1, GoodFraction: 1,
		Duration:         0.158, // 1160 − 1002
		TokenThroughput:  5 / 0.158,
		TotalThroughput:  1005 / 0.158,
		InteractivityP90: 1 / 0.0316, InteractivityP75: 1 / 0.0316, // 158 ms ÷ 5 tokens, inverted
		RequestThroughput: 1 / 0.158, Goodput: 1 / 0.158,
		PeakConcurrency: 1, PeakTokens: 4, // four chunks in the second of the run's clock from 1 to 2 s
	} {
		near(t, id.String(), stat(t, f, id).Avg, want, want*1e-3)
	}
	for id := range definitions {
		if _, ok := f.Stat(ID(id)); !ok {
			t.Errorf("%s was not measured", ID(id))
		}
	}
	if d := cmp.Diff(Cache{Reported: 1, Predicted: 1, Compared: 1, ComparedCached: 512, ComparedPredicted: 1000, Realisation: 0.512}, f.Cache); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(Chunks{Gaps: 3, KernelStamps: 1, Streams: 1}, f.Chunks); d != "" {
		t.Error(d)
	}
}

// TestWhoCountsWhere: each kind of row changes some of the figures, and leaves the others alone.
func TestWhoCountsWhere(t *testing.T) {
	add := func(a *Aggregate, change func(*Record)) {
		r := served()
		change(r)
		a.Add(r)
	}
	a := NewAggregate(Options{})
	add(a, func(*Record) {})
	add(a, func(r *Record) { r.Outcome, r.Reason, r.Message = Failed, "429", "slow down" })
	add(a, func(r *Record) { r.Outcome, r.Reason, r.Message = Failed, "429", "slower" })
	add(a, func(r *Record) { r.Outcome, r.Reason, r.Exchange.Attempts = Failed, "connect", 3 })
	add(a, func(r *Record) { r.Outcome, r.Reason = Skipped, SkipSession })
	add(a, func(r *Record) { r.Outcome = Cancelled })
	add(a, func(r *Record) { r.Exchange.Attempts = 2; r.Exchange.Start = 500 * ms })
	add(a, func(r *Record) { r.Exchange.Replays, r.Exchange.Resent = 2, 1 })
	add(a, func(r *Record) { r.Exchange.Attempts, r.Exchange.Unconnected = 3, 2 })
	add(a, func(r *Record) { r.Exchange.Replays = 1 }) // the engine never had the whole first copy of the request

	f := a.Figures()
	want := Rows{Total: 10, Served: 5, Failed: 3, Cancelled: 1, Skipped: 1, Retried: 3, RetriedServed: 2, Resent: 1, Reconnected: 1}
	if f.Connections.Replays != 3 {
		t.Errorf("%d replays, want 3", f.Connections.Replays)
	}
	if d := cmp.Diff(want, f.Rows); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Reason{{"429", 2, "slow down"}, {"connect", 1, ""}}, f.Errors); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Reason{{SkipSession, 1, ""}}, f.Skips); d != "" {
		t.Error(d)
	}
	if n := stat(t, f, TTFT).Count; n != 2 {
		t.Errorf("%d latencies, want those of the two rows that were sent at the first attempt", n)
	}
	if n := stat(t, f, OutputLength).Count; n != 5 {
		t.Errorf("%d output lengths, want those of rows sent twice too", n)
	}
	// 100 · 3 ÷ (5 + 3): cancelled and skipped rows are neither good nor bad.
	near(t, "error rate", stat(t, f, ErrorRate).Avg, 300./8, 1e-9)
	// The retried row started at 500: 1160 − 500.
	near(t, "duration", stat(t, f, Duration).Avg, 0.66, 1e-9)
	// All but the skipped row were dispatched, and are late by 1 ms.
	if n := stat(t, f, Lateness).Count; n != 9 {
		t.Errorf("%d latenesses, want 9", n)
	}
	// Nine were in flight at 1002…1170.
	near(t, "peak", stat(t, f, PeakConcurrency).Avg, 9, 0)
}

func TestScheduleFidelity(t *testing.T) {
	// Hiccups take the first 30 ms of every second.
	excused := func(a, b time.Duration) time.Duration {
		return max(0, min(b, a.Truncate(time.Second)+30*ms)-a)
	}
	a := NewAggregate(Options{})
	add := func(intended, dispatched, admitted, wire time.Duration, scheduled bool) {
		r := served()
		r.Intended, r.Dispatched, r.Admitted, r.Exchange.Wire, r.Scheduled = intended, dispatched, admitted, wire, scheduled
		r.Excused = excused(intended, dispatched)
		a.Add(r)
	}
	add(1000*ms, 1020*ms, 1020*ms, 1021*ms, true)  // 20 late, all of it explained by the hiccup
	add(2000*ms, 2150*ms, 2150*ms, 2151*ms, true)  // 150 late, 30 explained
	add(3000*ms, 3000*ms, 3005*ms, 3006*ms, true)  // held back by the cap for 5 ms: no lateness
	add(4000*ms, 3999*ms, 3999*ms, 5500*ms, true)  // 1 ms early, and on the wire in another second
	add(5000*ms, 5900*ms, 5900*ms, 5901*ms, false) // from a free slot: no lateness to judge
	f := a.Figures()

	late, own := stat(t, f, Lateness), stat(t, f, LatenessUnexplained)
	if late.Count != 4 || late.Max != 150 || late.Min != -1 || late.Clamped != 1 {
		t.Errorf("lateness %+v", late)
	}
	if own.Max != 120 || own.Min != -1 || own.Sum != 0+120+0-1 {
		t.Errorf("unexplained lateness %+v", own)
	}
	s := f.Schedule
	s.Drift = Drift{}
	want := Schedule{
		Dispatched: 5, Scheduled: 4, Over1: 2, Over10: 2, Over100: 1, CapWaits: 1,
		WindowDiff: 1, WindowWidth: time.Second, PeakWidth: ms, PeakTokensWidth: time.Second,
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
	if w := stat(t, f, WireLag); w.Max != 1501 || w.Count != 5 {
		t.Errorf("wire lag %+v: it starts at Admitted", w)
	}
	if w := stat(t, f, CapWait); w.Max != 5 {
		t.Errorf("cap wait %+v", w)
	}
}

func TestTokenCounts(t *testing.T) {
	a := NewAggregate(Options{})
	add := func(change func(*Record)) {
		r := served()
		change(r)
		a.Add(r)
	}
	add(func(*Record) {})
	// Three of five tokens, by the server's count.
	add(func(r *Record) { r.Exchange.Usage.Completion, r.Output = 3, AgreeDifferent })
	// More than asked counts as different, but not as short.
	add(func(r *Record) { r.Exchange.Usage.Completion, r.Output, r.TooShort = 9, AgreeDifferent, true })
	// No usage: four chunks are an estimate, and no proof of a short reply. There are no cached tokens to compare either.
	add(func(r *Record) {
		r.Exchange.Usage, r.Prompt, r.Output, r.TailCut = send.NoUsage, AgreeUnknown, AgreeUnknown, true
	})
	add(func(r *Record) { r.Exchange.At, r.Exchange.Usage.Completion, r.Output = nil, 0, AgreeDifferent })
	add(func(r *Record) { r.Predicted, r.Exchange.Usage.Cached = send.Unknown, 88 })
	f := a.Figures()
	want := Tokens{
		Prompt: Agreements{Equal: 5, Unknown: 1}, Output: Agreements{Equal: 2, Different: 3, Unknown: 1},
		OutputShort: 2, Estimated: 1, PromptEstimated: 1, NoContent: 1, TooShort: 1, TailCut: 1,
	}
	if d := cmp.Diff(want, f.Tokens); d != "" {
		t.Error(d)
	}
	// Five rows report cached tokens (4·512 + 88 of 5,000), five have a prediction, four have both: 2048 ÷ 4000.
	if d := cmp.Diff(Cache{Reported: 5, Predicted: 5, Compared: 4, ComparedCached: 2048, ComparedPredicted: 4000, Realisation: 0.512}, f.Cache); d != "" {
		t.Error(d)
	}
	near(t, "cache read", stat(t, f, CacheReadPct).Avg, 100*2136./5000, 1e-9)
	if share, ok := f.Tokens.Output.DifferentShare(); !ok || share != 0.6 {
		t.Errorf("different %v, %v; unknown rows are in neither part", share, ok)
	}
}

// TestUncounted: a reply that was not a stream and has no count is in no figure of output tokens, of the run, of a window and of a class; it
// is counted. A figure to which no reply contributes is absent, and is not 0.
func TestUncounted(t *testing.T) {
	whole := func(completion int64) *Record {
		r := served()
		r.Exchange.Whole, r.Exchange.At, r.Exchange.Usage.Completion = true, stamps(1160), completion
		if completion == send.Unknown {
			r.Output = AgreeUnknown
		}
		return r
	}
	for name, window := range map[string]*Window{"run": nil, "window": {From: 0, To: 2000 * ms}} {
		none, one := NewAggregate(Options{Window: window}), NewAggregate(Options{Window: window})
		for range 3 {
			none.Add(whole(send.Unknown))
			one.Add(whole(send.Unknown))
		}
		one.Add(whole(8))
		f := none.Figures()
		if f.Tokens.Uncounted != 3 || f.Tokens.Estimated != 0 || f.Tokens.OutputShort != 0 || f.Rows.Served != 3 {
			t.Errorf("%s: %+v, %+v", name, f.Tokens, f.Rows)
		}
		for _, id := range []ID{OutputLength, TotalOutput, TokenThroughput, TotalThroughput, RequestTokenThroughput, TPOT, TPOTWithFirst, ITL, InteractivityP75, PeakTokens} {
			if s, ok := f.Stat(id); ok {
				t.Errorf("%s: %s is %+v, although no number of tokens is known", name, id, s)
			}
		}
		stat(t, f, RequestThroughput)
		f = one.Figures()
		if s := stat(t, f, OutputLength); f.Tokens.Uncounted != 3 || s.Count != 1 || s.Avg != 8 {
			t.Errorf("%s: %d not counted, lengths %+v", name, f.Tokens.Uncounted, s)
		}
		near(t, name+": total", stat(t, f, TotalOutput).Avg, 8, 0)
		near(t, name+": throughput", stat(t, f, TokenThroughput).Avg, 8/stat(t, f, Duration).Avg, 1e-9)
		near(t, name+": total throughput", stat(t, f, TotalThroughput).Avg, 4008/stat(t, f, Duration).Avg, 1e-9)
	}
	for want, completions := range map[int64][]int64{send.Unknown: {send.Unknown}, 8: {send.Unknown, 8}} {
		p := &part{ttft: newHistogram(scaleMillis), itl: newHistogram(scaleMillis), latency: newHistogram(scaleMillis)}
		for _, n := range completions {
			p.add(whole(n), &SLO{})
		}
		got := int64(send.Unknown)
		p.figures().All(func(id ID, s Stat) bool {
			if id == TotalOutput {
				got = int64(s.Avg)
			}
			return true
		})
		if got != want {
			t.Errorf("%v: a part has %d output tokens, want %d", completions, got, want)
		}
	}
}

func TestCoalescedGapsStay(t *testing.T) {
	a := NewAggregate(Options{})
	r := served()
	r.Exchange.At, r.Exchange.Coalesced = stamps(1100, 1100, 1140, 1160), 1 // two chunks of one read
	a.Add(r)
	f := a.Figures()
	if share, _ := f.Chunks.CoalescedShare(); share != 1./3 {
		t.Errorf("coalesced share %v, want 1/3", share)
	}
	if s := stat(t, f, InterChunk); s.Count != 3 || s.Min != 0 {
		t.Errorf("the gap of 0 was smoothed away: %+v", s)
	}
}

// TestGoodFraction: a request that was stopped counts as not good once it has missed an objective, in the whole and in its part. One that
// had not missed any does not count.
func TestGoodFraction(t *testing.T) {
	a := NewAggregate(Options{SLO: SLO{E2E: 158 * ms}})
	for _, change := range []func(*Record){
		func(*Record) {},
		func(r *Record) { r.Outcome, r.Reason = Failed, "429" },
		func(r *Record) { r.Outcome, r.Reason, r.Exchange.End = Cancelled, CancelEnd, 1161*ms },
		func(r *Record) { r.Outcome, r.Reason, r.Exchange.End = Cancelled, "cancelled", 1161*ms },
		func(r *Record) { r.Outcome, r.Reason, r.Exchange.End = Cancelled, CancelEnd, 1160*ms },
	} {
		r := served()
		r.Exchange.Instance = "one"
		change(r)
		a.Add(r)
	}
	f := a.Figures()
	near(t, "good fraction", stat(t, f, GoodFraction).Avg, 1./4, 1e-9)
	want := Rows{Total: 5, Served: 1, Failed: 1, Cancelled: 3, CutOff: 2, CutOffMissed: 2}
	for _, got := range []Rows{f.Rows, f.Servers[0].Rows} {
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
}

// A run without a served request has counts and no latencies, and no figure is NaN.
func TestNothingServed(t *testing.T) {
	a := NewAggregate(Options{SLO: SLO{TTFT: ms}})
	r := served()
	r.Outcome, r.Reason = Failed, "connect"
	r.Exchange = send.Exchange{
		Start: 1002 * ms, End: 1003 * ms, Wire: clock.Never, FirstByte: clock.Never, FirstEvent: clock.Never,
		FirstAnswer: clock.Never, Usage: send.NoUsage, Attempts: 1,
	}
	a.Add(r)
	f := a.Figures()
	for id, s := range f.All {
		if s.Avg != s.Avg {
			t.Errorf("%s is NaN", id)
		}
	}
	for _, id := range []ID{TTFT, Latency, WireLag, Duration, RequestThroughput, InteractivityP90, HTTPTotal} {
		if s, ok := f.Stat(id); ok {
			t.Errorf("%s was measured: %+v", id, s)
		}
	}
	near(t, "errors", stat(t, f, ErrorRate).Avg, 100, 0)
	if f.Connections.Requests != 0 {
		t.Error("a request that never reached the wire counts as one that did")
	}
	if got := (&Figures{}).Rows; got != (Rows{}) {
		t.Error(got)
	}
}

func TestReasonsAreBounded(t *testing.T) {
	a := NewAggregate(Options{})
	for i := range 1000 {
		r := served()
		r.Outcome, r.Reason = Failed, fmt.Sprint(i)
		a.Add(r)
	}
	f := a.Figures()
	var sum int64
	for _, e := range f.Errors {
		sum += e.Count
	}
	if sum != 1000 || len(f.Errors) > maxReasons+1 || f.Errors[0].Reason != "_OTHER" {
		t.Errorf("%d classes of %d rows, first %+v", len(f.Errors), sum, f.Errors[0])
	}
}

func TestConcurrentUse(t *testing.T) {
	a := NewAggregate(Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				a.Add(served())
			}
			a.Figures()
		})
	}
	wg.Wait()
	f := a.Figures()
	if f.Rows.Served != 800 {
		t.Errorf("%+v", f.Rows)
	}
	near(t, "lateness", stat(t, f, Lateness).P99, 1, 0.001)
	near(t, "TTFT", stat(t, f, TTFTWire).P50, 95, 0.1)
}

// The package comment promises a bound of 20 MiB; a run of two days with every figure must stay below it.
func TestMemoryIsBounded(t *testing.T) {
	a := NewAggregate(Options{SLO: SLO{TTFT: ms}})
	for i := range 3000 {
		r, at := served(), time.Duration(i)*time.Minute
		r.Intended, r.Dispatched, r.Admitted = at, at, at
		x := &r.Exchange
		x.Start, x.Wire, x.FirstEvent, x.FirstAnswer, x.End = at, at, at, at, at+time.Minute
		for j := range x.At {
			x.At[j] += int64(at)
		}
		a.Add(r)
	}
	bytes := 4 * (cap(a.underWay.bins) + cap(a.tokenRate.bins) + cap(a.windowCount.bins))
	for i := range a.hist {
		a.hist[i].buckets.count()
		bytes += int(unsafe.Sizeof(a.hist[i]))
		for _, p := range a.hist[i].buckets.pages {
			if bytes += 8; p != nil {
				bytes += 4 * len(p)
			}
		}
	}
	if bytes > 20<<20 {
		t.Errorf("%d bytes", bytes)
	}
	t.Logf("%.1f MiB", float64(bytes)/(1<<20))
}

func TestEveryFigureIsDefined(t *testing.T) {
	tags := map[string]bool{}
	for i := range definitions {
		id := ID(i)
		d := id.Define()
		if d.Tag == "" || d.Title == "" || d.Unit == "" || tags[d.Tag] {
			t.Errorf("figure %d: %+v", id, d)
		}
		if !id.Single() && scales[d.Unit].limit == 0 {
			t.Errorf("%s has no range", d.Tag)
		}
		tags[d.Tag] = true
	}
}

func BenchmarkAdd(b *testing.B) {
	a := NewAggregate(Options{})
	r := served()
	r.Exchange.At = make([]int64, 343) // the conversation trace's mean output
	for i := range r.Exchange.At {
		r.Exchange.At[i] = int64(1100*ms) + int64(i)*int64(20*ms)
	}
	b.ReportAllocs()
	for b.Loop() {
		a.Add(r)
	}
}
