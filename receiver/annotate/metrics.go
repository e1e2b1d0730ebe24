// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"iter"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Metrics cleans metrics in place, and adds and takes away no data point. They hold attributes like other telemetry;
// nothing in them stands for a request.
func (a *Annotator) Metrics(md pmetric.Metrics) Counts {
	counts := Counts{Points: int64(md.DataPointCount())}
	if a.config.Content == ContentKeep {
		return counts
	}
	c := cleaner{rules: a.rules, counts: &counts, twin: a.config.Key.Session}
	for _, resource := range md.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				c.metric(metric)
			}
			c.scope(scope.Scope())
			c.schema(scope)
		}
		c.resource(resource.Resource())
		c.schema(resource)
	}
	return counts
}

// metric cleans a metric.
func (c *cleaner) metric(metric pmetric.Metric) {
	if len(metric.Name()) > maxName {
		metric.SetName(removedName)
		c.removed(labelMetric)
	}
	if len(metric.Description()) > maxValue {
		metric.SetDescription("")
		c.removed(labelMetric)
	}
	if len(metric.Unit()) > maxName {
		metric.SetUnit("")
		c.removed(labelMetric)
	}
	c.attributes(metric.Metadata(), 0)
	switch metric.Type() {
	case pmetric.MetricTypeGauge:
		points(c, metric.Gauge().DataPoints().All())
	case pmetric.MetricTypeSum:
		points(c, metric.Sum().DataPoints().All())
	case pmetric.MetricTypeHistogram:
		points(c, metric.Histogram().DataPoints().All())
	case pmetric.MetricTypeExponentialHistogram:
		points(c, metric.ExponentialHistogram().DataPoints().All())
	case pmetric.MetricTypeSummary:
		for _, point := range metric.Summary().DataPoints().All() {
			c.attributes(point.Attributes(), 0)
		}
	case pmetric.MetricTypeEmpty:
	}
}

// points cleans data points with examples.
func points[P interface {
	Attributes() pcommon.Map
	Exemplars() pmetric.ExemplarSlice
}](c *cleaner, all iter.Seq2[int, P]) {
	for _, point := range all {
		c.attributes(point.Attributes(), 0)
		for _, exemplar := range point.Exemplars().All() {
			c.attributes(exemplar.FilteredAttributes(), 0)
		}
	}
}
