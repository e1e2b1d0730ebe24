// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/moonloop/moonloop/mooncake"
)

// The exporter's counters of what is not in the journal.
const (
	droppedSpans = "otelcol_exporter_mooncake_dropped_spans"
	lostBytes    = "otelcol_exporter_mooncake_lost"
)

// Lost returns what arrived but is not in the journal: what the exporter dropped, by its own count, and what it refused. After
// [Collector.Stop] it is complete.
func (c *Collector) Lost() []mooncake.Dropped {
	var list []mooncake.Dropped
	var all metricdata.ResourceMetrics
	// An error comes from a callback unrelated to counters; the rest is complete.
	_ = c.metrics.Collect(context.Background(), &all)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != droppedSpans && m.Name != lostBytes {
				continue
			}
			for _, point := range sum.DataPoints {
				d := mooncake.Dropped{What: "bytes", Reason: "the journal was removed or replaced while it was written", Count: point.Value}
				if reason, ok := point.Attributes.Value("reason"); ok {
					d.What, d.Reason = "spans", strings.ReplaceAll(reason.AsString(), "_", " ")
				}
				list = append(list, d)
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
