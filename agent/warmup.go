// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// maxWarming is the maximum number of warm-up requests in flight, even if the run has no maximum.
const maxWarming = 1024

// maxColdFailures is the number of consecutive failures that ends a warm-up that is limited by time. Otherwise the warm-up would send
// requests to a refusing engine as fast as the engine refuses them.
const maxColdFailures = 100

// warmup sends requests with the lengths of the trace's first rows, but with other blocks. So connections and the engine are warm, and
// the engine's cache has nothing of the trace. No figure includes these requests.
type warmup struct {
	requests int           // 0 = as many as there is time for
	lasting  time.Duration // how long requests are sent; 0 = no limit
	grace    time.Duration // for requests in flight when no more are sent; 0 = no limit
	atOnce   int           // maximum in flight
	rampUp   time.Duration // in which the maximum rises from 1 to atOnce
	// prefilling is the maximum in flight without a first token; 0 = no limit.
	prefilling    int
	prefillRampUp time.Duration
	arrivals      load.Arrivals // zero: a closed loop
}

// newWarmup derives the warm-up from a schedule's configuration.
func newWarmup(s Schedule) warmup {
	atOnce := cmp.Or(s.WarmupConcurrency, s.Concurrency, 1)
	if s.WarmupArrivals.Any() && s.WarmupConcurrency+s.Concurrency == 0 {
		atOnce = maxWarming
	}
	return warmup{
		requests: s.Warmup, lasting: s.WarmupFor, grace: s.WarmupGrace,
		atOnce: min(atOnce, maxWarming), rampUp: s.WarmupConcurrencyRampUp,
		prefilling: min(s.WarmupPrefillConcurrency, maxWarming), prefillRampUp: s.WarmupPrefillRampUp,
		arrivals: s.WarmupArrivals,
	}
}

// any reports whether there is a warm-up.
func (w warmup) any() bool { return w.requests > 0 || w.lasting > 0 }

// shapes is the maximum number of rows whose lengths warm-up requests copy.
func (w warmup) shapes() int {
	if w.requests == 0 {
		return math.MaxInt
	}
	return w.requests
}

// rising returns n slots. One is free at first; the others become free one by one within a time, at equal intervals. If the time is 0, all
// are free at once.
func rising(ctx context.Context, n int, within time.Duration) chan struct{} {
	places := make(chan struct{}, n)
	for i := 1; i < n && within > 0; i++ {
		places <- struct{}{}
		free := time.AfterFunc(time.Duration(float64(within)*float64(i)/float64(n-1)), func() { <-places })
		context.AfterFunc(ctx, func() { free.Stop() })
	}
	return places
}

// occupy waits for a free slot and occupies it, or returns when ctx ends. Nil slots are unlimited.
func occupy(ctx context.Context, places chan struct{}) bool {
	if places == nil {
		return true
	}
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// run sends the requests, as long as ctx has not ended, and returns their results; nil without a warm-up. A failed request only leads to a
// warning.
func (w warmup) run(ctx context.Context, s *sender, shapes []*mooncake.Row, tel *telemetry.Pipeline, said *notices) *report.Warmup {
	if !w.any() {
		return nil
	}
	began := s.clk.Now()
	sending, stop := context.WithCancel(ctx)
	defer stop()
	requests, giveUp := context.WithCancel(ctx)
	defer giveUp()
	if w.lasting > 0 {
		said.note("warm-up: %v, up to %s at once", w.lasting, term.Counted(int64(w.atOnce), "requests"))
		end := time.AfterFunc(w.lasting, stop)
		defer end.Stop()
	}
	if w.grace > 0 {
		context.AfterFunc(sending, func() {
			late := time.AfterFunc(w.grace, giveUp)
			context.AfterFunc(requests, func() { late.Stop() })
		})
	}
	due := func() time.Duration { return 0 }
	if w.arrivals.Any() {
		due = w.arrivals.Times(s.seed)
	}
	limit := rising(sending, w.atOnce, w.rampUp)
	var prefills chan struct{}
	if w.prefilling > 0 {
		prefills = rising(sending, w.prefilling, w.prefillRampUp)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	done, example, inARow := new(report.Warmup), "", 0
	for i := 0; w.requests == 0 || i < w.requests; i++ {
		clock.Pause(sending, began+due()-s.clk.Now())
		if !occupy(sending, limit) || !occupy(sending, prefills) {
			break
		}
		done.Sent++
		wg.Go(func() {
			defer func() { <-limit }()
			// A row without ids gets unique content from its index. The trace has no negative indexes.
			rec := &measure.Record{Row: shapes[i%len(shapes)], Index: int64(-1 - i)}
			began := s.clk.Now()
			p := atOnce(began)
			if prefills != nil {
				prefilled := sync.OnceFunc(func() { <-prefills })
				defer prefilled()
				p.first = func(time.Duration) { prefilled() }
			}
			p.engine = s.engines.pick(rec.Row)
			s.exchange(requests, rec, nil, "", p)
			s.engines.release(p.engine, rec.Exchange.Err)
			tel.Apart(telemetry.Apart{Name: semconv.SpanWarmup, Model: rec.Model, Response: rec.Exchange.ResponseID, From: began, To: s.clk.Now()})
			rec.Exchange.Release()
			mu.Lock()
			defer mu.Unlock()
			switch rec.Outcome {
			case measure.Served:
				inARow = 0
			case measure.Cancelled:
				done.GivenUp++
			default: // also a request that was not sent: it could not be built, or is too short
				done.Failed++
				if example = cmp.Or(rec.Message, rec.Reason); rec.Exchange.Err != nil {
					example = rec.Exchange.Err.Error()
				}
				if inARow++; inARow == maxColdFailures && w.lasting > 0 {
					done.Ended = true
					stop()
				}
			}
		})
	}
	stop()
	wg.Wait()
	done.Lasted = clock.Millis(s.clk.Now() - began)
	w.report(ctx, done, example, said)
	return done
}

// report reports the results of the warm-up.
func (w warmup) report(ctx context.Context, done *report.Warmup, example string, said *notices) {
	if ctx.Err() != nil {
		return
	}
	if w.lasting > 0 {
		said.note("warm-up: %s in %.1f s", term.Counted(done.Sent, "requests"), done.Lasted/1e3)
	}
	var what []string
	if done.GivenUp > 0 {
		what = append(what, fmt.Sprintf("%d of %d warm-up requests were cancelled, %v after the last one was sent", done.GivenUp, done.Sent, w.grace))
	}
	if done.Failed > 0 {
		what = append(what, fmt.Sprintf("%d of %d warm-up requests failed, for example: %s", done.Failed, done.Sent, example))
	}
	if done.Ended {
		what = append(what, fmt.Sprintf("the warm-up ended after %.1f s, because %d requests in a row had failed", done.Lasted/1e3, maxColdFailures))
	}
	if what != nil {
		said.warn("%s", strings.Join(what, "; "))
	}
}
