// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/semconv"
)

// instruments are the run's metrics that requests record. Their attribute sets are made once: hashing a set costs three
// times what recording does.
type instruments struct {
	sets setCache

	operation, firstChunk, perChunk metric.Float64Histogram

	// Of one revision of the conventions there is usage, of the other the three behind it.
	usage                            metric.Int64Histogram
	inputUsed, outputUsed, cacheRead metric.Int64Counter

	ttft, latency, lateness, capWait   metric.Float64Histogram
	promptError                        metric.Int64Histogram
	requests                           metric.Int64Counter
	predicted, reported, coalescedOnes metric.Int64Counter
}

func newInstruments(p *Pipeline) (*instruments, error) {
	meter := p.provider.Meter(scope, metric.WithInstrumentationVersion(p.cfg.Version))
	ins := &instruments{sets: setCache{base: p.base, model: p.cfg.Model}}
	latest := latestConventions()
	var errs []error
	histogram := func(to *metric.Float64Histogram, m semconv.Metric) {
		name := m.Name
		if latest && m.Latest != "" {
			name = m.Latest
		}
		var err error
		*to, err = meter.Float64Histogram(name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description),
			metric.WithExplicitBucketBoundaries(m.Boundaries...))
		errs = append(errs, err)
	}
	counts := func(to *metric.Int64Histogram, m semconv.Metric) {
		var err error
		*to, err = meter.Int64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description),
			metric.WithExplicitBucketBoundaries(m.Boundaries...))
		errs = append(errs, err)
	}
	counter := func(to *metric.Int64Counter, m semconv.Metric) {
		var err error
		*to, err = meter.Int64Counter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
		errs = append(errs, err)
	}
	histogram(&ins.operation, semconv.ClientOperationDuration)
	histogram(&ins.firstChunk, semconv.ClientTimeToFirstChunk)
	histogram(&ins.perChunk, semconv.ClientTimePerOutputChunk)
	if latest {
		counter(&ins.inputUsed, semconv.ClientInputTokens)
		counter(&ins.outputUsed, semconv.ClientOutputTokens)
		counter(&ins.cacheRead, semconv.ClientCacheReadTokens)
	} else {
		counts(&ins.usage, semconv.ClientTokenUsage)
	}
	histogram(&ins.ttft, semconv.LatencyTTFT)
	histogram(&ins.latency, semconv.LatencyRequest)
	histogram(&ins.lateness, semconv.ScheduleLatenessSeconds)
	histogram(&ins.capWait, semconv.QueueDuration)
	counts(&ins.promptError, semconv.PromptTokenError)
	counter(&ins.requests, semconv.Requests)
	counter(&ins.predicted, semconv.CachePredicted)
	counter(&ins.reported, semconv.CacheReported)
	counter(&ins.coalescedOnes, semconv.CoalescedChunks)
	errs = append(errs, observeAll(p, meter))
	return ins, errors.Join(errs...)
}

// record records one row. ctx carries its span.
func (ins *instruments) record(ctx context.Context, r *measure.Record) {
	s := ins.sets.of(r)
	ins.requests.Add(ctx, 1, s.requests...)
	if r.Outcome == measure.Skipped {
		return
	}
	if wait, ok := r.CapWait(); ok {
		ins.capWait.Record(ctx, wait.Seconds(), s.plain...)
	}
	if r.Scheduled {
		// A timer that fires early by its own resolution is on time; a histogram takes no negative values.
		ins.lateness.Record(ctx, max(0, r.Lateness()).Seconds(), s.plain...)
	}
	if !r.Sent {
		return
	}
	x := &r.Exchange
	if !r.Resent() {
		ins.latencies(ctx, r, s)
	}
	ins.tokens(ctx, &x.Usage, s)
	if x.Coalesced > 0 {
		ins.coalescedOnes.Add(ctx, int64(x.Coalesced), s.add...)
	}
	if r.Outcome == measure.Served {
		ins.counts(ctx, r, s)
	}
}

// tokens records what the server counted.
func (ins *instruments) tokens(ctx context.Context, u *send.Usage, s *sets) {
	for _, of := range []struct {
		tokens  int64
		counter metric.Int64Counter
		kind    []metric.RecordOption // of the histogram; nil of what is a part of another kind
	}{{u.Prompt, ins.inputUsed, s.input}, {u.Completion, ins.outputUsed, s.output}, {u.Cached, ins.cacheRead, nil}} {
		switch {
		case of.tokens == send.Unknown:
		case of.counter != nil:
			of.counter.Add(ctx, of.tokens, s.add...)
		case of.kind != nil:
			ins.usage.Record(ctx, of.tokens, of.kind...)
		}
	}
}

// latestConventions reports whether the user asks for the revision of the GenAI conventions after v1.41, by the variable that
// lists the revisions that programs are to write.
func latestConventions() bool {
	for name := range strings.SplitSeq(os.Getenv("OTEL_SEMCONV_STABILITY_OPT_IN"), ",") {
		if strings.TrimSpace(name) == "gen_ai_latest_experimental" {
			return true
		}
	}
	return false
}

// latencies records the durations of a request that was sent once: of each its operation, of a served one the rest.
func (ins *instruments) latencies(ctx context.Context, r *measure.Record, s *sets) {
	x := &r.Exchange
	from, to := r.Wire(), x.End
	if from < 0 {
		from = x.Start
	}
	if r.Outcome == measure.Served {
		to = r.LastToken()
	}
	if d := to - from; from >= 0 && d >= 0 {
		ins.operation.Record(ctx, d.Seconds(), s.operation...)
	}
	if r.Outcome != measure.Served {
		return
	}
	if d, ok := r.Latency(r.Intended); ok {
		ins.latency.Record(ctx, d.Seconds(), s.plain...)
	}
	if d, ok := r.TTFT(r.Intended); ok {
		ins.ttft.Record(ctx, d.Seconds(), s.plain...)
	}
	if d, ok := r.TTFT(r.Wire()); ok {
		ins.firstChunk.Record(ctx, d.Seconds(), s.plain...)
	}
	if x.Whole {
		return
	}
	for i := 1; i < len(x.At); i++ {
		ins.perChunk.Record(ctx, time.Duration(x.At[i]-x.At[i-1]).Seconds(), s.plain...)
	}
}

// counts records how a served request's usage compares with what was expected of it.
func (ins *instruments) counts(ctx context.Context, r *measure.Record, s *sets) {
	if predicted, cached, ok := r.CachePair(); ok {
		ins.predicted.Add(ctx, predicted, s.add...)
		ins.reported.Add(ctx, cached, s.add...)
	}
	switch d, ok := r.PromptError(); {
	case !ok:
	case d == 0:
		ins.promptError.Record(ctx, 0, s.equal...)
	case d > 0:
		ins.promptError.Record(ctx, d, s.more...)
	default:
		ins.promptError.Record(ctx, -d, s.fewer...)
	}
}
