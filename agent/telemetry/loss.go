// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import "cmp"

// Loss counts a run's telemetry: how much there was, how much the receivers accepted, and why the rest was lost. After Shutdown, Ended =
// Accepted + Σ Lost.
type Loss struct {
	Ended    int64 // sampled spans that ended
	Accepted int64 // spans that a receiver accepted
	// Lost counts spans that no receiver has accepted, by reason (semconv.LostQueueFull, ...). A span whose acknowledgement was lost counts
	// as lost although the receiver may have it.
	Lost map[string]int64
	// Resent counts how often spans were sent again because no acknowledgement came. A receiver may have such a span more than once, with
	// the same ids; capture.Compile uses it once.
	Resent int64
	// Unended counts sampled spans that were started and never ended: requests without a record, sessions without a request that ended.
	Unended int64
	// SampledOut counts session and request spans that a sampler dropped, with their phases and events: the spans of the run are incomplete
	// although nothing was lost.
	SampledOut int64
	// EventsDropped counts token events that OTEL_SPAN_EVENT_COUNT_LIMIT cut off, AttributesDropped attributes that
	// OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT did.
	EventsDropped, AttributesDropped int64

	// MetricExports counts exports of metrics by OTLP, MetricFailures those that failed, including the last one at Shutdown.
	MetricExports, MetricFailures int64

	FirstError string // text of the first error of any kind, at most 700 bytes, without the values of headers
}

// Complete reports whether the receivers have every span of the run, with all its events and attributes.
func (l *Loss) Complete() bool {
	return l.Ended == l.Accepted && l.Unended == 0 && l.SampledOut == 0 && l.EventsDropped == 0 && l.AttributesDropped == 0
}

// note stores the first error.
func (l *Loss) note(err error) {
	if l.FirstError == "" && err != nil {
		l.FirstError = errorText(err)
	}
}

// Loss returns the counts so far. Spans that are still queued are neither accepted nor lost.
func (p *Pipeline) Loss() Loss {
	if p == nil {
		return Loss{}
	}
	started := p.started.Load() // read before the spans that ended: one that ends in between is not unended
	var l Loss
	if p.queue != nil {
		l = p.queue.account()
	}
	l.Unended = max(0, started-l.Ended)
	l.SampledOut, l.EventsDropped, l.AttributesDropped = p.sampledOut.Load(), p.eventsDropped.Load(), p.attributesDropped.Load()
	p.metricLoss.mu.Lock()
	defer p.metricLoss.mu.Unlock()
	of := &p.metricLoss.loss
	l.MetricExports, l.MetricFailures = of.MetricExports, of.MetricFailures
	l.FirstError = cmp.Or(p.resourceError, l.FirstError, of.FirstError)
	return l
}
