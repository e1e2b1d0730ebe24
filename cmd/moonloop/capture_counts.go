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
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/semconv"
)

// captureCounts counts what has passed from the receiver to the exporter, as often as it was sent: only compiling finds
// out which spans are the same. Safe for concurrent use.
type captureCounts struct {
	spans      atomic.Int64
	inference  atomic.Int64 // requests to a model; each may have several spans
	replayed   atomic.Int64 // of them, of a replay
	anonymous  atomic.Int64 // of them, with nothing that identifies the prompt
	lastArrive atomic.Int64 // ns since the Unix epoch; 0 before the first span
}

// tap counts what next has taken.
func (c *captureCounts) tap(next consumer.Traces) consumer.ConsumeTracesFunc {
	return func(ctx context.Context, td ptrace.Traces) error {
		var n struct{ spans, inference, replayed, anonymous int64 }
		// Before next, which may keep or change what it is given.
		for _, resource := range td.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					n.spans++
					a := span.Attributes()
					_, row := a.Get(semconv.Row)
					identity, annotated := a.Get(semconv.Identity)
					switch {
					case row:
						n.inference++
						n.replayed++
					case annotated && span.Name() != contentSpan:
						n.inference++
						if identity.Type() == pcommon.ValueTypeStr && identity.Str() == semconv.IdentityNone {
							n.anonymous++
						}
					}
				}
			}
		}
		if err := next.ConsumeTraces(ctx, td); err != nil {
			return err
		}
		c.spans.Add(n.spans)
		c.inference.Add(n.inference)
		c.replayed.Add(n.replayed)
		c.anonymous.Add(n.anonymous)
		if n.spans > 0 {
			c.lastArrive.Store(time.Now().UnixNano())
		}
		return nil
	}
}

// contentSpan is the name of spans that the receiver makes of log records with a prompt. They are no requests.
const contentSpan = "mooncake.content"

// silence is the time since the last span; 0 before the first.
func (c *captureCounts) silence() time.Duration {
	if last := c.lastArrive.Load(); last != 0 {
		return max(0, time.Since(time.Unix(0, last)))
	}
	return 0
}

// String is what a person wants to see go up.
func (c *captureCounts) String() string {
	s := fmt.Sprintf("spans %s · inference %s", comma(c.spans.Load()), comma(c.inference.Load()))
	if n := c.replayed.Load(); n > 0 {
		s += " · of replays " + comma(n)
	}
	return s + " · prompt unknown " + comma(c.anonymous.Load())
}
