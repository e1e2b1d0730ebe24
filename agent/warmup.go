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
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// maxWarming bounds the warm-up requests that are in flight at once, whatever cap the run has.
const maxWarming = 1024

// maxColdFailures is the number of failures without a success between them that ends a warm-up by time: it would go on to ask an
// engine that refuses, as fast as that can.
const maxColdFailures = 100

// warmup sends requests with the shapes of the trace's first rows and none of their blocks, so that connections and the engine
// are warm and its cache knows nothing of the trace. What becomes of them is in no figure.
type warmup struct {
	requests int           // 0 = as many as the time takes
	lasting  time.Duration // after which no further one is sent; 0 = no limit
	grace    time.Duration // for those that are in flight then; 0 = no limit
	atOnce   int           // of them
	rampUp   time.Duration // to this many, from 1
	// prefilling of them may be without a first token; 0 = no limit.
	prefilling    int
	prefillRampUp time.Duration
	arrivals      load.Arrivals // zero: a closed loop
}

// newWarmup settles the warm-up of a schedule.
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

// any reports whether there is one.
func (w warmup) any() bool { return w.requests > 0 || w.lasting > 0 }

// shapes is the number of rows that its requests are modelled on, at most.
func (w warmup) shapes() int {
	if w.requests == 0 {
		return math.MaxInt
	}
	return w.requests
}

// rising are this many slots, of which one is free at first, and the others one by one within a time, at equal intervals.
func rising(ctx context.Context, n int, within time.Duration) chan struct{} {
	places := make(chan struct{}, n)
	for i := 1; i < n && within > 0; i++ {
		places <- struct{}{}
		free := time.AfterFunc(time.Duration(float64(within)*float64(i)/float64(n-1)), func() { <-places })
		context.AfterFunc(ctx, func() { free.Stop() })
	}
	return places
}

// take takes a slot, unless ctx ends before one is free. Without slots there is no limit.
func take(ctx context.Context, places chan struct{}) bool {
	if places == nil {
		return true
	}
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// run sends the requests until ctx ends, and returns what became of them; nil without a warm-up. A failure is a warning.
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
		if !take(sending, limit) || !take(sending, prefills) {
			break
		}
		done.Sent++
		wg.Go(func() {
			defer func() { <-limit }()
			// Rows without ids get content of their own by index; the trace has no negative ones.
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
			s.engines.leave(p.engine)
			tel.Apart(telemetry.Apart{Name: semconv.SpanWarmup, Model: rec.Model, Response: rec.Exchange.ResponseID, From: began, To: s.clk.Now()})
			rec.Exchange.Release()
			mu.Lock()
			defer mu.Unlock()
			switch err := rec.Exchange.Err; {
			case err == nil:
				inARow = 0
			case err.Class == send.ClassCancelled:
				done.GivenUp++
			default:
				done.Failed++
				example = err.Error()
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
	w.tell(ctx, done, example, said)
	return done
}

// tell says what became of the requests.
func (w warmup) tell(ctx context.Context, done *report.Warmup, example string, said *notices) {
	if ctx.Err() != nil {
		return
	}
	if w.lasting > 0 {
		said.note("warm-up: %s in %.1f s", term.Counted(done.Sent, "requests"), done.Lasted/1e3)
	}
	var what []string
	if done.GivenUp > 0 {
		what = append(what, fmt.Sprintf("%d of %d warm-up requests were given up, %v after the last one was sent", done.GivenUp, done.Sent, w.grace))
	}
	if done.Failed > 0 {
		what = append(what, fmt.Sprintf("%d of %d warm-up requests failed, such as: %s", done.Failed, done.Sent, example))
	}
	if done.Ended {
		what = append(what, fmt.Sprintf("the warm-up ended after %.1f s, for %d requests had failed one after the other", done.Lasted/1e3, maxColdFailures))
	}
	if what != nil {
		said.warn("%s", strings.Join(what, "; "))
	}
}
