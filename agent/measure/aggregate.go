// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
)

// Options configures an [Aggregate].
type Options struct {
	SLO SLO
	// Window limits the figures to a part of the run. Nil: the whole run.
	Window *Window
}

// Aggregate computes figures from records. It is safe for concurrent use; records are read during Add and not kept.
type Aggregate struct {
	opt Options

	mu                    sync.Mutex
	counts                Figures     // so far
	hist                  []histogram // of the distributions, by ID
	errs, skips, invented reasons
	servers, classes      parts

	good                             int64
	cachedPrompt                     int64 // prompt tokens of the rows whose cached tokens are known
	finest                           int64 // over the rows with a prediction and a reported number
	firstStart, lastContent          time.Duration
	begun                            Window     // from the start of the first request to that of the last one
	through                          throughput // of a window
	drift                            ols
	underWay, tokenRate, windowCount series
}

// NewAggregate returns an Aggregate without records.
func NewAggregate(opt Options) *Aggregate {
	a := &Aggregate{
		opt:         opt,
		errs:        make(reasons),
		skips:       make(reasons),
		invented:    make(reasons),
		servers:     make(parts),
		classes:     make(parts),
		hist:        make([]histogram, len(definitions)),
		firstStart:  clock.Never,
		lastContent: clock.Never,
		begun:       Window{clock.Never, clock.Never},
		underWay:    series{width: time.Millisecond, limit: 1 << 18}, // 2 MiB, 4 minutes at 1 ms, an hour at 16 ms
		tokenRate:   series{width: time.Second, limit: 1 << 17},      // 36 hours at 1 s
		windowCount: series{width: time.Second, limit: 1 << 17},
	}
	for id, d := range definitions[:TokenThroughput] {
		a.hist[id] = newHistogram(scales[d.Unit])
	}
	return a
}

// Add adds one record. The record of each row must be added once.
func (a *Aggregate) Add(r *Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Sent && r.Outcome != Skipped {
		a.addFlow(r)
	}
	if !a.opt.Window.began(r) {
		return
	}
	a.counts.Rows.add(r, &a.opt.SLO)
	a.addParts(r)
	switch r.Outcome {
	case Failed:
		a.errs.add(r.Reason, r.Message)
	case Skipped:
		a.skips.add(r.Reason, r.Message)
		return
	default:
	}
	a.addDispatch(r)
	if r.Sent {
		a.addSent(r)
	}
	if r.Outcome == Served {
		a.addTokens(r)
		a.addCache(r)
		a.addServed(r)
	}
}

// addFlow adds the time in flight of a request, and the times of its tokens. For a window, it includes requests that began earlier.
func (a *Aggregate) addFlow(r *Record) {
	x, w := &r.Exchange, a.opt.Window
	if _, ok := between(x.Start, x.End); ok {
		if a.begun.From <= clock.Never || x.Start < a.begun.From {
			a.begun.From = x.Start
		}
		a.begun.To = max(a.begun.To, x.Start)
		switch {
		case w == nil:
			a.underWay.interval(x.Start, x.End)
		case x.Start < w.To && x.End >= w.From:
			a.underWay.interval(max(x.Start, w.From), min(x.End, w.To))
		}
	}
	if r.Outcome != Served {
		return
	}
	if r.streamed() {
		a.addRate(x)
	}
	if w != nil {
		a.addVolume(r)
	}
}

// addDispatch adds how exactly the row was sent at its scheduled time.
func (a *Aggregate) addDispatch(r *Record) {
	s := &a.counts.Schedule
	s.Dispatched++
	if wait, ok := r.CapWait(); ok {
		a.record(CapWait, wait)
		countIf(&s.CapWaits, wait > time.Millisecond)
	}
	if lag, ok := r.WireLag(); ok && r.Sent {
		a.record(WireLag, lag)
	}
	if !r.Scheduled {
		return
	}
	s.Scheduled++
	late := r.Lateness()
	a.record(Lateness, late)
	countIf(&s.Over1, late > time.Millisecond)
	countIf(&s.Over10, late > 10*time.Millisecond)
	countIf(&s.Over100, late > 100*time.Millisecond)
	own := max(min(late, 0), late-r.Excused)
	a.record(LatenessUnexplained, own)
	a.drift.add(r.Intended.Seconds(), float64(own)/float64(time.Microsecond))

	a.windowCount.add(r.Intended, 1)
	if r.Sent && r.Exchange.Wire > clock.Never { // even a time that was taken late is exact enough for a window
		a.windowCount.add(r.Exchange.Wire, -1)
	}
	if gap, ok := r.SendGap(); ok && r.Sent {
		a.record(SendGap, gap)
	}
}

