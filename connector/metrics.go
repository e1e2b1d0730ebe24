// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/moonloop/moonloop/connector/internal/metadata"
	"github.com/moonloop/moonloop/mooncake/stats"
	"github.com/moonloop/moonloop/semconv"
)

// allResults are reported even while they are 0, so that a rate can be queried before the first such request.
var allResults = []string{resultAnalysed, resultDuplicate, resultFailed, resultNoTokens, resultNoPrompt, resultStreams, resultReplay}

// allIgnored are likewise reported.
var allIgnored = []string{ignoredOther, ignoredNoTraceID, ignoredNoSpanID, ignoredPrompt}

// book fills a scope of metrics: one metric for each name, one point for each call.
type book struct {
	metrics       pmetric.MetricSlice
	byName        map[string]pmetric.Metric
	started, asOf pcommon.Timestamp
}

func (b *book) metric(m *semconv.Metric) (pmetric.Metric, bool) {
	have, ok := b.byName[m.Name]
	if !ok {
		have = b.metrics.AppendEmpty()
		have.SetName(m.Name)
		have.SetUnit(m.Unit)
		have.SetDescription(m.Description)
		b.byName[m.Name] = have
	}
	return have, ok
}

// gauge adds a point; an unknown value adds none.
func (b *book) gauge(m *semconv.Metric, v float64, s *stream, more ...string) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	metric, ok := b.metric(m)
	if !ok {
		metric.SetEmptyGauge()
	}
	p := metric.Gauge().DataPoints().AppendEmpty()
	p.SetDoubleValue(v)
	b.point(p, s, more)
}

// sum adds a point of a counter since the start.
func (b *book) sum(m *semconv.Metric, v int64, s *stream, more ...string) {
	metric, ok := b.metric(m)
	if !ok {
		sum := metric.SetEmptySum()
		sum.SetIsMonotonic(true)
		sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	}
	p := metric.Sum().DataPoints().AppendEmpty()
	p.SetIntValue(v)
	b.point(p, s, more)
}

// point completes a point: times, the stream's attributes, and further ones as name, value, name, value.
func (b *book) point(p pmetric.NumberDataPoint, s *stream, more []string) {
	p.SetStartTimestamp(b.started)
	p.SetTimestamp(b.asOf)
	if s != nil {
		p.SetStartTimestamp(s.started)
		p.Attributes().PutStr(semconv.GenAIRequestModel, s.model)
		if s.tenant != "" {
			p.Attributes().PutStr(semconv.CacheTenant, s.tenant)
		}
	}
	for i := 0; i < len(more); i += 2 {
		p.Attributes().PutStr(more[i], more[i+1])
	}
}

// metrics returns all metrics at a time, removes streams that have expired, and lets estimators forget old blocks.
func (c *cacheConnector) metrics(now time.Time) pmetric.Metrics {
	all := pmetric.NewMetrics()
	c.giveUp(now.Add(-joinWithin))
	c.expire(now.Add(-c.config.Retention))
	if len(c.order) == 0 && len(c.rest) == 0 && len(c.ignored) == 0 && c.expired == 0 {
		return all
	}
	scope := all.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
	scope.Scope().SetName(metadata.ScopeName)
	b := &book{metrics: scope.Metrics(), byName: map[string]pmetric.Metric{}, started: c.started, asOf: pcommon.NewTimestampFromTime(now)}
	for _, s := range c.order {
		s.reuse.Forget(now.Add(-c.config.Retention).UnixNano())
		c.report(b, s, s.recent(now, c.config.Window))
	}
	for _, result := range allResults {
		if n := c.rest[result]; n > 0 {
			b.sum(&semconv.CachePotentialRequests, n, nil, semconv.CacheRequestResult, result)
		}
	}
	for _, reason := range allIgnored {
		b.sum(&semconv.CachePotentialIgnored, c.ignored[reason], nil, semconv.CacheRequestResult, reason)
	}
	b.sum(&semconv.CachePotentialExpired, c.expired, nil)
	return all
}

// report adds the metrics of a stream.
func (c *cacheConnector) report(b *book, s *stream, hits stats.Hits) {
	if hits.Sampled() {
		c.reportHits(b, s, hits)
	}
	if set := s.reuse.WorkingSet(); s.reuse.Blocks() > 0 || hits.Sampled() {
		b.gauge(&semconv.CachePotentialWorkingSet, set, s)
		if s.kvBytes > 0 {
			b.gauge(&semconv.CachePotentialWorkingSetSize, set*float64(s.kvBytes), s)
		}
	}
	b.sum(&semconv.CachePotentialPromptTokens, s.promptTokens, s)
	b.sum(&semconv.CachePotentialReportedTokens, s.reportedTokens, s)
	b.sum(&semconv.CachePotentialReportedOf, s.reportedOf, s)
	for _, result := range allResults {
		b.sum(&semconv.CachePotentialRequests, s.results[result], s, semconv.CacheRequestResult, result)
	}
	b.gauge(&semconv.CachePotentialSamplingRatio, s.reuse.Rate(), s)
	b.gauge(&semconv.CachePotentialBlocks, float64(s.reuse.Blocks()), s)
	for _, p := range s.reuse.Prefixes(c.config.TopPrefixes) {
		id := fmt.Sprintf("%016x", p.ID)
		b.gauge(&semconv.CachePotentialPrefixRequests, float64(p.References), s, semconv.CachePrefix, id)
		b.gauge(&semconv.CachePotentialPrefixTokens, p.Tokens, s, semconv.CachePrefix, id)
	}
}

// reportHits adds the figures of hits. A missing figure is better than a wrong one.
func (c *cacheConnector) reportHits(b *book, s *stream, hits stats.Hits) {
	for _, capacity := range c.config.Capacities {
		if !s.reuse.Resolves(float64(capacity)) {
			continue
		}
		b.gauge(&semconv.CachePotentialHitRatio, hits.Rate(float64(capacity)), s, semconv.CacheCapacity, strconv.FormatInt(capacity, 10))
	}
	b.gauge(&semconv.CachePotentialHitRatio, hits.Rate(math.Inf(1)), s, semconv.CacheCapacity, infinite)
	knee := hits.Knee(stats.KneeShare)
	b.gauge(&semconv.CachePotentialKnee, knee, s)
	if s.kvBytes > 0 {
		b.gauge(&semconv.CachePotentialKneeSize, knee*float64(s.kvBytes), s)
	}
}
