// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configmiddleware"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/extension/extensionauth"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/receiver/internal/admission"
	"github.com/moonloop/moonloop/receiver/internal/metadata"
)

// mooncakeReceiver is the consumer of the stock OTLP receiver, and forwards to the pipelines. It has one or more next consumers.
type mooncakeReceiver struct {
	config      *Config
	settings    receiver.Settings
	annotator   *annotate.Annotator
	telemetry   *metadata.TelemetryBuilder
	instruments annotate.Instruments
	nextTraces  consumer.Traces
	nextMetrics consumer.Metrics
	nextLogs    consumer.Logs
	onShutdown  func()

	start, stop sync.Once
	startErr    error
	stopErr     error
	otlp        []component.Component // one for each signal, on one listener
	gate        *admission.Gate       // before their decoders; nil before Start
}

func newReceiver(set receiver.Settings, cfg *Config) (*mooncakeReceiver, error) {
	a, err := cfg.Annotation.Annotator()
	if err != nil {
		return nil, err
	}
	t, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, fmt.Errorf("metrics of the receiver: %w", err)
	}
	return &mooncakeReceiver{config: cfg, settings: set, annotator: a, telemetry: t, instruments: annotate.Instruments{
		Spans: t.ReceiverMooncakeSpans, Sessions: t.ReceiverMooncakeSessions, WithoutTokens: t.ReceiverMooncakeWithoutTokens,
		CompletedUsage: t.ReceiverMooncakeCompletedUsage, TruncatedPrompts: t.ReceiverMooncakeTruncatedPrompts,
		MetricPoints: t.ReceiverMooncakeMetricPoints, CarrierSpans: t.ReceiverMooncakeCarrierSpans,
		GenAISpans: t.ReceiverMooncakeGenaiSpans, InferenceSpans: t.ReceiverMooncakeInferenceSpans,
		LogRecords: t.ReceiverMooncakeLogRecords, Dropped: t.ReceiverMooncakeDropped, RemovedValues: t.ReceiverMooncakeRemovedValues,
	}}, nil
}

// Start listens. It does so only once, even if several pipelines start it.
func (r *mooncakeReceiver) Start(ctx context.Context, host component.Host) error {
	r.start.Do(func() { r.startErr = r.listen(ctx, host) })
	return r.startErr
}

// served returns the signals that are received. Logs are also received if there is only a pipeline of traces, because logs may have prompts.
func (r *mooncakeReceiver) served() admission.Served {
	return admission.Served{Traces: r.nextTraces != nil, Metrics: r.nextMetrics != nil, Logs: r.nextTraces != nil || r.nextLogs != nil}
}

