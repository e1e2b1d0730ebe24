// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// maxWarming bounds the warm-up requests that are under way at once, whatever cap the run has.
const maxWarming = 1024

// warmup sends requests with the shapes of the trace's first rows and none of their blocks, so that connections and the engine
// are warm and its cache knows nothing of the trace. What becomes of them is in no figure.
type warmup struct {
	requests int
	atOnce   int // of them
}

// run sends the requests until ctx ends. A failure is a warning.
func (w warmup) run(ctx context.Context, s *sender, shapes []*mooncake.Row, tel *telemetry.Pipeline, said *notices) {
	limit := make(chan struct{}, w.atOnce)
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed, example := 0, ""
	for i := range w.requests {
		select {
		case limit <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-limit }()
			// Rows without ids get content of their own by index; the trace has no negative ones.
			rec := &measure.Record{Row: shapes[i%len(shapes)], Index: int64(-1 - i)}
			began := s.clk.Now()
			p := atOnce(began)
			p.engine = s.engines.pick("")
			s.exchange(ctx, rec, nil, "", p)
			s.engines.leave(p.engine)
			tel.Apart(telemetry.Apart{Name: semconv.SpanWarmup, Model: rec.Model, Response: rec.Exchange.ResponseID, From: began, To: s.clk.Now()})
			rec.Exchange.Release()
			if err := rec.Exchange.Err; err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed++
				example = err.Error()
			}
		})
	}
	wg.Wait()
	if failed > 0 && ctx.Err() == nil {
		said.warn("%d of %d warm-up requests failed, such as: %s", failed, w.requests, example)
	}
}
