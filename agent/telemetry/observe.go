// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/semconv"
)

// observeAll registers the metrics that are read at each collection: those of the run, the requests in flight, the telemetry itself and the
// process.
func observeAll(p *Pipeline, m *meter) error {
	inFlight := instrument(m, m.Int64ObservableUpDownCounter, semconv.RequestsInFlight)
	goroutines := instrument(m, m.Int64ObservableUpDownCounter, semconv.ProcessGoroutines)
	memory := instrument(m, m.Int64ObservableGauge, semconv.ProcessMemoryPeak)
	ended := instrument(m, m.Int64ObservableCounter, semconv.TelemetrySpansEnded)
	spans := instrument(m, m.Int64ObservableCounter, semconv.TelemetrySpans)
	events := instrument(m, m.Int64ObservableCounter, semconv.TelemetryEventsDropped)
	hiccups := instrument(m, m.Int64ObservableCounter, semconv.ProcessHiccups)
	pauses := instrument(m, m.Int64ObservableCounter, semconv.ProcessGCPauses)
	cpu := instrument(m, m.Float64ObservableCounter, semconv.ProcessCPUTime)
	hiccupTime := instrument(m, m.Float64ObservableCounter, semconv.ProcessHiccupTime)
	throttled := instrument(m, m.Float64ObservableCounter, semconv.ProcessThrottledTime)
	hiccupMax := instrument(m, m.Float64ObservableGauge, semconv.ProcessHiccupMax)
	pauseMax := instrument(m, m.Float64ObservableGauge, semconv.ProcessGCPauseMax)
	due := instrument(m, m.Int64ObservableCounter, semconv.RowsDue)
	sent := instrument(m, m.Int64ObservableCounter, semconv.RequestsSent)
	chunks := instrument(m, m.Int64ObservableCounter, semconv.ChunksReceived)
	rowsLeft := instrument(m, m.Int64ObservableGauge, semconv.RowsLeft)
	part := instrument(m, m.Float64ObservableGauge, semconv.RunProgress)
	left := instrument(m, m.Float64ObservableGauge, semconv.RunRemaining)
	info := instrument(m, m.Int64ObservableGauge, semconv.RunInfo)
	verdict := instrument(m, m.Int64ObservableGauge, semconv.RunVerdict)
	reasons := instrument(m, m.Float64ObservableGauge, semconv.RunVerdictReason)
	if err := errors.Join(m.errs...); err != nil {
		return err
	}
	about := metric.WithAttributeSet(runInfo(&p.cfg))
	run := func(o metric.Observer) {
		o.ObserveInt64(info, 1, about)
		if v := p.verdict.Load(); v != nil {
			for _, class := range v.Classes {
				is := int64(0)
				if class == v.Class {
					is = 1
				}
				o.ObserveInt64(verdict, is, with(attribute.String(semconv.VerdictClass, class)))
			}
			for _, r := range v.Reasons {
				o.ObserveFloat64(reasons, r.Value, with(attribute.String(semconv.VerdictMetric, r.Metric), attribute.String(semconv.VerdictClass, r.Class)))
			}
		}
		at := Progress{RowsLeft: -1, Part: -1, Left: -1} // before the first row
		if read := p.progress.Load(); read != nil {
			at = (*read)()
		}
		o.ObserveInt64(due, at.Due)
		o.ObserveInt64(sent, at.Sent)
		o.ObserveInt64(chunks, at.Chunks)
		if at.RowsLeft >= 0 {
			o.ObserveInt64(rowsLeft, at.RowsLeft)
		}
		if at.Part >= 0 {
			o.ObserveFloat64(part, at.Part)
		}
		if at.Left >= 0 {
			o.ObserveFloat64(left, at.Left.Seconds())
		}
	}

	result := func(v string) metric.ObserveOption { return with(attribute.String(semconv.TelemetryResult, v)) }
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		run(o)
		o.ObserveInt64(inFlight, p.inFlight.Load())
		o.ObserveInt64(goroutines, int64(runtime.NumGoroutine()))
		if p.queue != nil {
			l := p.Loss()
			o.ObserveInt64(ended, l.Ended)
			o.ObserveInt64(spans, l.Accepted, result(semconv.ResultAccepted))
			for why, n := range l.Lost {
				o.ObserveInt64(spans, n, result(why))
			}
			o.ObserveInt64(events, l.EventsDropped)
		}
		read := p.machine.Load()
		if read == nil {
			return nil
		}
		seen := (*read)()
		o.ObserveInt64(hiccups, seen.Hiccups)
		o.ObserveInt64(pauses, seen.GCPauses)
		for _, of := range []struct {
			metric metric.Float64Observable
			d      time.Duration
			known  bool
		}{
			{hiccupTime, seen.HiccupTime, true},
			{hiccupMax, seen.HiccupMax, true},
			{pauseMax, seen.GCPauseMax, true},
			{cpu, seen.CPU, seen.CPUKnown},
			{throttled, seen.Throttled, seen.ThrottleKnown},
		} {
			if of.known {
				o.ObserveFloat64(of.metric, of.d.Seconds())
			}
		}
		if seen.MaxRSS > 0 {
			o.ObserveInt64(memory, seen.MaxRSS)
		}
		return nil
	}, inFlight, goroutines, memory, ended, spans, events, hiccups, pauses, cpu, hiccupTime, throttled, hiccupMax, pauseMax,
		due, sent, chunks, rowsLeft, part, left, info, verdict, reasons)
	return err
}

func with(attributes ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

// runInfo describes what is replayed, and against what.
func runInfo(cfg *Config) attribute.Set {
	attributes := []attribute.KeyValue{
		attribute.String(semconv.RunTrace, cfg.Trace),
		attribute.Float64(semconv.RunSpeedup, cfg.Speedup),
		attribute.String(semconv.GenAIRequestModel, cfg.Model),
	}
	switch {
	case cfg.ServerAddress != "":
		attributes = append(attributes, attribute.String(semconv.RunEngine, net.JoinHostPort(cfg.ServerAddress, strconv.Itoa(cfg.ServerPort))))
	case cfg.Engines != "":
		attributes = append(attributes, attribute.String(semconv.RunEngine, cfg.Engines))
	}
	if cfg.Digest != "" {
		attributes = append(attributes, attribute.String(semconv.RunDigest, cfg.Digest[:min(len(cfg.Digest), 12)]))
	}
	return attribute.NewSet(attributes...)
}
