// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package telemetry turns the records of a replay into OpenTelemetry spans and metrics, and says what of them
// was lost.
//
// Spans have the shape that package semconv documents. A request's span is started when the request is dispatched
// ([Pipeline.StartRequest]), so that its context can travel with the request, and gets everything else after the reply
// ([Pipeline.Finish]), on a goroutine that is neither the scheduler's nor the reader's. Metrics are recorded
// at the same time, with the span's context, so that histograms carry exemplars.
//
// Telemetry is on, for each of traces and metrics, when its exporter (OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER), an
// OTLP endpoint for it (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, ..._METRICS_ENDPOINT) or the
// configuration asks for it, and OTEL_SDK_DISABLED is not "true". Otherwise [Start] returns a nil [Pipeline], on
// which every method is valid, does nothing and allocates nothing. All standard OTEL_* variables are honoured;
// those of the batch span processor that still have a meaning are OTEL_BSP_SCHEDULE_DELAY, OTEL_BSP_EXPORT_TIMEOUT and
// OTEL_BSP_MAX_EXPORT_BATCH_SIZE.
//
// # Nothing is lost in silence
//
// The SDK's batch processor counts spans, not bytes, and loses them silently when its queue is full or when a batch is
// larger than the receiver takes. Our own queue is bounded by bytes, as are its batches; it never makes its
// caller wait; and each span that it was given ends as accepted or as lost, with the reason, in [Loss]. What a receiver does not
// take because it is away, overloaded or slow stays in the queue and is sent again, until it arrives, the queue is full or the
// time for shutting down is over; a receiver that had it but did not say so in time has it twice, with the same ids.
// The token events of a span are kept as plain arrays until the moment of export, so that the bound on the queue's bytes
// bounds the memory too: as SDK events they would take ten times as much.
//
// # Global state
//
// The package sets no global of OpenTelemetry: no provider, no propagator, no error handler. Some errors still reach the
// global error handler and logger because the SDK offers no other way: values of OTEL_* variables that it cannot use (those of
// endpoints, certificates and headers are errors of Start), and failures of metric exporters other than OTLP (console,
// prometheus). A program, to which these globals belong, may have them told as its own warnings: [CatchSDK].
package telemetry
