// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
)

// Options are what an Aggregate needs to know beside the records.
type Options struct {
	SLO SLO
	// Excused returns how much of the time from a to b the machine's own hiccups took. Nil: none is known.
	Excused func(a, b time.Duration) time.Duration
}

// Aggregate turns records into figures. It is safe for concurrent use; records are read during Add and not kept.
type Aggregate struct {
	opt Options

	mu    sync.Mutex
	hist  [distributions]histogram
	rows  Rows
	errs  reasons
	skips reasons

	tokens      Tokens
	chunks      Chunks
	connections Connections
	schedule    Schedule
	good        int64
	replies     Replies
	invented    reasons

	totalInput, totalOutput          int64
	cachedPrompt, totalCached        int64 // prompt and cached tokens of the rows whose cached tokens are known
	cached, predicted, finest        int64 // over the rows that have both
	cacheReported, cachePredicted    int64
	cacheRefused                     int64
	apart                            Cache // of which only the counts by row
	production                       ProductionCache
	firstStart, lastContent          time.Duration
	drift                            ols
	underWay, tokenRate, windowCount series
}

// NewAggregate returns an Aggregate without records.
func NewAggregate(opt Options) *Aggregate {
	if opt.Excused == nil {
		opt.Excused = func(_, _ time.Duration) time.Duration { return 0 }
	}
	a := &Aggregate{
		opt:         opt,
		firstStart:  clock.Never,
		lastContent: clock.Never,
		underWay:    series{width: time.Millisecond, limit: 1 << 18}, // 1 MiB, 4 minutes at 1 ms, an hour at 16
		tokenRate:   series{width: time.Second, limit: 1 << 17},      // 36 hours at 1 s
		windowCount: series{width: time.Second, limit: 1 << 17},
	}
	for id := range distributions {
		a.hist[id] = newHistogram(definitions[id].scale)
	}
	return a
}

// Add takes one record. Each row's record must be added once.
func (a *Aggregate) Add(r *Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows.Total++
	switch r.Outcome {
	case Served:
		a.rows.Served++
	case Failed:
		a.rows.Failed++
		a.errs.add(r.Reason, r.Message)
	case Cancelled:
		a.rows.Cancelled++
	case Skipped:
		a.rows.Skipped++
		a.skips.add(r.Reason, r.Message)
		return
	}
	a.addDispatch(r)
	if r.Sent {
		a.addSent(r)
	}
	if r.Outcome == Served {
		a.addTokens(r)
		a.addServed(r)
	}
}

// addDispatch takes how well the row's instant was held.
func (a *Aggregate) addDispatch(r *Record) {
	a.schedule.Dispatched++
	if wait, ok := r.CapWait(); ok {
		a.record(CapWait, wait)
		if wait > time.Millisecond {
			a.schedule.CapWaits++
		}
	}
	if lag, ok := r.WireLag(); ok && r.Sent {
		a.record(WireLag, lag)
	}
	if !r.Scheduled {
		return
	}
	a.schedule.Scheduled++
	late := r.Lateness()
	a.record(Lateness, late)
	if late > time.Millisecond {
		a.schedule.Over1++
	}
	if late > 10*time.Millisecond {
		a.schedule.Over10++
	}
	if late > 100*time.Millisecond {
		a.schedule.Over100++
	}
	own := max(min(late, 0), late-a.opt.Excused(r.Intended, r.Dispatched))
	a.record(LatenessUnexplained, own)
	a.drift.add(r.Intended.Seconds(), float64(own)/float64(time.Microsecond))

	a.windowCount.add(r.Intended, 1)
	if r.Sent && r.Exchange.Wire > clock.Never { // which is sharp enough for a window, whatever it is
		a.windowCount.add(r.Exchange.Wire, -1)
	}
	if gap, ok := r.SendGap(); ok && r.Sent {
		a.record(SendGap, gap)
	}
}

// addSent takes what is true of every row that was tried, served or not.
func (a *Aggregate) addSent(r *Record) {
	x := &r.Exchange
	a.replies.Needed += int64(len(r.Replies))
	a.replies.CarriedTokens += r.Carried
	a.replies.InventedTokens += r.Invented
	for _, why := range r.Replies {
		if why == "" {
			a.replies.Carried++
		} else {
			a.invented.add(why, "")
		}
	}
	if r.Resent() {
		a.rows.Retried++
	}
	if x.Resent > 0 {
		a.rows.Resent++
	}
	a.connections.Replays += int64(x.Replays)
	if _, ok := between(x.Start, x.End); ok {
		a.underWay.interval(x.Start, x.End)
	}
	if x.Wire > clock.Never {
		a.connections.Requests++
		if x.WireLate {
			a.connections.WireLate++
		}
		if x.Reused {
			a.connections.Reused++
		}
	}
}

