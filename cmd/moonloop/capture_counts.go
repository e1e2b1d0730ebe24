// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/semconv"
)

// captureCounts counts what has passed from the receiver to the exporter, as often as it was sent: only compiling finds
// out which spans are the same. Safe for concurrent use.
type captureCounts struct {
	spans      atomic.Int64
	inference  atomic.Int64 // requests to a model; each may have several spans
	replayed   atomic.Int64 // of them, of a replay
	anonymous  atomic.Int64 // of them, with nothing that identifies the prompt
	uncounted  atomic.Int64 // of them, without the number of input or of output tokens
	refused    atomic.Int64 // spans that the exporter did not take, as often as they were sent
	points     atomic.Int64 // data points of metrics
	lastArrive atomic.Int64 // ns since the Unix epoch; 0 before the first span

	failing atomic.Bool  // the exporter refused the last batch
	warn    func(string) // is told when that begins and ends; nil tells nobody
}

// batchCounts is what one batch holds.
type batchCounts struct{ spans, inference, replayed, anonymous, uncounted int64 }

func countBatch(td ptrace.Traces) (n batchCounts) {
	for _, resource := range td.ResourceSpans().All() {
		_, replay := resource.Resource().Attributes().Get(semconv.RunID)
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				n.spans++
				a := span.Attributes()
				_, row := a.Get(semconv.Row)
				identity, annotated := a.Get(semconv.Identity)
				switch {
				case row, replay && annotated && span.Name() != semconv.SpanContent: // calibration has no row
					n.inference++
					n.replayed++
				case annotated && span.Name() != semconv.SpanContent:
					n.inference++
					if identity.Type() == pcommon.ValueTypeStr && identity.Str() == semconv.IdentityNone {
						n.anonymous++
					}
					_, input := a.Get(semconv.GenAIUsageInputTokens)
					_, output := a.Get(semconv.GenAIUsageOutputTokens)
					if !input || !output {
						n.uncounted++
					}
				}
			}
		}
	}
	return n
}

// tap counts what next has taken, and what it has not.
func (c *captureCounts) tap(next consumer.Traces) consumer.ConsumeTracesFunc {
	return func(ctx context.Context, td ptrace.Traces) error {
		n := countBatch(td) // before next, which may keep or change what it is given
		if err := next.ConsumeTraces(ctx, td); err != nil {
			c.refused.Add(n.spans)
			if c.failing.CompareAndSwap(false, true) && c.warn != nil {
				c.warn(fmt.Sprintf("the journal cannot be written: %v; spans are refused until it can, and their senders told to try again", err))
			}
			return err
		}
		if c.failing.CompareAndSwap(true, false) && c.warn != nil {
			c.warn(fmt.Sprintf("the journal can be written again; %s refused so far", term.Counted(c.refused.Load(), "spans")))
		}
		c.spans.Add(n.spans)
		c.inference.Add(n.inference)
		c.replayed.Add(n.replayed)
		c.anonymous.Add(n.anonymous)
		c.uncounted.Add(n.uncounted)
		if n.spans > 0 {
			c.lastArrive.Store(time.Now().UnixNano())
		}
		return nil
	}
}

// discard counts metrics, for which a trace has no use.
func (c *captureCounts) discard(_ context.Context, md pmetric.Metrics) error {
	c.points.Add(int64(md.DataPointCount()))
	return nil
}

// silence is the time since the last span; 0 before the first.
func (c *captureCounts) silence() time.Duration {
	if last := c.lastArrive.Load(); last != 0 {
		return max(0, time.Since(time.Unix(0, last)))
	}
	return 0
}

// String is what a person wants to see go up, and what they should look into before it is too late.
func (c *captureCounts) String() string {
	inference := c.inference.Load()
	s := fmt.Sprintf("spans %s · requests %s", term.Comma(c.spans.Load()), term.Comma(inference))
	replayed := c.replayed.Load()
	if replayed > 0 {
		s += " · of replays " + term.Comma(replayed)
	}
	if n := c.refused.Load(); n > 0 {
		s += " · REFUSED " + term.Comma(n)
	}
	most := func(n int64, what, cure string) {
		switch production := inference - replayed; {
		case n == 0:
		case 2*n > production && production >= enoughRequests:
			s += fmt.Sprintf(" · %s %s, which is most: %s", term.Comma(n), what, cure)
		default:
			s += fmt.Sprintf(" · %s %s", term.Comma(n), what)
		}
	}
	most(c.uncounted.Load(), "without token counts", "they give no rows")
	most(c.anonymous.Load(), "without prompt", "is content recorded?")
	return s
}

// enoughRequests is the number of requests from which what most of them lack is no accident.
const enoughRequests = 10
