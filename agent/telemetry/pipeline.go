// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/observe"
	"github.com/moonloop/moonloop/semconv"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/moonloop/moonloop/agent"

// Pipeline is the telemetry of one run. A nil Pipeline is telemetry that is off. Safe for concurrent use.
type Pipeline struct {
	cfg  Config
	clk  clock.Clock
	name string // of request spans
	// exports says whether anything is exported, and not only read by FurtherReader.
	exports bool
	base    []attribute.KeyValue

	tracer     trace.Tracer // nil if traces are off
	queue      *queue
	eventLimit int // events per span; negative = no limit

	provider    *sdkmetric.MeterProvider // nil if metrics are off
	instruments *instruments
	metricLoss  metricLoss
	first       chan struct{} // closed when the first export is over; nil if metrics are off
	over        chan struct{} // closed when the time that Shutdown has is over

	inFlight          atomic.Int64
	machine           atomic.Pointer[func() observe.Machine]
	progress          atomic.Pointer[func() Progress]
	verdict           atomic.Pointer[Verdict]
	started           atomic.Int64 // sampled spans
	sampledOut        atomic.Int64
	eventsDropped     atomic.Int64
	attributesDropped atomic.Int64
	resourceError     string
	closed            atomic.Bool
	spansClosed       atomic.Bool
}

// Start opens the telemetry of a run, or returns nil if neither the environment nor the configuration asks for any. It returns only
// configuration errors; Loss shows whether the receiver can be reached.
func Start(ctx context.Context, cfg Config, clk clock.Clock) (*Pipeline, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if disabled() {
		return nil, nil //nolint:nilnil // a nil Pipeline is one that is off
	}
	p := &Pipeline{cfg: cfg.withDefaults(), clk: clk, over: make(chan struct{})}
	p.name = p.cfg.Operation + " " + p.cfg.Model
	p.base = baseAttributes(&p.cfg)

	exporter, err := newSpanExporter(ctx, &p.cfg)
	if err != nil {
		return nil, err
	}
	reader, err := newMetricReader(ctx, &p.cfg, &p.metricLoss, p.over)
	if err != nil {
		if exporter != nil {
			err = errors.Join(err, exporter.Shutdown(ctx))
		}
		return nil, err
	}
	p.exports = exporter != nil || reader != nil
	if !p.exports && cfg.FurtherReader == nil {
		return nil, nil //nolint:nilnil // a nil Pipeline is one that is off
	}
	res, err := newResource(ctx, &p.cfg)
	if err != nil {
		p.resourceError = errorText(fmt.Errorf("resource: %w", err))
	}
	if exporter != nil {
		spanLimits := sdktrace.NewSpanLimits()
		if os.Getenv("OTEL_SPAN_EVENT_COUNT_LIMIT") == "" {
			spanLimits.EventCountLimit = -1
		}
		p.eventLimit = spanLimits.EventCountLimit
		p.queue = newQueue(exporter, limits{
			queueBytes: p.cfg.QueueBytes, batchBytes: p.cfg.BatchBytes, batchSpans: p.cfg.BatchSpans, messageBytes: p.cfg.messageBytes,
			linger: p.cfg.Linger, timeout: p.cfg.ExportTimeout,
		})
		// There is no span processor: ended spans are queued here, together with their token events.
		p.tracer = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithRawSpanLimits(spanLimits)).
			Tracer(scope, trace.WithInstrumentationVersion(p.cfg.Version))
	}
	if reader != nil || cfg.FurtherReader != nil {
		opts := []sdkmetric.Option{sdkmetric.WithResource(res)}
		for _, r := range []sdkmetric.Reader{reader, cfg.FurtherReader} {
			if r != nil {
				opts = append(opts, sdkmetric.WithReader(r))
			}
		}
		if !p.cfg.ExplicitHistograms {
			opts = append(opts, sdkmetric.WithView(sdkmetric.NewView(
				sdkmetric.Instrument{Kind: sdkmetric.InstrumentKindHistogram},
				sdkmetric.Stream{Aggregation: sdkmetric.AggregationBase2ExponentialHistogram{MaxSize: histogramBuckets, MaxScale: histogramScale}},
			)))
		}
		p.provider = sdkmetric.NewMeterProvider(opts...)
		if p.instruments, err = newInstruments(p); err != nil {
			_, closeErr := p.Shutdown(ctx)
			return nil, errors.Join(err, closeErr)
		}
		p.first = make(chan struct{})
		go p.exportOnce() //nolint:gosec // Shutdown waits for it, whatever becomes of ctx
	}
	return p, nil
}

// Exponential histograms have 32 buckets for each factor of 2: a percentile is accurate to 2.2 %, the width of a bucket. The buckets cover
// a factor of a million, such as from 1 µs to 1 s of lateness; beyond that, buckets become twice as wide.
const (
	histogramScale   = 5
	histogramBuckets = 640
)

// exportOnce exports the counters while all are 0: otherwise the receiver would not see them before the first interval is over, and rates
// would miss the events of that interval. Errors are counted like those of other exports.
func (p *Pipeline) exportOnce() {
	defer close(p.first)
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.ExportTimeout)
	defer cancel()
	_ = p.provider.ForceFlush(ctx)
}

