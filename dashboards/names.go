// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/moonloop/moonloop/semconv"
	"github.com/prometheus/otlptranslator"
)

// series returns Prometheus' name of a metric, as its OTLP receiver and the Collector's exporter spell it.
func series(m semconv.Metric, of otlptranslator.MetricType) string {
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	name, err := namer.Build(otlptranslator.Metric{Name: m.Name, Unit: m.Unit, Type: of})
	if err != nil {
		panic(fmt.Sprintf("%s has no name in Prometheus: %v", m.Name, err)) // never happens: metrics are constants
	}
	return name
}

func counter(m semconv.Metric) string { return series(m, otlptranslator.MetricTypeMonotonicCounter) }
func gauge(m semconv.Metric) string   { return series(m, otlptranslator.MetricTypeGauge) }
func upDown(m semconv.Metric) string  { return series(m, otlptranslator.MetricTypeNonMonotonicCounter) }

func histogram(m semconv.Metric) string {
	return series(m, otlptranslator.MetricTypeExponentialHistogram)
}

// classic returns the name of a histogram with explicit buckets, like the Collector's own histograms.
func classic(m semconv.Metric) string {
	return series(m, otlptranslator.MetricTypeHistogram) + "_bucket"
}

// label returns Prometheus' name of an attribute.
func label(attribute string) string { return strings.ReplaceAll(attribute, ".", "_") }

// runs selects the runs that the user chose.
var runs = label(semconv.RunID) + `=~"$run"`

// of selects series of the chosen runs; more selectors may follow.
func of(name string, more ...string) string {
	return name + "{" + strings.Join(append([]string{runs}, more...), ", ") + "}"
}

// latency is the histogram of request latencies of the chosen runs. Requests that failed or were disconnected on purpose have no latency, and
// would make the engine look fast.
var latency = of(histogram(semconv.ClientOperationDuration), label(semconv.Outcome)+`="served"`)

// judged selects what the report's share of failed requests is a share of: requests that were served or failed.
var judged = label(semconv.Outcome) + `=~"served|failed"`

// rate returns the rate per second of a series, over the interval that suits the chart.
func rate(selector string) string { return "rate(" + selector + "[$__rate_interval])" }

// quantile reads a native histogram; by are the labels to group by.
func quantile(q float64, selector string, by ...string) string {
	return fmt.Sprintf("histogram_quantile(%v, sum%s (%s))", q, grouping(by), rate(selector))
}

// classicQuantile reads a histogram with explicit buckets.
func classicQuantile(q float64, selector string, by ...string) string {
	return fmt.Sprintf("histogram_quantile(%v, sum%s (%s))", q, grouping(append(by, "le")), rate(selector))
}

func sum(expr string, by ...string) string { return "sum" + grouping(by) + " (" + expr + ")" }

func grouping(by []string) string {
	if len(by) == 0 {
		return ""
	}
	return " by (" + strings.Join(by, ", ") + ")"
}