// addSent adds what applies to every row that was tried, served or not.
func (a *Aggregate) addSent(r *Record) {
	x, replies, connections := &r.Exchange, &a.counts.Replies, &a.counts.Connections
	replies.Needed += int64(len(r.Replies))
	replies.CarriedTokens += r.Carried
	replies.InventedTokens += r.Invented
	for _, why := range r.Replies {
		if why == "" {
			replies.Carried++
		} else {
			a.invented.add(why, "")
		}
	}
	countIf(&a.counts.Rows.Retried, r.Resent())
	countIf(&a.counts.Rows.Reconnected, r.Retried() && !r.Resent())
	countIf(&a.counts.Rows.Resent, x.Resent > 0)
	connections.Replays += int64(x.Replays)
	if x.Wire > clock.Never {
		connections.Requests++
		countIf(&connections.WireLate, x.WireLate)
		countIf(&connections.Reused, x.Reused)
	}
}

// addTokens adds the counts of a served row.
func (a *Aggregate) addTokens(r *Record) {
	x, t := &r.Exchange, &a.counts.Tokens
	countIf(&a.counts.Rows.RetriedServed, r.Resent())
	isl, asked := r.InputTokens()
	osl, estimated := r.OutputTokens()
	a.hist[InputLength].record(float64(isl))
	if !x.Embedding {
		if osl > send.Unknown {
			a.hist[OutputLength].record(float64(osl))
		}
		countIf(&t.Uncounted, osl == send.Unknown)
		countIf(&t.Estimated, estimated)
		countIf(&t.OutputShort, osl > send.Unknown && !estimated && osl < r.OutputTokensAsked)
		countIf(&t.NoContent, len(x.At) == 0)
		t.Output.add(r.Output)
	}
	countIf(&t.PromptEstimated, asked)
	countIf(&t.Embeddings, x.Embedding)
	countIf(&t.TooShort, r.TooShort)
	countIf(&t.Assumed, r.Assumed)
	countIf(&t.TailCut, r.TailCut)
	t.Prompt.add(r.Prompt)

	if a.firstStart <= clock.Never || x.Start < a.firstStart {
		a.firstStart = x.Start
	}
	a.lastContent = max(a.lastContent, r.LastToken())
	countIf(&a.good, a.opt.SLO.Any() && a.opt.SLO.Good(r))
}

// addCache compares the cached tokens of a served row with the prediction, and with production.
func (a *Aggregate) addCache(r *Record) {
	c, reported := &a.counts.Cache, r.Exchange.Usage.Cached
	countIf(&c.Refused, r.CachedRefused)
	if reported > send.Unknown {
		isl, _ := r.InputTokens()
		c.Reported++
		a.cachedPrompt += isl
		a.hist[CachedTokens].record(float64(reported))
		if observed := r.Row.Observed.CachedTokens; observed.Set {
			c.Production.Requests++
			c.Production.InputTokens += isl
			c.Production.Production += observed.V
			c.Production.Replay += reported
		}
	}
	if r.Predicted > send.Unknown {
		c.Predicted++
		a.hist[PredictedTokens].record(float64(r.Predicted))
	}
	if predicted, cached, ok := r.CachePair(); ok {
		c.Compared++
		c.ComparedPredicted += predicted
		c.ComparedCached += cached
		a.finest += max(r.Finest, predicted)
		c.compare(cached-predicted, r.Block)
	}
}