// Exports reports whether the pipeline exports anything, other than by [Config.FurtherReader].
func (p *Pipeline) Exports() bool { return p != nil && p.exports }

// InFlight adds to the number of requests in flight. It costs an atomic addition.
func (p *Pipeline) InFlight(delta int64) {
	if p != nil {
		p.inFlight.Add(delta)
	}
}

// Observe exports the figures of the machine as metrics: the function read is called at each collection until Shutdown, on a separate
// goroutine.
func (p *Pipeline) Observe(read func() observe.Machine) {
	if p != nil && read != nil {
		p.machine.Store(&read)
	}
}

// Progress is the progress of a run. Part, Left and RowsLeft are below 0 if unknown.
type Progress struct {
	Due, Sent, Chunks int64   // rows that have been due, requests that were sent, output chunks that arrived
	Part              float64 // of the run, 0 to 1
	Left              time.Duration
	RowsLeft          int64
}

// ObserveRun exports the progress of the run as metrics: the function read is called at each collection until Shutdown, on a separate
// goroutine.
func (p *Pipeline) ObserveRun(read func() Progress) {
	if p != nil && read != nil {
		p.progress.Store(&read)
	}
}

// Verdict is the verdict on a run, for metrics.
type Verdict struct {
	Class   string   // one of Classes
	Classes []string // all possible classes
	Reasons []VerdictReason
}

// VerdictReason is a metric that made a verdict worse.
type VerdictReason struct {
	Metric, Class string
	Value         float64 // in the metric's own unit
}

// Conclude sets the verdict metrics, which the last export includes. CloseSpans must be called before it, because lost spans are a part of
// the verdict, and Shutdown after it.
func (p *Pipeline) Conclude(v Verdict) {
	if p != nil {
		p.verdict.Store(&v)
	}
}

// CloseSpans exports the remaining spans, as far as ctx allows. Spans that end after it are counted as lost. Shutdown calls it if
// necessary.
func (p *Pipeline) CloseSpans(ctx context.Context) error {
	if p == nil || p.queue == nil || p.spansClosed.Swap(true) {
		return nil
	}
	// The metrics come after the spans, so that they count all spans; a quarter of the time is left for the metrics.
	spans, cancel := threeQuarters(ctx)
	defer cancel()
	err := p.queue.shutdown(spans)
	if err == nil || spans.Err() != nil {
		return nil // Loss counts what was lost because the time was over
	}
	return fmt.Errorf("telemetry: close the span exporter: %w", err)
}

// Shutdown exports the remaining telemetry, as far as ctx allows, closes the exporters and returns the counts. It returns when ctx is done
// at the latest, as long as the exporter respects its context. Spans that end after it are counted as lost. The error is one of closing;
// everything else is in Loss. A second call only returns the counts.
func (p *Pipeline) Shutdown(ctx context.Context) (Loss, error) {
	if p == nil {
		return Loss{}, nil
	}
	if p.closed.Swap(true) {
		return p.Loss(), nil
	}
	err := p.CloseSpans(ctx)
	if p.provider != nil {
		last, cancel := context.WithTimeout(ctx, p.cfg.ExportTimeout) // the SDK's own limit yields to a deadline of ctx
		defer cancel()
		defer context.AfterFunc(last, func() { close(p.over) })()
		if p.first != nil { // in a short run, the first export may not have begun, and none begins after the SDK's Shutdown
			select {
			case <-p.first:
			case <-last.Done():
			}
		}
		p.metricLoss.add(0, within(last, closeGrace, func() error { return p.provider.Shutdown(last) }))
	}
	return p.Loss(), err
}

// closeGrace is how long the last export may take to end after its time limit; see the function within.
const closeGrace = time.Second

// within returns f's error, or the context's if f has not ended within a grace period after the context. OpenTelemetry's HTTP client
// ignores its context and reads on if a receiver has switched protocols (HTTP 101) and then sends nothing. Such a call is abandoned. The
// grace period is for calls that do end, because their error is more precise.
func within(ctx context.Context, grace time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return context.Cause(ctx)
	}
}

// threeQuarters returns a context with three quarters of the time that ctx has left.
func threeQuarters(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/4*3)
}

// newResource describes the emitter. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override everything except the run's id. The process's
// command line and owner are left out, because they may contain secrets. The resource is usable even with an error.
func newResource(ctx context.Context, c *Config) (*resource.Resource, error) {
	who := []attribute.KeyValue{
		attribute.String(semconv.ServiceName, semconv.DefaultServiceName),
		attribute.String(semconv.ServiceInstanceID, uuid.NewString()),
	}
	if c.Version != "" {
		who = append(who, attribute.String(semconv.ServiceVersion, c.Version))
	}
	opts := []resource.Option{
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithProcessPID(),
		resource.WithProcessRuntimeVersion(),
		resource.WithAttributes(who...),
		resource.WithFromEnv(),
	}
	if c.RunID != "" {
		opts = append(opts, resource.WithAttributes(attribute.String(semconv.RunID, c.RunID)))
	}
	return resource.New(ctx, opts...)
}
