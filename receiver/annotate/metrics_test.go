// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/moonloop/moonloop/receiver/annotate"
)

// allMetrics has one metric of each type, with one data point and one exemplar if possible. put fills their attributes.
func allMetrics(put func(pcommon.Map)) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	put(rm.Resource().Attributes())
	sm := rm.ScopeMetrics().AppendEmpty()
	put(sm.Scope().Attributes())
	list := sm.Metrics()
	for _, name := range []string{"gauge", "sum", "histogram", "exponential", "summary", "empty"} {
		metric := list.AppendEmpty()
		metric.SetName(name)
		metric.SetDescription("of a test")
		metric.SetUnit("1")
		put(metric.Metadata())
	}
	number := func(p pmetric.NumberDataPoint) {
		p.SetIntValue(1)
		put(p.Attributes())
		put(p.Exemplars().AppendEmpty().FilteredAttributes())
	}
	number(list.At(0).SetEmptyGauge().DataPoints().AppendEmpty())
	number(list.At(1).SetEmptySum().DataPoints().AppendEmpty())
	histogram := list.At(2).SetEmptyHistogram().DataPoints().AppendEmpty()
	put(histogram.Attributes())
	put(histogram.Exemplars().AppendEmpty().FilteredAttributes())
	exponential := list.At(3).SetEmptyExponentialHistogram().DataPoints().AppendEmpty()
	put(exponential.Attributes())
	put(exponential.Exemplars().AppendEmpty().FilteredAttributes())
	put(list.At(4).SetEmptySummary().DataPoints().AppendEmpty().Attributes())
	return md
}

func metricBytes(t testing.TB, md pmetric.Metrics) string {
	t.Helper()
	text, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(md)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMetrics: no text leaves in a metric, and everything else passes.
func TestMetrics(t *testing.T) {
	harmless := func(m pcommon.Map) {
		m.PutStr("gen_ai.request.model", "llama")
		m.PutStr("http.route", "/api")
		m.PutStr("error.type", "timeout")
		m.PutInt("http.response.status_code", 200)
	}
	md := allMetrics(func(m pcommon.Map) {
		harmless(m)
		fill(m, strings.Repeat(longSecret, 4))
		m.PutStr("gen_ai.request.model", "llama")
		m.PutStr("error.type", "timeout")
		m.Remove("exception.type")
		m.Remove("gen_ai.response.finish_reasons")
		m.Remove("url.full")
		m.Remove("url.path")
	})
	counts := newAnnotator(t, annotate.Config{}).Metrics(md)
	if counts.Points != 5 {
		t.Errorf("%d data points", counts.Points)
	}
	if diff := cmp.Diff(metricBytes(t, allMetrics(harmless)), metricBytes(t, md)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if again := newAnnotator(t, annotate.Config{}).Metrics(md); len(again.Removed) > 0 {
		t.Errorf("a second receiver removes %v", again.Removed)
	}

	named := allMetrics(func(m pcommon.Map) { m.PutStr("url.full", "https://shop/?q="+secret) })
	for _, metric := range named.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		metric.SetName(strings.Repeat(secret, 11))
		metric.SetDescription(strings.Repeat(secret, 43))
		metric.SetUnit(strings.Repeat(secret, 11))
	}
	kept := newAnnotator(t, annotate.Config{Content: annotate.ContentKeep}).Metrics(named)
	if len(kept.Removed) > 0 || strings.Count(metricBytes(t, named), secret) < 100 {
		t.Errorf("text was removed: %v", kept.Removed)
	}
	counts = newAnnotator(t, annotate.Config{Deny: []string{"tenant"}}).Metrics(named)
	if text := metricBytes(t, named); strings.Contains(text, secret[:16]) || counts.Removed["(metric)"] != 18 || counts.Removed["url.full"] != 17 {
		t.Errorf("removed %v of %s", counts.Removed, text)
	}
}

// TestMetricsAllocate: a batch without text to remove costs a few allocations, and none for each data point. The batch costs two. The
// bound is higher because the race detector lets pools forget their contents, which costs up to 17 more each time.
func TestMetricsAllocate(t *testing.T) {
	a := newAnnotator(t, annotate.Config{})
	md := allMetrics(func(m pcommon.Map) { m.PutStr("http.route", "/api"); m.PutStr("shop.cart", "apples") })
	points := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints()
	for range 1000 {
		points.At(0).CopyTo(points.AppendEmpty())
	}
	if n := testing.AllocsPerRun(10, func() { a.Metrics(md) }); n > float64(points.Len())/2 {
		t.Errorf("%v allocations for %d data points", n, points.Len())
	}
}
