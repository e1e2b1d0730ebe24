// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/url"
	"strconv"
	"sync"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/semconv"
)

// maxWarming bounds the warm-up requests that are under way at once, whatever cap the run has.
const maxWarming = 1024

// warmUp sends requests with the shapes of the trace's first rows and none of their blocks, so that connections and
// the engine are warm and its cache knows nothing of the trace. What becomes of them is in no figure; a failure is
// a warning. An interrupt ends it.
func (r *run) warmUp(ctx context.Context) {
	n := r.cfg.Schedule.Warmup
	if n == 0 {
		return
	}
	shapes := r.stream.Shapes(n)
	limit := make(chan struct{}, min(max(1, r.cfg.Schedule.Concurrency), maxWarming))
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed, example := 0, ""
	for i := range n {
		row := shapes[i%len(shapes)]
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
			rec := &measure.Record{Row: row, Index: int64(-1 - i)}
			began := r.clk.Now()
			r.exchange(ctx, rec, nil, "", atOnce(began))
			r.tel.Apart(telemetry.Apart{Name: semconv.SpanWarmup, Model: rec.Model, Response: rec.Exchange.ResponseID, From: began, To: r.clk.Now()})
			rec.Exchange.Release()
			if rec.Exchange.Err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed++
				example = rec.Exchange.Err.Error()
			}
		})
	}
	wg.Wait()
	if failed > 0 && ctx.Err() == nil {
		r.warn("%d of %d warm-up requests failed, such as: %s", failed, n, example)
	}
}

// operation is the GenAI conventions' name for what an endpoint does.
func operation(e prompt.Endpoint) string {
	if e == prompt.Completions {
		return "text_completion"
	}
	return "chat"
}

// hostPort splits a URL that Validate has accepted.
func hostPort(base string) (host string, port int) {
	u, err := url.Parse(base)
	if err != nil {
		return "", 0
	}
	port, err = strconv.Atoi(u.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	return u.Hostname(), port
}