// listen creates and starts the stock receivers, one for each served signal on the same address.
func (r *mooncakeReceiver) listen(ctx context.Context, host component.Host) error {
	r.annotator.Warn(r.settings.Logger)
	r.instruments.Begin(ctx)
	for _, reason := range admission.Reasons {
		r.refused(reason, 0)
	}
	if r.nextTraces == nil {
		r.settings.Logger.Warn("no pipeline of traces has this receiver: spans are refused, and the prompts and requests that log records hold " +
			"are not captured; add it to the receivers of a pipeline of traces")
	}
	factory := otlpreceiver.NewFactory()
	set := r.settings
	set.ID = component.NewIDWithName(factory.Type(), r.settings.ID.String())
	server, host := r.admission(host)
	var errs []error
	add := func(otlp component.Component, err error) {
		if errs = append(errs, err); err == nil {
			r.otlp = append(r.otlp, otlp)
		}
	}
	served := r.served()
	if served.Traces {
		add(factory.CreateTraces(ctx, set, server, r))
	}
	if served.Metrics {
		add(factory.CreateMetrics(ctx, set, server, r))
	}
	if served.Logs {
		add(factory.CreateLogs(ctx, set, server, r))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, otlp := range r.otlp {
		if err := otlp.Start(ctx, host); err != nil {
			return err
		}
	}
	return nil
}

// admission returns the configuration of the stock receiver with a gate before its decoders, and a host with the gate and with authenticators
// that count what they refuse. It does not change the given configuration.
func (r *mooncakeReceiver) admission(host component.Host) (*otlpreceiver.Config, component.Host) {
	server := r.config.OTLP
	var opt admission.Options
	ids := admission.HostOptions{Gate: component.NewIDWithName(metadata.Type, "admission"), Entrance: component.NewIDWithName(metadata.Type, "entrance")}
	last := configmiddleware.Config{ID: ids.Gate}
	if server.Protocols.GRPC.HasValue() {
		grpc := *server.Protocols.GRPC.Get()
		grpc.Middlewares = append(slices.Clone(grpc.Middlewares), last)
		if auth := grpc.Auth.Get(); auth != nil {
			ids.GRPC = auth.AuthenticatorID
		}
		server.Protocols.GRPC = configoptional.Some(grpc)
	}
	if server.Protocols.HTTP.HasValue() {
		http := *server.Protocols.HTTP.Get()
		http.ServerConfig.Middlewares = append(slices.Clone(http.ServerConfig.Middlewares), last)
		var auth confighttp.AuthConfig
		if configured := http.ServerConfig.Auth.Get(); configured != nil {
			auth, ids.HTTP = *configured, configured.Config.AuthenticatorID
		}
		if _, ok := host.GetExtensions()[ids.HTTP].(extensionauth.Server); ok || ids.HTTP == (component.ID{}) { // else the server says what is wrong
			auth.Config.AuthenticatorID = ids.Entrance
			http.ServerConfig.Auth = configoptional.Some(auth)
		}
		if http.ServerConfig.ReadTimeout <= 0 { // also limits requests that never reach the gate
			http.ServerConfig.ReadTimeout = r.config.Admission.ReadTimeout
		}
		server.Protocols.HTTP = configoptional.Some(http)
		opt.Paths = admission.Paths{Traces: string(http.TracesURLPath), Metrics: string(http.MetricsURLPath), Logs: string(http.LogsURLPath)}
		opt.HTTPTimeout = http.ServerConfig.ReadTimeout
	}
	opt.Served = r.served()
	opt.Limit, opt.GRPCTimeout = r.config.Admission.bytes(&server), r.config.Admission.ReadTimeout
	opt.Refused = func(why admission.Reason) { r.refused(why, 1) }
	r.gate = admission.NewGate(opt)
	return &server, admission.NewHost(host, r.gate, ids)
}

// refused counts requests that the gate refused.
func (r *mooncakeReceiver) refused(why admission.Reason, n int64) {
	r.telemetry.ReceiverMooncakeRefusedRequests.Add(context.Background(), n, metric.WithAttributes(attribute.String("reason", string(why))))
}

// Shutdown stops listening when the first pipeline calls it.
func (r *mooncakeReceiver) Shutdown(ctx context.Context) error {
	r.stop.Do(func() {
		r.onShutdown()
		var errs []error
		if r.gate != nil {
			errs = append(errs, r.gate.Shutdown(ctx))
		}
		for _, otlp := range r.otlp {
			errs = append(errs, otlp.Shutdown(ctx))
		}
		r.stopErr = errors.Join(errs...)
		r.telemetry.Shutdown()
	})
	return r.stopErr
}

// Capabilities says that telemetry is changed in place.
func (*mooncakeReceiver) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: true}
}

// ConsumeTraces forwards spans. An error of the next consumer becomes the status for the sender.
func (r *mooncakeReceiver) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	admission.Decoded(ctx)
	r.instruments.Record(ctx, r.annotator.Traces(td))
	return r.nextTraces.ConsumeTraces(ctx, td)
}

// ConsumeMetrics forwards metrics.
func (r *mooncakeReceiver) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	admission.Decoded(ctx)
	r.instruments.Record(ctx, r.annotator.Metrics(md))
	return r.nextMetrics.ConsumeMetrics(ctx, md)
}

// ConsumeLogs forwards spans made from log records to the pipeline of traces, and the records to that of logs. If one of them fails, the
// sender may send everything again, and the other one receives it twice: the spans have the same ids then.
func (r *mooncakeReceiver) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	admission.Decoded(ctx)
	if r.nextTraces == nil && r.config.Annotation.Content == annotate.ContentKeep {
		return r.nextLogs.ConsumeLogs(ctx, ld) // unchanged, because the next receiver may use their content
	}
	td, counts := r.annotator.Logs(ld)
	var errs []error
	if spans := td.SpanCount(); spans > 0 {
		if r.nextTraces != nil {
			errs = append(errs, r.nextTraces.ConsumeTraces(ctx, td))
		} else {
			counts.Drop(annotate.ReasonNoPipeline, int64(spans))
		}
	}
	if r.nextLogs != nil {
		errs = append(errs, r.nextLogs.ConsumeLogs(ctx, ld))
	} else if other := counts.OtherLogs(); other > 0 {
		counts.Drop(annotate.ReasonLogOther, other)
	}
	r.instruments.Record(ctx, counts)
	return worst(errs)
}

// worst returns the error that demands most of the sender: to try again, if one of the consumers may succeed then.
func worst(errs []error) error {
	var permanent error
	for _, err := range errs {
		switch {
		case err == nil:
		case !consumererror.IsPermanent(err):
			return err
		default:
			permanent = err
		}
	}
	return permanent
}
