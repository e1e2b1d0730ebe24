// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// The counters of what is not in the journal: those of the exporter, and the receiver's.
const (
	droppedSpans = "otelcol_exporter_mooncake_dropped_spans"
	lostBytes    = "otelcol_exporter_mooncake_lost"
	refused      = "otelcol_receiver_mooncake_refused_requests"
	invalid      = "otelcol_exporter_mooncake_invalid_attributes"
	leftOut      = "otelcol_receiver_mooncake_dropped"
)

// requests is the unit of what the receiver refused. A request is a batch of telemetry.
const requests = "OTLP requests"

// AllRefused reports whether nothing came because the receiver refused all that was sent.
func AllRefused(seen Counts, lost []mooncake.Dropped) bool {
	return seen.Spans == 0 && slices.ContainsFunc(lost, func(d mooncake.Dropped) bool { return d.What == requests })
}

// Lost returns what arrived but is not in the journal: what the receiver refused or could not use, what the exporter dropped, by their own
// counts, and what the exporter refused. After [Collector.Stop] it is complete.
func (c *Collector) Lost() []mooncake.Dropped {
	var list []mooncake.Dropped
	var all metricdata.ResourceMetrics
	// An error comes from a callback unrelated to counters; the rest is complete.
	_ = c.metrics.Collect(context.Background(), &all)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok {
				continue
			}
			for _, point := range sum.DataPoints {
				reason, _ := point.Attributes.Value("reason")
				why := strings.ReplaceAll(reason.AsString(), "_", " ")
				switch m.Name {
				case lostBytes:
					list = append(list, mooncake.Dropped{What: "bytes", Reason: "the journal was removed or replaced while it was written", Count: point.Value})
				case droppedSpans:
					list = append(list, mooncake.Dropped{What: "spans", Reason: why, Count: point.Value})
				case invalid:
					name, _ := point.Attributes.Value("attribute")
					list = append(list, mooncake.Dropped{What: "values", Reason: decode.WhyInvalid(name.AsString()), Count: point.Value})
				case leftOut:
					if r := annotate.Reason(reason.AsString()); r != annotate.ReasonLogOther { // those have nothing to do with requests
						what, why := r.Words()
						list = append(list, mooncake.Dropped{What: what, Reason: why, Count: point.Value})
					}
				case refused:
					list = append(list, mooncake.Dropped{What: requests, Reason: "refused by the receiver: " + why, Count: point.Value})
				}
			}
		}
	}
	list = append(list, mooncake.Dropped{
		What: "spans", Reason: "refused while the journal could not be written; senders may have sent them again", Count: c.Counts().Refused,
	})
	slices.SortFunc(list, func(a, b mooncake.Dropped) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Reason, b.Reason))
	})
	return slices.DeleteFunc(list, func(d mooncake.Dropped) bool { return d.Count == 0 })
}
