// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"math"
	"slices"
)

// maxBins is the maximum number of time bins. A chart is some 300 to 600 pixels wide, so more of them could hardly be told apart.
const maxBins = 240

// firstWidth is the initial width of a bin, in ms. If a run is longer than maxBins of them, pairs of bins are merged.
const firstWidth = 500

// timeline has counts for each section of a run.
type timeline struct {
	width  float64 // of a bin, ms
	most   int     // maximum number of bins
	digits int     // of histograms; with exact, gaps between chunks are not recorded, because there are too many
	bins   []bin
}

// bin is one section of a run.
type bin struct {
	intended, sent, finished int64
	unserved, failed         int64 // of those that finished: failed leaves out those that were cancelled, or disconnected on purpose
	answered                 int64 // first tokens, and ends of requests without any
	tokens                   int64 // output tokens, by the arrival of their chunks
	uncounted                int64 // replies that arrived here, of which the number of tokens is not known
	input                    int64 // prompt tokens of the requests that started here and were served

	// Prompt tokens of the same requests: those that the engine had cached, was predicted to have cached, and had cached in
	// production, each with the prompt tokens of the requests for which it is known.
	cached, cachedOf, predicted, predictedOf, observed, observedOf int64

	late           histogram
	ttft, itl, gap histogram // of the requests that were served at the first attempt
}

// at returns the bin of a time.
func (t *timeline) at(ms float64) *bin {
	ms = min(max(ms, 0), math.MaxInt32*firstWidth)
	for ms >= t.width*float64(t.most) {
		t.halve()
	}
	i := int(ms / t.width)
	for len(t.bins) <= i {
		t.bins = append(t.bins, bin{})
	}
	return &t.bins[i]
}

// halve merges pairs of bins.
func (t *timeline) halve() {
	t.width *= 2
	half := t.bins[:0]
	for i := 0; i < len(t.bins); i += 2 {
		b := t.bins[i]
		if i+1 < len(t.bins) {
			b.merge(&t.bins[i+1])
		}
		half = append(half, b)
	}
	clear(t.bins[len(half):])
	t.bins = half
}

func (b *bin) merge(o *bin) {
	b.intended += o.intended
	b.sent += o.sent
	b.finished += o.finished
	b.unserved += o.unserved
	b.failed += o.failed
	b.answered += o.answered
	b.tokens += o.tokens
	b.uncounted += o.uncounted
	b.input += o.input
	b.cached += o.cached
	b.cachedOf += o.cachedOf
	b.predicted += o.predicted
	b.predictedOf += o.predictedOf
	b.observed += o.observed
	b.observedOf += o.observedOf
	b.ttft.merge(o.ttft)
	b.itl.merge(o.itl)
	b.gap.merge(o.gap)
	b.late.merge(o.late)
}

// add counts a request. Its latencies, tokens and cache hits count if the summary counts them.
func (t *timeline) add(r *record) {
	x := &r.Result
	if x.Intended != nil {
		t.at(*x.Intended).intended++
	}
	if x.Lateness != nil && x.Dispatched != nil {
		t.at(*x.Dispatched).late.add(*x.Lateness*perMilli, t.digits)
	}
	if x.Start == nil {
		return
	}
	t.at(*x.Start).sent++
	if x.End != nil {
		end := t.at(*x.End)
		end.finished++
		if !r.served() {
			end.unserved++
		}
		if r.failed() {
			end.failed++
		}
	}
	if answered := cmp.Or(x.First, x.End); answered != nil {
		t.at(*answered).answered++
	}
	if ttft, known := r.ttft(); known {
		t.at(*x.Start).ttft.add(ttft*perMilli, t.digits)
	}
	if itl, known := r.itl(); known {
		t.at(*x.Last).itl.add(itl*perMilli, t.digits)
	}
	if r.served() {
		t.at(*x.Start).addPrompt(r)
		t.addTokens(r)
	}
}

// addPrompt counts the tokens of a prompt, and how many of them were cached.
func (b *bin) addPrompt(r *record) {
	prompt := r.prompt()
	b.input += prompt
	if cached, known := r.cached(); known {
		b.cached += cached
		b.cachedOf += prompt
	}
	if predicted := r.Result.Predicted; predicted != nil {
		b.predicted += *predicted
		b.predictedOf += prompt
	}
	if r.Observed != nil && r.Observed.Cached != nil {
		b.observed += *r.Observed.Cached
		b.observedOf += r.Input
	}
}

// addTokens counts the tokens of a reply at the arrivals of its chunks. They are spread evenly over the chunks. Those of a reply that was not
// a stream arrive at its end.
func (t *timeline) addTokens(r *record) {
	x := &r.Result
	reply, known := r.reply()
	if x.First == nil {
		if end := x.lastToken(); end != nil && known {
			t.at(*end).tokens += reply
		} else if end != nil {
			t.at(*end).uncounted++
		}
		return
	}
	chunks := int64(len(x.Gaps)) + 1
	at, before := *x.First, int64(0)
	for i := range chunks {
		if i > 0 {
			at += x.Gaps[i-1]
		}
		through := reply * (i + 1) / chunks
		b := t.at(at)
		b.tokens += through - before
		before = through
		if i > 0 && t.digits != exact && r.once() {
			b.gap.add(x.Gaps[i-1]*perMilli, t.digits)
		}
	}
}

