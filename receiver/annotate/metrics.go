// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"iter"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Metrics cleans metrics in place, and adds and removes no data point. They have attributes like other telemetry, but do not stand for
// requests.
func (a *Annotator) Metrics(md pmetric.Metrics) Counts {
	w := a.worker()
	defer w.release()
	w.counts.Points = int64(md.DataPointCount())
	if w.keeps() {
		return w.counts
	}
	for _, resource := range md.ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				w.cleanMetric(metric)
			}
			w.cleanScope(scope)
		}
		w.cleanResource(resource)
	}
	return w.counts
}

func (w *worker) cleanMetric(metric pmetric.Metric) {
	w.bound(metric.Name(), maxName, metric.SetName, removedName, labelMetric)
	w.bound(metric.Description(), maxValue, metric.SetDescription, "", labelMetric)
	w.bound(metric.Unit(), maxName, metric.SetUnit, "", labelMetric)
	w.cleanAttributes(metric.Metadata(), manner{})
	switch metric.Type() {
	case pmetric.MetricTypeGauge:
		points(w, metric.Gauge().DataPoints().All())
	case pmetric.MetricTypeSum:
		points(w, metric.Sum().DataPoints().All())
	case pmetric.MetricTypeHistogram:
		points(w, metric.Histogram().DataPoints().All())
	case pmetric.MetricTypeExponentialHistogram:
		points(w, metric.ExponentialHistogram().DataPoints().All())
	case pmetric.MetricTypeSummary:
		for _, point := range metric.Summary().DataPoints().All() {
			w.cleanAttributes(point.Attributes(), manner{})
		}
	case pmetric.MetricTypeEmpty:
	}
}

// points cleans data points with exemplars.
func points[P interface {
	Attributes() pcommon.Map
	Exemplars() pmetric.ExemplarSlice
}](w *worker, all iter.Seq2[int, P]) {
	for _, point := range all {
		w.cleanAttributes(point.Attributes(), manner{})
		for _, exemplar := range point.Exemplars().All() {
			w.cleanAttributes(exemplar.FilteredAttributes(), manner{})
		}
	}
}
