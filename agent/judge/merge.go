// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"slices"
)

// Shard is the verdict of one of the processes of a run.
type Shard struct {
	Name    string
	Verdict Verdict
}

// Merge returns the verdict of a run of several processes: for each metric, it has the worst value of any process and of all processes
// together. Processes that have too little data each may have enough together: a metric is left unjudged only if the whole run has too
// little data for it.
func Merge(whole Verdict, shards []Shard) Verdict {
	out := Verdict{Reasons: slices.Clone(whole.Reasons), TooFew: whole.TooFew}
	for _, s := range shards {
		for _, r := range s.Verdict.Reasons {
			r.Shard = s.Name
			at := slices.IndexFunc(out.Reasons, func(o Reason) bool { return o.Metric == r.Metric })
			switch {
			case at < 0:
				out.Reasons = append(out.Reasons, r)
			case cmp.Or(cmp.Compare(r.Class, out.Reasons[at].Class), cmp.Compare(r.Value, out.Reasons[at].Value)) > 0:
				out.Reasons[at] = r
			}
		}
		for _, metric := range s.Verdict.Unknown {
			if !slices.Contains(out.Unknown, metric) {
				out.Unknown = append(out.Unknown, metric)
			}
		}
	}
	if slices.Contains(whole.Unknown, clocksMetric) {
		out.Unknown = append(out.Unknown, clocksMetric)
	}
	slices.SortStableFunc(out.Reasons, func(a, b Reason) int { return cmp.Compare(b.Class, a.Class) })
	for _, r := range out.Reasons {
		out.Class = max(out.Class, r.Class)
	}
	if len(out.TooFew) > 0 {
		out.Class = max(out.Class, Undecided)
	}
	return out
}

// clocksMetric is the metric that only a run of several processes has.
const clocksMetric = "shard_clocks"