// series is a timeline in the form for the charts: columns of equal length, rates per second, durations in ms, shares in percent. nil means
// not measured.
type series struct {
	Width     float64    `json:"width"` // of a bin, s
	Time      []float64  `json:"time"`  // s on the run's clock, from the first bin with something in it
	Intended  []float64  `json:"intended"`
	Sent      []float64  `json:"sent"`
	Finished  []float64  `json:"finished"`
	Unserved  []float64  `json:"unserved"`
	InFlight  []float64  `json:"in_flight"` // at the end of the bin
	Waiting   []float64  `json:"waiting"`   // those requests in flight that have no first token
	Tokens    []*float64 `json:"tokens"`
	TTFT50    []*float64 `json:"ttft_p50"`
	TTFT90    []*float64 `json:"ttft_p90"`
	TTFT99    []*float64 `json:"ttft_p99"`
	ITL50     []*float64 `json:"itl_p50"`
	ITL99     []*float64 `json:"itl_p99"`
	Gap99     []*float64 `json:"gap_p99"`
	Late50    []*float64 `json:"late_p50"`
	LateMax   []*float64 `json:"late_max"`
	Cached    []*float64 `json:"cached"`
	Predicted []*float64 `json:"predicted"`
	Observed  []*float64 `json:"observed"`
}

// leading returns the number of bins at the beginning in which nothing happened.
func (t *timeline) leading() int {
	for i := range t.bins {
		if b := &t.bins[i]; b.intended+b.sent+b.finished > 0 {
			return i
		}
	}
	return len(t.bins)
}

func (t *timeline) series() *series {
	s := &series{Width: t.width / 1000}
	var inFlight, waiting int64
	first, tokensKnown := t.leading(), t.tokensKnown()
	for i, b := range t.bins[first:] {
		rate := func(n int64) float64 { return round(float64(n) * 1000 / t.width) }
		s.Time = append(s.Time, float64(first+i)*t.width/1000)
		s.Intended = append(s.Intended, rate(b.intended))
		s.Sent = append(s.Sent, rate(b.sent))
		s.Finished = append(s.Finished, rate(b.finished))
		s.Unserved = append(s.Unserved, rate(b.unserved))
		inFlight += b.sent - b.finished
		s.InFlight = append(s.InFlight, float64(inFlight))
		waiting += b.sent - b.answered
		s.Waiting = append(s.Waiting, float64(waiting))
		var tokens *float64
		if tokensKnown {
			tokens = new(rate(b.tokens))
		}
		s.Tokens = append(s.Tokens, tokens)
		s.TTFT50 = append(s.TTFT50, at(b.ttft, 0.5))
		s.TTFT90 = append(s.TTFT90, at(b.ttft, 0.9))
		s.TTFT99 = append(s.TTFT99, at(b.ttft, 0.99))
		s.ITL50 = append(s.ITL50, at(b.itl, 0.5))
		s.ITL99 = append(s.ITL99, at(b.itl, 0.99))
		s.Gap99 = append(s.Gap99, at(b.gap, 0.99))
		s.Late50 = append(s.Late50, at(b.late, 0.5))
		s.LateMax = append(s.LateMax, at(b.late, 1))
		s.Cached = append(s.Cached, percent(b.cached, b.cachedOf))
		s.Predicted = append(s.Predicted, percent(b.predicted, b.predictedOf))
		s.Observed = append(s.Observed, percent(b.observed, b.observedOf))
	}
	return s
}

// tokensKnown reports whether the output tokens of any reply are known, or there is none.
func (t *timeline) tokensKnown() bool {
	uncounted := false
	for i := range t.bins {
		if t.bins[i].tokens > 0 {
			return true
		}
		uncounted = uncounted || t.bins[i].uncounted > 0
	}
	return !uncounted
}

// backlog has how many requests waited for their first token at the end of each bin, and how many had received it by then.
type backlog struct {
	width             float64
	waiting, answered []int64
	median            int64 // of waiting, over the bins in which a request was sent
}

func (t *timeline) backlog() *backlog {
	b := &backlog{width: t.width}
	var sending []int64
	var waiting, answered int64
	for i := range t.bins {
		waiting += t.bins[i].sent - t.bins[i].answered
		answered += t.bins[i].answered
		b.waiting, b.answered = append(b.waiting, waiting), append(b.answered, answered)
		if t.bins[i].sent > 0 {
			sending = append(sending, waiting)
		}
	}
	slices.Sort(sending)
	if len(sending) > 0 {
		b.median = sending[len(sending)/2]
	}
	return b
}

// behind returns how many requests waited at the time start, and at least how many of those that were sent later had a first token by the
// time first: it assumes that all requests that waited had theirs by then. Both figures are as exact as the bins.
func (b *backlog) behind(start, first float64) (waiting, overtook int64) {
	if len(b.waiting) == 0 {
		return 0, 0
	}
	bin := func(ms float64) int { return min(max(int(ms/b.width), 0), len(b.waiting)-1) }
	waiting = b.waiting[bin(start)]
	return waiting, max(b.answered[bin(first)]-b.answered[bin(start)]-waiting, 0)
}

func at(h histogram, q float64) *float64 {
	if h.empty() {
		return nil
	}
	v := round(h.millis(q))
	return &v
}

func percent(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	v := round(100 * float64(part) / float64(whole))
	return &v
}

// round keeps four significant digits, and all digits before the decimal point: more than a chart can show, and half the size.
func round(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	if scale > 1e12 { // almost 0
		return 0
	}
	if scale < 1 {
		return math.Round(v)
	}
	return math.Round(v*scale) / scale
}
