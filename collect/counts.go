// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/semconv"
)

// Counts counts what has passed from the receiver to the exporter, including repetitions: only compiling finds out which spans are the
// same.
type Counts struct {
	Spans     int64
	Requests  int64     // spans of requests to a model; a request may have several
	Replayed  int64     // those of a replay
	Anonymous int64     // those without an identity of the prompt
	Uncounted int64     // those without the number of input or of output tokens
	Refused   int64     // spans that the exporter refused, including repetitions
	Points    int64     // data points of metrics, which are discarded
	Last      time.Time // when the last span arrived; zero before the first
}

// Silence returns the time since the last span; 0 before the first.
func (c Counts) Silence() time.Duration {
	if c.Last.IsZero() {
		return 0
	}
	return max(0, time.Since(c.Last))
}

// String returns the figures that people watch during a capture, and the problems that they should look into.
func (c Counts) String() string {
	s := fmt.Sprintf("spans %s · requests %s", term.Comma(c.Spans), term.Comma(c.Requests))
	if c.Replayed > 0 {
		s += " · of replays " + term.Comma(c.Replayed)
	}
	if c.Refused > 0 {
		s += " · REFUSED " + term.Comma(c.Refused)
	}
	most := func(n int64, what, cure string) {
		switch production := c.Requests - c.Replayed; {
		case n == 0:
		case 2*n > production && production >= enoughRequests:
			s += fmt.Sprintf(" · %s %s, which is most of them: %s", term.Comma(n), what, cure)
		default:
			s += fmt.Sprintf(" · %s %s", term.Comma(n), what)
		}
	}
	most(c.Uncounted, "without token counts", "they give no rows")
	most(c.Anonymous, "without prompt", "is content recorded?")
	return s
}

// enoughRequests is the minimum number of requests for a hint about a value that most of them lack. Among fewer, that may be chance.
const enoughRequests = 10

// count counts the content of one batch.
func count(td ptrace.Traces) (c Counts) {
	for _, resource := range td.ResourceSpans().All() {
		_, replay := resource.Resource().Attributes().Get(semconv.RunID)
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				c.Spans++
				a := span.Attributes()
				has := func(key string) bool { _, ok := a.Get(key); return ok }
				identity, annotated := a.Get(semconv.Identity)
				annotated = annotated && span.Name() != semconv.SpanContent
				row := has(semconv.Row)
				if !row && !annotated {
					continue
				}
				c.Requests++
				if row || replay { // calibration has no row
					c.Replayed++
					continue
				}
				if identity.Type() == pcommon.ValueTypeStr && identity.Str() == semconv.IdentityNone {
					c.Anonymous++
				}
				if !has(semconv.GenAIUsageInputTokens) || !has(semconv.GenAIUsageOutputTokens) {
					c.Uncounted++
				}
			}
		}
	}
	return c
}

// tally adds up counts. Safe for concurrent use.
type tally struct {
	warn func(string) // called when refusing begins and ends

	mu      sync.Mutex
	sum     Counts
	failing bool // the exporter refused the last batch
}

func (t *tally) counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum
}

// tap returns a function that passes spans on to next, and counts what next accepts and what it refuses.
func (t *tally) tap(next consumer.Traces) consumer.ConsumeTracesFunc {
	return func(ctx context.Context, td ptrace.Traces) error {
		n := count(td) // before next, which may keep or change the batch
		err := next.ConsumeTraces(ctx, td)
		if text := t.add(n, err); text != "" {
			t.warn(text)
		}
		return err
	}
}

// add adds a batch, and returns the warning to report.
func (t *tally) add(n Counts, err error) (warning string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.failing
	t.failing = err != nil
	if err != nil {
		t.sum.Refused += n.Spans
		if !before {
			warning = fmt.Sprintf("the journal cannot be written: %v; spans are refused until it can, and their senders are told to try again", err)
		}
		return warning
	}
	t.sum.Spans += n.Spans
	t.sum.Requests += n.Requests
	t.sum.Replayed += n.Replayed
	t.sum.Anonymous += n.Anonymous
	t.sum.Uncounted += n.Uncounted
	if n.Spans > 0 {
		t.sum.Last = time.Now()
	}
	if before {
		warning = fmt.Sprintf("the journal can be written again; %s refused so far", term.Counted(t.sum.Refused, "spans"))
	}
	return warning
}

// discard counts metrics, which a trace does not need.
func (t *tally) discard(_ context.Context, md pmetric.Metrics) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Points += int64(md.DataPointCount())
	return nil
}
