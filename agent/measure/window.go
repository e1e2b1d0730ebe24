// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

// This file computes the figures of a part of a run: of its steady state, without the time in which the load rises and the time in which
// the last requests end.

import (
	"maps"
	"slices"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
)

// Window is a part of a run, from one time on its clock, inclusive, to another, exclusive.
//
// Latencies and counts cover the requests that were handed to the transport in the window, however long they took: leaving out those that
// ended later would leave out the long ones. Throughputs cover what happened in the window, whenever the request began: output tokens count
// at their arrival, a request at its last token, its input tokens at its first one. All are divided by the window's length.
type Window struct{ From, To time.Duration }

// Length returns To − From.
func (w Window) Length() time.Duration { return w.To - w.From }

// Has reports whether a time lies in the window.
func (w Window) Has(at time.Duration) bool { return w.From <= at && at < w.To }

// began reports whether a record is one of the window's requests.
func (w *Window) began(r *Record) bool { return w == nil || r.Sent && w.Has(r.Exchange.Start) }

// throughput sums up what happened within a window.
type throughput struct {
	served, good       int64
	input, output      float64
	counted, uncounted bool // whether it has replies whose number of output tokens is known, and is not known
}

// addVolume adds a served row to the throughput, as far as its tokens and its end lie in the window.
func (a *Aggregate) addVolume(r *Record) {
	w, v := a.opt.Window, &a.through
	x := &r.Exchange
	tokens, _ := r.OutputTokens()
	begun, ended := r.LastToken(), r.LastToken() // if the reply came as a whole
	if r.streamed() {
		begun = r.FirstToken()
		within, all := int64(0), int64(0)
		for i, at := range x.At {
			n := int64(1)
			if len(x.Tokens) == len(x.At) {
				n = int64(x.Tokens[i])
			}
			all += n
			if w.Has(time.Duration(at)) {
				within += n
			}
		}
		if all > 0 { // the engine's count, distributed over the chunks
			v.output += float64(tokens) * float64(within) / float64(all)
		}
		v.counted = v.counted || within > 0
	} else if w.Has(ended) {
		v.output += float64(max(0, tokens))
		v.counted = v.counted || tokens > send.Unknown
		v.uncounted = v.uncounted || tokens == send.Unknown && !x.Embedding
	}
	if w.Has(begun) {
		input, _ := r.InputTokens()
		v.input += float64(input)
	}
	if w.Has(ended) {
		v.served++
		countIf(&v.good, a.opt.SLO.Any() && a.opt.SLO.Good(r))
	}
}

// Plateau describes the time in which a run had its usual load.
type Plateau struct {
	Window
	// Level is the median number of requests in flight, over the time from the first request to the last one.
	Level int64
	// Peak is the greatest number.
	Peak int64
}

// Plateau finds the steady state of the records so far. It begins when the number of requests in flight first reaches its median over
// the time from the first request to the last one, and ends when the last request is sent. After that the load only falls. ok is false
// without a request, or if all were sent at once.
//
// SGLang's bench uses the longest time above a share of the peak; under recorded traffic, whose peak is one burst, that is a moment. A
// median needs no such share, and equals --concurrency if that limits the run most of the time. Times are exact to PeakWidth.
func (a *Aggregate) Plateau() (p Plateau, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.underWay
	first, last := a.begun.From, a.begun.To
	if first <= clock.Never || last <= first {
		return p, false
	}
	from, to := int(first/s.width), int(last/s.width)
	levels := map[int64]int{} // bins by their number of requests in flight
	sum := int64(0)
	for i, n := range s.bins[:min(to, len(s.bins))] {
		if sum += n; i >= from {
			levels[sum]++
		}
	}
	p.Level, p.Peak = median(levels, to-from), s.peak()
	sum = 0
	for i, n := range s.bins[:min(to, len(s.bins))] {
		if sum += n; i >= from && sum >= p.Level {
			p.Window = Window{max(first, time.Duration(i)*s.width), last}
			return p, true
		}
	}
	return p, false
}

// median returns the middle of n values, given how often each occurs; the lower one, if there are two.
func median(counts map[int64]int, n int) int64 {
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		if n -= 2 * counts[v]; n <= 0 {
			return v
		}
	}
	return 0
}
