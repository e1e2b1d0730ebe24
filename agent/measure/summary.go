// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

// Figures returns the figures of the records so far.
//
// The single numbers, all over served rows: benchmark_duration is AIPerf's, from the first Start to the last content;
// the throughputs are their counts divided by it. request_error_rate is 100·failed ÷ (served + failed), and
// good_request_fraction good ÷ (served + failed). e2e_normalized_interactivity is 1 ÷ percentile(latency ÷ OSL).
// peak_concurrency counts all requests under way from Start to End, served or not, at a resolution of PeakWidth;
// peak_output_token_throughput is the fullest window of one second of the run's clock (vLLM's rule).
func (a *Aggregate) Figures() *Figures {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &Figures{
		Rows: a.rows, Errors: a.errs.sorted(), Skips: a.skips.sorted(), SLO: a.opt.SLO, Tokens: a.tokens,
		Cache: Cache{
			Reported: a.cacheReported, Predicted: a.cachePredicted, Refused: a.cacheRefused, Realisation: -1, Beyond: max(0, a.cached-a.finest), Production: a.production,
			Equal: a.apart.Equal, Within: a.apart.Within, Less: a.apart.Less, More: a.apart.More,
			LessTokens: a.apart.LessTokens, MoreTokens: a.apart.MoreTokens, Block: a.apart.Block,
		},
		Chunks: a.chunks, Connections: a.connections, Schedule: a.schedule, Replies: a.replies,
	}
	f.Replies.Invented = a.invented.sorted()
	if a.predicted > 0 {
		f.Cache.Realisation = float64(a.cached) / float64(a.predicted)
	}
	f.Schedule.Drift = a.drift.drift()
	f.Schedule.BeforeZero = a.underWay.early + a.tokenRate.early + a.windowCount.early
	_, f.Schedule.WindowDiff = a.windowCount.most()
	f.Schedule.WindowWidth, f.Schedule.PeakWidth, f.Schedule.PeakTokensWidth = a.windowCount.width, a.underWay.width, a.tokenRate.width

	for id := range distributions {
		f.stats[id], f.has[id] = a.hist[id].stat(definitions[id].Unit), a.hist[id].n > 0
	}
	for id := distributions; id < metrics; id++ {
		f.stats[id].Unit = definitions[id].Unit
	}
	a.singles(f.set)
	return f
}

func (f *Figures) set(id ID, v float64) { f.stats[id].Avg, f.has[id] = v, true }

func (a *Aggregate) singles(set func(ID, float64)) {
	served, failed := float64(a.rows.Served), float64(a.rows.Failed)
	set(RequestCount, served)
	set(ErrorCount, failed)
	if served+failed > 0 {
		set(ErrorRate, 100*failed/(served+failed))
	}
	set(TotalInput, float64(a.totalInput))
	set(TotalOutput, float64(a.totalOutput))
	if a.cacheReported > 0 {
		set(TotalCached, float64(a.totalCached))
	}
	if a.cachedPrompt > 0 {
		set(CacheReadPct, 100*float64(a.totalCached)/float64(a.cachedPrompt))
	}
	if a.opt.SLO.Any() {
		set(GoodCount, float64(a.good))
		if served+failed > 0 {
			set(GoodFraction, float64(a.good)/(served+failed))
		}
	}
	perSecond := func(ID, float64) {}
	if d, ok := between(a.firstStart, a.lastContent); ok && d > 0 {
		set(Duration, d.Seconds())
		perSecond = func(id ID, v float64) { set(id, v/d.Seconds()) }
	}
	perSecond(RequestThroughput, served)
	perSecond(TokenThroughput, float64(a.totalOutput))
	perSecond(TotalThroughput, float64(a.totalInput+a.totalOutput))
	if a.opt.SLO.Any() {
		perSecond(Goodput, float64(a.good))
	}
	if h := &a.hist[TPOTWithFirst]; h.percentile(75) > 0 {
		set(InteractivityP90, 1000/h.percentile(90))
		set(InteractivityP75, 1000/h.percentile(75))
	}
	if len(a.underWay.bins) > 0 {
		set(PeakConcurrency, float64(a.underWay.peak()))
	}
	if most, _ := a.tokenRate.most(); most > 0 {
		set(PeakTokens, float64(most)/a.tokenRate.width.Seconds())
	}
}
