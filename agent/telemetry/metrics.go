// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/semconv"
)

// instruments are the run's metrics about requests. Their attribute sets are made once, because hashing a set costs three times as much as
// recording.
type instruments struct {
	sets setCache

	operation, firstChunk, perChunk metric.Float64Histogram

	// usage belongs to one revision of the conventions, the three below it to the other; the instruments of only one revision are made.
	usage                            metric.Int64Histogram
	inputUsed, outputUsed, cacheRead metric.Int64Counter

	ttft, latency, lateness, capWait   metric.Float64Histogram
	promptError                        metric.Int64Histogram
	requests                           metric.Int64Counter
	predicted, reported, coalescedOnes metric.Int64Counter
	unpredicted                        metric.Int64Counter

	slo          measure.SLO
	good, judged metric.Int64Counter // nil without a service level
}

// meter makes instruments.
type meter struct {
	metric.Meter
	latest bool // with the names of the conventions after v1.41
	errs   []error
}

// instrument makes the instrument of a metric: create is the meter's method for its kind, and O its type of options.
func instrument[I, O any](m *meter, create func(string, ...O) (I, error), of semconv.Metric) I {
	options := []O{any(metric.WithUnit(of.Unit)).(O), any(metric.WithDescription(of.Description)).(O)}
	if of.Boundaries != nil {
		options = append(options, any(metric.WithExplicitBucketBoundaries(of.Boundaries...)).(O))
	}
	name := of.Name
	if m.latest {
		name = cmp.Or(of.Latest, name)
	}
	i, err := create(name, options...)
	m.errs = append(m.errs, err)
	return i
}

func newInstruments(p *Pipeline) (*instruments, error) {
	m := &meter{Meter: p.provider.Meter(scope, metric.WithInstrumentationVersion(p.cfg.Version)), latest: latestConventions()}
	ins := &instruments{
		sets:          setCache{base: p.base, model: p.cfg.Model, sets: make(map[setKey]*sets)},
		operation:     instrument(m, m.Float64Histogram, semconv.ClientOperationDuration),
		firstChunk:    instrument(m, m.Float64Histogram, semconv.ClientTimeToFirstChunk),
		perChunk:      instrument(m, m.Float64Histogram, semconv.ClientTimePerOutputChunk),
		ttft:          instrument(m, m.Float64Histogram, semconv.LatencyTTFT),
		latency:       instrument(m, m.Float64Histogram, semconv.LatencyRequest),
		lateness:      instrument(m, m.Float64Histogram, semconv.ScheduleLatenessSeconds),
		capWait:       instrument(m, m.Float64Histogram, semconv.QueueDuration),
		promptError:   instrument(m, m.Int64Histogram, semconv.PromptTokenError),
		requests:      instrument(m, m.Int64Counter, semconv.Requests),
		predicted:     instrument(m, m.Int64Counter, semconv.CachePredicted),
		reported:      instrument(m, m.Int64Counter, semconv.CacheReported),
		coalescedOnes: instrument(m, m.Int64Counter, semconv.CoalescedChunks),
		unpredicted:   instrument(m, m.Int64Counter, semconv.CacheUnpredicted),
		slo:           p.cfg.SLO,
	}
	if ins.slo.Any() {
		ins.good = instrument(m, m.Int64Counter, semconv.RequestsGood)
		ins.judged = instrument(m, m.Int64Counter, semconv.RequestsJudged)
	}
	if m.latest {
		ins.inputUsed = instrument(m, m.Int64Counter, semconv.ClientInputTokens)
		ins.outputUsed = instrument(m, m.Int64Counter, semconv.ClientOutputTokens)
		ins.cacheRead = instrument(m, m.Int64Counter, semconv.ClientCacheReadTokens)
	} else {
		ins.usage = instrument(m, m.Int64Histogram, semconv.ClientTokenUsage)
	}
	if err := observeAll(p, m); err != nil {
		return nil, err
	}
	ins.begin(context.Background())
	return ins, nil
}

// begin makes every counter exist from the start, at 0, so that a rate includes the first request.
func (ins *instruments) begin(ctx context.Context) {
	s := ins.sets.build(setKey{outcome: measure.Served, asked: ins.sets.model})
	ins.requests.Add(ctx, 0, s.requests...)
	ins.requests.Add(ctx, 0, ins.sets.build(setKey{outcome: measure.Failed, asked: ins.sets.model}).requests...)
	for _, counter := range []metric.Int64Counter{
		ins.predicted, ins.reported, ins.unpredicted, ins.coalescedOnes, ins.good, ins.judged, ins.inputUsed, ins.outputUsed, ins.cacheRead,
	} {
		if counter != nil {
			counter.Add(ctx, 0, s.add...)
		}
	}
}

// record records one row. ctx carries its span.
func (ins *instruments) record(ctx context.Context, r *measure.Record) {
	s := ins.sets.of(r)
	ins.requests.Add(ctx, 1, s.requests...)
	if ins.judged != nil && ins.slo.Judges(r) {
		ins.judged.Add(ctx, 1, s.add...)
	}
	if r.Outcome == measure.Skipped {
		return
	}
	if wait, ok := r.CapWait(); ok {
		ins.capWait.Record(ctx, wait.Seconds(), s.plain...)
	}
	if r.Scheduled {
		// A timer that fires early by its own resolution is on time; a histogram accepts no negative values.
		ins.lateness.Record(ctx, max(0, r.Lateness()).Seconds(), s.plain...)
	}
	if !r.Sent {
		return
	}
	x := &r.Exchange
	if !r.Retried() {
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

// tokens records the server's counts.
func (ins *instruments) tokens(ctx context.Context, u *send.Usage, s *sets) {
	for _, of := range []struct {
		tokens  int64
		counter metric.Int64Counter
		kind    []metric.RecordOption // of the histogram; nil for tokens that another kind includes
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

// latestConventions reports whether the user asks for the revision of the GenAI conventions after v1.41, by the variable that lists the
// revisions that programs should write.
func latestConventions() bool {
	revisions := strings.ReplaceAll(os.Getenv("OTEL_SEMCONV_STABILITY_OPT_IN"), " ", "")
	return slices.Contains(strings.Split(revisions, ","), "gen_ai_latest_experimental")
}

// latencies records the durations of a request that the engine got once: the operation's in any case, the others only if the request was
// served.
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

// counts records how a served request's usage compares with the expected one, and whether the request was good.
func (ins *instruments) counts(ctx context.Context, r *measure.Record, s *sets) {
	if predicted, cached, ok := r.CachePair(); ok {
		ins.predicted.Add(ctx, predicted, s.add...)
		ins.reported.Add(ctx, cached, s.add...)
		ins.unpredicted.Add(ctx, max(cached-predicted, 0), s.add...)
	}
	if ins.good != nil && ins.slo.Good(r) {
		ins.good.Add(ctx, 1, s.add...)
	}
	if d, ok := r.PromptError(); ok {
		ins.promptError.Record(ctx, max(d, -d), s.promptError[1+cmp.Compare(d, 0)]...)
	}
}