// compare counts a row by the difference between its cached tokens and the prediction.
func (c *Cache) compare(more, block int64) {
	c.Block = block
	switch {
	case block == 0: // there was no prediction
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

// addRate adds the tokens of each chunk at its arrival, or 1 per chunk if the server did not count them (vLLM's benchmark always counts
// chunks).
func (a *Aggregate) addRate(x *send.Exchange) {
	for i, at := range x.At {
		if a.opt.Window != nil && !a.opt.Window.Has(time.Duration(at)) {
			continue
		}
		n := int64(1)
		if len(x.Tokens) == len(x.At) {
			n = int64(x.Tokens[i])
		}
		a.tokenRate.add(time.Duration(at), n)
	}
}

// addServed adds the latencies of a served row that was sent once.
func (a *Aggregate) addServed(r *Record) {
	if r.Retried() {
		return
	}
	for id := range a.hist {
		if of := definitions[id].of; of != nil {
			if v, ok := of(r); ok {
				a.hist[id].record(v)
			}
		}
	}
	if !r.streamed() {
		return
	}
	x, chunks := &r.Exchange, &a.counts.Chunks
	chunks.Streams++
	countIf(&chunks.KernelStamps, x.KernelStamps)
	chunks.Coalesced += int64(x.Coalesced)
	chunks.Gaps += int64(len(x.At) - 1)
	for i := 1; i < len(x.At); i++ {
		a.record(InterChunk, time.Duration(x.At[i]-x.At[i-1]))
	}
}

// Buckets returns how many values of a distribution lie in each bucket of its histogram, by the bucket's greatest value in the unit of the
// figure. The sum over several aggregates equals that of one aggregate with all records.
func (a *Aggregate) Buckets(id ID) map[float64]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	buckets := make(map[float64]int64)
	h := &a.hist[id]
	for bucket, n := range h.buckets.all {
		_, to := rangeOf(bucket)
		buckets[float64(to)/h.ticks] += n
	}
	return buckets
}

func (a *Aggregate) record(id ID, d time.Duration) { a.hist[id].record(clock.Millis(d)) }

// Figures returns the figures of the records so far.
//
// The single numbers, over served rows unless their formula says otherwise: benchmark_duration is AIPerf's, from the first Start to the
// last content; the throughputs are their counts divided by it. request_error_rate is 100·failed ÷ (served + failed), and
// good_request_fraction is good ÷ (served + failed + stopped after they had missed the service level, [SLO.Missed]).
// e2e_normalized_interactivity is 1 ÷ percentile(latency ÷ OSL). peak_concurrency counts all requests in flight from Start to End, served
// or not, at a resolution of PeakWidth; peak_output_token_throughput is the fullest window of one second of the run's clock (vLLM's rule).
// For a [Window], the duration is its length, and its throughputs are documented there.
// Totals and throughputs of tokens leave out replies whose number of output tokens is not known; without any other reply they are absent.
func (a *Aggregate) Figures() *Figures {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.counts
	f.Errors, f.Skips, f.SLO, f.stats = a.errs.sorted(), a.skips.sorted(), a.opt.SLO, make(map[ID]Stat)
	f.Replies.Invented = a.invented.sorted()
	f.Servers, f.Classes = a.servers.servers(), a.classes.classes()
	f.Cache.Realisation, f.Cache.Beyond = -1, max(0, f.Cache.ComparedCached-a.finest)
	if f.Cache.ComparedPredicted > 0 {
		f.Cache.Realisation = float64(f.Cache.ComparedCached) / float64(f.Cache.ComparedPredicted)
	}
	f.Schedule.Drift = a.drift.drift()
	f.Schedule.BeforeZero = a.underWay.early + a.tokenRate.early + a.windowCount.early
	f.Schedule.WindowDiff = a.windowCount.most()
	f.Schedule.WindowWidth, f.Schedule.PeakWidth, f.Schedule.PeakTokensWidth = a.windowCount.width, a.underWay.width, a.tokenRate.width

	for id := range a.hist {
		if h := &a.hist[id]; h.n > 0 {
			f.stats[ID(id)] = h.stat(definitions[id].Unit)
		}
	}
	a.singles(func(id ID, v float64) { f.stats[id] = Stat{Unit: definitions[id].Unit, Avg: v} })
	return &f
}

func (a *Aggregate) singles(set func(ID, float64)) {
	served, failed := float64(a.counts.Rows.Served), float64(a.counts.Rows.Failed)
	input, output, cached := a.hist[InputLength].sum, a.hist[OutputLength].sum, a.hist[CachedTokens].sum
	set(RequestCount, served)
	set(ErrorCount, failed)
	if served+failed > 0 {
		set(ErrorRate, 100*failed/(served+failed))
	}
	set(TotalInput, input)
	embeddings, counted := a.counts.Tokens.Embeddings > 0, a.hist[OutputLength].n > 0
	if uncounted := a.counts.Tokens.Uncounted > 0; counted || !embeddings && !uncounted {
		set(TotalOutput, output)
	}
	if a.counts.Cache.Reported > 0 {
		set(TotalCached, cached)
	}
	if a.cachedPrompt > 0 {
		set(CacheReadPct, 100*cached/float64(a.cachedPrompt))
	}
	if a.opt.SLO.Any() {
		set(GoodCount, float64(a.good))
		if judged := a.counts.Rows.Judged(); judged > 0 {
			set(GoodFraction, float64(a.good)/float64(judged))
		}
	}
	d, ok := between(a.firstStart, a.lastContent)
	flow := throughput{a.counts.Rows.Served, a.good, input, output, counted, a.counts.Tokens.Uncounted > 0}
	if w := a.opt.Window; w != nil {
		d, ok, flow = w.Length(), true, a.through
	}
	if ok && d > 0 {
		set(Duration, d.Seconds())
		set(RequestThroughput, float64(flow.served)/d.Seconds())
		known := flow.counted || !flow.uncounted
		if known && (flow.counted || !embeddings) {
			set(TokenThroughput, flow.output/d.Seconds())
		}
		if known {
			set(TotalThroughput, (flow.input+flow.output)/d.Seconds())
		}
		if a.opt.SLO.Any() {
			set(Goodput, float64(flow.good)/d.Seconds())
		}
	}
	if h := &a.hist[TPOTWithFirst]; h.percentile(75) > 0 {
		set(InteractivityP90, 1000/h.percentile(90))
		set(InteractivityP75, 1000/h.percentile(75))
	}
	if len(a.underWay.bins) > 0 {
		set(PeakConcurrency, float64(a.underWay.peak()))
	}
	if most := a.tokenRate.most(); most > 0 {
		set(PeakTokens, float64(most)/a.tokenRate.width.Seconds())
	}
}

func countIf(n *int64, ok bool) {
	if ok {
		*n++
	}
}

func (a *Agreements) add(g Agreement) {
	of := [...]*int64{AgreeUnknown: &a.Unknown, AgreeEqual: &a.Equal, AgreeDifferent: &a.Different}
	*of[g]++
}