// addTokens takes the counts of a served row.
func (a *Aggregate) addTokens(r *Record) {
	x := &r.Exchange
	if r.Resent() {
		a.rows.RetriedServed++
	}
	isl, _ := r.InputTokens()
	osl, estimated := r.OutputTokens()
	a.totalInput += isl
	a.totalOutput += osl
	a.hist[InputLength].record(float64(isl))
	a.hist[OutputLength].record(float64(osl))
	if estimated {
		a.tokens.Estimated++
	} else if osl < r.OutputTokensAsked {
		a.tokens.OutputShort++
	}
	if len(x.At) == 0 {
		a.tokens.NoContent++
	}
	if r.TooShort {
		a.tokens.TooShort++
	}
	if r.CachedRefused {
		a.cacheRefused++
	}
	if r.Assumed {
		a.tokens.Assumed++
	}
	if r.TailCut {
		a.tokens.TailCut++
	}
	a.tokens.Prompt.add(r.Prompt)
	a.tokens.Output.add(r.Output)

	if x.Usage.Cached > send.Unknown {
		a.cacheReported++
		a.cachedPrompt += isl
		a.totalCached += x.Usage.Cached
		a.hist[CachedTokens].record(float64(x.Usage.Cached))
		if observed := r.Row.Observed.CachedTokens; observed.Set {
			a.production.Requests++
			a.production.InputTokens += isl
			a.production.Production += observed.V
			a.production.Replay += x.Usage.Cached
		}
	}
	if r.Predicted > send.Unknown {
		a.cachePredicted++
		a.hist[PredictedTokens].record(float64(r.Predicted))
	}
	if predicted, cached, ok := r.CachePair(); ok {
		a.predicted += predicted
		a.cached += cached
		a.finest += max(r.Finest, predicted)
		a.compareCache(cached-predicted, r.Block)
	}
	if a.firstStart <= clock.Never || x.Start < a.firstStart {
		a.firstStart = x.Start
	}
	a.lastContent = max(a.lastContent, r.LastToken())
	if r.streamed() {
		a.addRate(x)
	}
	if a.opt.SLO.Any() && a.opt.SLO.Good(r) {
		a.good++
	}
}

// compareCache counts a row by how much more the server had cached than predicted, in tokens.
func (a *Aggregate) compareCache(more, block int64) {
	c := &a.apart
	c.Block = block
	switch {
	case block == 0: // nobody compared
	case more == 0:
		c.Equal++
	case more > -block && more < block:
		c.Within++
	case more < 0:
		c.Less++
		c.LessTokens -= more
	default:
		c.More++
		c.MoreTokens += more
	}
}

// addRate counts the tokens of each chunk at its arrival, 1 where the server did not say (vLLM counts chunks).
func (a *Aggregate) addRate(x *send.Exchange) {
	known := len(x.Tokens) == len(x.At)
	for i, at := range x.At {
		n := int32(1)
		if known {
			n = x.Tokens[i]
		}
		a.tokenRate.add(time.Duration(at), n)
	}
}

// addServed takes the latencies of a served row that was sent once.
func (a *Aggregate) addServed(r *Record) {
	if r.Resent() {
		return
	}
	x := &r.Exchange
	a.maybe(TTFT)(r.TTFT(x.Start))
	a.maybe(TTFTWire)(r.TTFT(r.Wire()))
	a.maybe(TTFTIntended)(r.TTFT(r.Intended))
	a.maybe(TTFE)(r.TTFE())
	a.maybe(TTFO)(r.TTFO())
	a.maybe(TTST)(r.TTST())
	a.maybe(Latency)(r.Latency(x.Start))
	a.maybe(LatencyWire)(r.Latency(r.Wire()))
	a.maybe(LatencyIntended)(r.Latency(r.Intended))
	a.maybe(ITL)(r.ITL())
	a.maybe(TPOT)(r.TPOT())
	a.maybe(TPOTWithFirst)(r.TPOTWithFirst())
	a.maybe(Decode)(r.DecodeDuration())

	// AIPerf: 1 ÷ ITL, ISL ÷ TTFT, OSL ÷ request latency, in seconds. A duration of 0 has no inverse.
	if d, ok := r.ITL(); ok && d > 0 {
		a.hist[UserThroughput].record(1 / d.Seconds())
	}
	isl, _ := r.InputTokens()
	if d, ok := r.TTFT(x.Start); ok && d > 0 {
		a.hist[PrefillThroughput].record(float64(isl) / d.Seconds())
	}
	osl, _ := r.OutputTokens()
	if d, ok := r.Latency(x.Start); ok && d > 0 {
		a.hist[RequestTokenThroughput].record(float64(osl) / d.Seconds())
	}

	if r.streamed() {
		a.chunks.Streams++
		if x.KernelStamps {
			a.chunks.KernelStamps++
		}
		a.chunks.Coalesced += int64(x.Coalesced)
		a.chunks.Gaps += int64(len(x.At) - 1)
		for i := 1; i < len(x.At); i++ {
			a.record(InterChunk, time.Duration(x.At[i]-x.At[i-1]))
		}
	}
	a.addPhases(x)
}

// addPhases takes AIPerf's HTTP metrics. Its http_req_connecting is TCP and TLS together.
func (a *Aggregate) addPhases(x *send.Exchange) {
	p := x.Phases
	connecting := p.Connect + p.TLS
	overhead := p.Blocked + p.DNS + connecting
	duration := p.Sending + p.Waiting + p.Receiving
	a.record(HTTPBlocked, p.Blocked)
	a.record(HTTPDNS, p.DNS)
	a.record(HTTPConnecting, connecting)
	a.record(HTTPTLS, p.TLS)
	if !x.WireLate { // which lies between the two
		a.record(HTTPSending, p.Sending)
		a.record(HTTPWaiting, p.Waiting)
	}
	a.record(HTTPReceiving, p.Receiving)
	a.record(HTTPDuration, duration)
	a.record(HTTPOverhead, overhead)
	a.record(HTTPTotal, overhead+duration)
	a.hist[HTTPSent].record(float64(x.BytesSent))
	a.hist[HTTPReceived].record(float64(x.BytesRead))
}

func (a *Aggregate) record(id ID, d time.Duration) {
	a.hist[id].record(float64(d) / float64(time.Millisecond))
}

// maybe returns a function that records what a formula returns.
func (a *Aggregate) maybe(id ID) func(time.Duration, bool) {
	return func(d time.Duration, ok bool) {
		if ok {
			a.record(id, d)
		}
	}
}

func (a *Agreements) add(g Agreement) {
	switch g {
	case AgreeEqual:
		a.Equal++
	case AgreeDifferent:
		a.Different++
	case AgreeUnknown:
		a.Unknown++
	}
}
