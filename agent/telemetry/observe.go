// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/agent/observe"
	"github.com/moonloop/moonloop/semconv"
)

// observeAll registers the metrics that are read at each collection: requests in flight, the telemetry itself, the
// process.
func observeAll(p *Pipeline, meter metric.Meter) error {
	var errs []error
	counter := func(m semconv.Metric) metric.Int64ObservableCounter {
		c, err := meter.Int64ObservableCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
		errs = append(errs, err)
		return c
	}
	seconds := func(m semconv.Metric) metric.Float64ObservableCounter {
		c, err := meter.Float64ObservableCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
		errs = append(errs, err)
		return c
	}
	longest := func(m semconv.Metric) metric.Float64ObservableGauge {
		c, err := meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
		errs = append(errs, err)
		return c
	}
	upDown := func(m semconv.Metric) metric.Int64ObservableUpDownCounter {
		c, err := meter.Int64ObservableUpDownCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
		errs = append(errs, err)
		return c
	}
	inFlight, goroutines := upDown(semconv.RequestsInFlight), upDown(semconv.ProcessGoroutines)
	memory, err := meter.Int64ObservableGauge(semconv.ProcessMemoryPeak.Name,
		metric.WithUnit(semconv.ProcessMemoryPeak.Unit), metric.WithDescription(semconv.ProcessMemoryPeak.Description))
	errs = append(errs, err)
	ended, spans, events := counter(semconv.TelemetrySpansEnded), counter(semconv.TelemetrySpans), counter(semconv.TelemetryEventsDropped)
	hiccups, pauses := counter(semconv.ProcessHiccups), counter(semconv.ProcessGCPauses)
	cpu, hiccupTime, throttled := seconds(semconv.ProcessCPUTime), seconds(semconv.ProcessHiccupTime), seconds(semconv.ProcessThrottledTime)
	hiccupMax, pauseMax := longest(semconv.ProcessHiccupMax), longest(semconv.ProcessGCPauseMax)
	if err := errors.Join(errs...); err != nil {
		return err
	}

	result := func(v string) metric.ObserveOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String(semconv.TelemetryResult, v)))
	}
	telemetry := func(o metric.Observer) {
		o.ObserveInt64(inFlight, p.inFlight.Load())
		if p.queue == nil {
			return
		}
		l := p.Loss()
		o.ObserveInt64(ended, l.Ended)
		o.ObserveInt64(spans, l.Accepted, result(semconv.ResultAccepted))
		for why, n := range l.Lost {
			o.ObserveInt64(spans, n, result(why))
		}
		o.ObserveInt64(events, l.EventsDropped)
	}
	machine := func(o metric.Observer, m observe.Machine) {
		o.ObserveInt64(hiccups, m.Hiccups)
		o.ObserveFloat64(hiccupTime, m.HiccupTime.Seconds())
		o.ObserveFloat64(hiccupMax, m.HiccupMax.Seconds())
		o.ObserveInt64(pauses, m.GCPauses)
		o.ObserveFloat64(pauseMax, m.GCPauseMax.Seconds())
		known := func(c metric.Float64Observable, ok bool, d time.Duration) {
			if ok {
				o.ObserveFloat64(c, d.Seconds())
			}
		}
		known(cpu, m.CPUKnown, m.CPU)
		known(throttled, m.ThrottleKnown, m.Throttled)
		if m.MaxRSS > 0 {
			o.ObserveInt64(memory, m.MaxRSS)
		}
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		telemetry(o)
		o.ObserveInt64(goroutines, int64(runtime.NumGoroutine()))
		if read := p.machine.Load(); read != nil {
			machine(o, (*read)())
		}
		return nil
	}, inFlight, goroutines, memory, ended, spans, events, hiccups, pauses, cpu, hiccupTime, throttled, hiccupMax, pauseMax)
	return err
}
