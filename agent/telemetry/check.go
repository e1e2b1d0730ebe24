// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/status"
)

// checkTime is the time limit of Check, so that a wrong endpoint is reported in the first second of a run.
const checkTime = 800 * time.Millisecond

// checkGrace is how long a query may take to end after its time limit; see the function within.
const checkGrace = 100 * time.Millisecond

// Check asks each OTLP receiver to which Start would export whether it accepts telemetry, with an empty export. It returns in a second at
// most.
//
// The warnings say what would be lost, to which receiver, why, and what to do. They do not end the run: a receiver may be back in time, and
// until then telemetry is queued, up to Config.QueueBytes. The error is a configuration error, the same that Start returns.
func Check(ctx context.Context, cfg Config) (warnings []string, err error) {
	return check(ctx, cfg, checkTime)
}

func check(ctx context.Context, cfg Config, limit time.Duration) (warnings []string, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if disabled() {
		return nil, nil
	}
	c := cfg.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var spans, figures finding
	var spansErr, figuresErr error
	var asked sync.WaitGroup
	if c.SpanExporter == nil && traces.exporter(&c) == exporterOTLP {
		asked.Go(func() { spans, spansErr = traces.ask(ctx, &c, limit, askForSpans) })
	}
	if c.MetricReader == nil && metrics.exporter(&c) == exporterOTLP {
		asked.Go(func() { figures, figuresErr = metrics.ask(ctx, &c, limit, askForMetrics) })
	}
	asked.Wait()
	if err := cmp.Or(spansErr, figuresErr); err != nil { // common errors are reported once
		return nil, err
	}
	if spans.what != "" && spans.host == figures.host && spans.what == figures.what {
		spans.lost, spans.url = "spans and metrics", spans.host
		figures.what = ""
	}
	for _, f := range []finding{spans, figures} {
		if f.what != "" {
			warnings = append(warnings, f.String())
		}
	}
	return warnings, nil
}

// finding is a problem with one receiver; if the field what is empty, there is none.
type finding struct {
	receiver
	lost       string // what does not arrive there
	what, cure string
}

func (f finding) String() string {
	text := "telemetry: " + f.lost + " do not arrive at " + f.url
	if f.setting != "" {
		text += " (" + f.setting + ")"
	}
	text += ": " + f.what
	if f.cure != "" {
		text += "; " + f.cure
	}
	return text
}

// ask sends an empty export to the signal's receiver.
func (s signal) ask(ctx context.Context, c *Config, limit time.Duration, send func(context.Context, *Config) error) (f finding, err error) {
	f.lost = s.lost
	if f.receiver, err = s.receiver(c); err != nil {
		return f, err
	}
	if err := within(ctx, checkGrace, func() error { return send(ctx, c) }); err != nil {
		f.what, f.cure = s.diagnose(err, f.protocol, limit)
	}
	return f, nil
}

func askForSpans(ctx context.Context, c *Config) error {
	client, err := newTraceClient(c)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	err = client.UploadTraces(ctx, []*tracepb.ResourceSpans{{}})
	_ = client.Stop(ctx) // it has nothing under way
	return err
}

func askForMetrics(ctx context.Context, c *Config) error {
	exporter, err := newMetricExporter(ctx, c, true)
	if err != nil {
		return err
	}
	err = exporter.Export(ctx, new(metricdata.ResourceMetrics))
	_ = exporter.Shutdown(ctx) // as above
	return err
}

// diagnose explains an export's error, with advice.
func (s signal) diagnose(err error, protocol string, within time.Duration) (what, cure string) {
	const kept = "until then, telemetry is kept as long as the queue has room"
	for _, d := range diagnoses {
		if d.what != "" && (d.protocol == "" || d.protocol == protocol) && says(err.Error(), d.words...) {
			return d.what, strings.NewReplacer("{spans}", s.lost, "{TRACES}", s.name, "{path}", s.path(), "{kept}", kept).Replace(d.cure)
		}
	}
	switch troubleOf(err) {
	case late:
		return fmt.Sprintf("no answer within %v", within), "can it be reached from here, and is it the right port? " + strings.ToUpper(kept[:1]) + kept[1:]
	case busy:
		return "the receiver, or what it forwards telemetry to, is overloaded: " + errorText(unwrapped(err)), kept
	default:
		return errorText(unwrapped(err)), ""
	}
}

// unwrapped returns the part of an exporter's error with the cause, without the attempted action.
func unwrapped(err error) error {
	type withStatus interface {
		error
		GRPCStatus() *status.Status
	}
	if of, ok := errors.AsType[withStatus](err); ok {
		return fmt.Errorf("%v: %s", of.GRPCStatus().Code(), of.GRPCStatus().Message())
	}
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	if _, answer, found := strings.Cut(err.Error(), "failed to send "); found { // "to URL: 400 Bad Request (body: ...)"
		if _, said, found := strings.Cut(answer, ": "); found {
			return errors.New("HTTP " + said)
		}
	}
	return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "failed to upload metrics: "), "retry-able request failure: "))
}
