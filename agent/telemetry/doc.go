// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package telemetry converts the records of a replay to OpenTelemetry spans and metrics, and counts those that are lost.
//
// Spans have the shape that package semconv documents. A request's span is made when the request is dispatched
// ([Pipeline.StartRequest]), so that the request can carry its context, and begins at the scheduled time. Everything else is set after the
// reply ([Pipeline.Finish]), on a goroutine that is neither the scheduler's nor the reader's. Metrics are recorded at the same time, with
// the span's context, so that histograms have exemplars.
//
// Telemetry is on, for each of traces and metrics, if its exporter (OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER), an OTLP endpoint for it
// (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, ..._METRICS_ENDPOINT) or the configuration asks for it, and
// OTEL_SDK_DISABLED is not "true". Otherwise [Start] returns a nil [Pipeline], on which every method is valid, does nothing and allocates
// nothing. All standard OTEL_* variables are honoured; those of the batch span processor that still have a meaning are
// OTEL_BSP_SCHEDULE_DELAY, OTEL_BSP_EXPORT_TIMEOUT and OTEL_BSP_MAX_EXPORT_BATCH_SIZE.
//
// # Losses are counted
//
// The SDK's batch processor counts spans, not bytes, and loses them silently when its queue is full or when a batch is larger
// than the receiver accepts. Our own queue is bounded by bytes, as are its batches; it never blocks its caller. Each span is
// counted in [Loss], as accepted or as lost with the reason. If a receiver is down, overloaded or slow, spans stay in the queue
// and are retried, until they are accepted, the queue is full or the time for shutting down is over. If a receiver accepts spans
// but does not answer in time, it gets them twice, with the same ids. The token events of a span are plain arrays until the
// export, so that the limit on the queue's bytes also limits memory: as SDK events they would need ten times as much.
//
// # Global state
//
// The package sets no global of OpenTelemetry: no provider, no propagator, no error handler. Some errors still reach the global error
// handler and logger, because the SDK offers no other way: invalid values of OTEL_* variables (those of endpoints, certificates and headers
// are errors of Start), and failures of metric exporters other than OTLP (console, prometheus). The program owns these globals. It can
// convert such errors to its own warnings: [CatchSDK].
package telemetry
