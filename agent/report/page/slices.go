// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import "time"

// SeriesFile is the name of the file with the figures over time in the folder of a run: a line for each slice of the run, from its start
// on.
const SeriesFile = "series.csv"

// DefaultSlice is the default length of a slice. In a run of more than maxSlices, slices are longer; each line states the length of its
// slice.
const (
	DefaultSlice = time.Second
	maxSlices    = 100_000
)

// slice is a slice of a run.
type slice struct {
	bin
	start, width float64 // s
	inFlight     int64   // at its end
}

// sliceColumns are the columns of the file. A request counts as due, sent and finished in the slice of that event. Its time to first token,
// its prompt and its cached tokens belong to the slice of its start, its inter-token latency to that of its last token, its lateness to
// that of its dispatch, and output tokens to those in which their chunks arrived. As in the summary, tokens are those of requests that were
// served, and latencies those of requests that were also sent only once. Those cancelled, or disconnected on purpose, have not failed. Output
// tokens leave out replies whose number of tokens is not known; they are empty if no other reply arrived in the slice.
var sliceColumns = []column[*slice]{
	{"start_s", func(s *slice) any { return decimals(s.start) }},
	{"length_s", func(s *slice) any { return decimals(s.width) }},
	{"due", func(s *slice) any { return s.intended }},
	{"sent", func(s *slice) any { return s.sent }},
	{"finished", func(s *slice) any { return s.finished }},
	{"failed", func(s *slice) any { return s.failed }},
	{"in_flight", func(s *slice) any { return s.inFlight }},
	{"input_tokens", func(s *slice) any { return s.input }},
	{"output_tokens", func(s *slice) any { return knownTokens(s.tokens, s.uncounted) }},
	{"output_tokens_per_s", func(s *slice) any {
		if s.tokens == 0 && s.uncounted > 0 {
			return (*float64)(nil)
		}
		return decimals(float64(s.tokens) / s.width)
	}},
	{"ttft_ms_p50", func(s *slice) any { return quantileOf(s.ttft, 0.5) }},
	{"ttft_ms_p90", func(s *slice) any { return quantileOf(s.ttft, 0.9) }},
	{"ttft_ms_p99", func(s *slice) any { return quantileOf(s.ttft, 0.99) }},
	{"itl_ms_p50", func(s *slice) any { return quantileOf(s.itl, 0.5) }},
	{"itl_ms_p90", func(s *slice) any { return quantileOf(s.itl, 0.9) }},
	{"itl_ms_p99", func(s *slice) any { return quantileOf(s.itl, 0.99) }},
	{"lateness_ms_p50", func(s *slice) any { return quantileOf(s.late, 0.5) }},
	{"lateness_ms_max", func(s *slice) any { return quantileOf(s.late, 1) }},
	{"cached_pct", func(s *slice) any { return shareOf(s.cached, s.cachedOf) }},
	{"predicted_cached_pct", func(s *slice) any { return shareOf(s.predicted, s.predictedOf) }},
}

// Series returns the figures over time.
func (r *Run) Series() *Sheet {
	width := r.slices.width / 1000
	rows, inFlight := make([]*slice, len(r.slices.bins)), int64(0)
	for i, b := range r.slices.bins {
		inFlight += b.sent - b.finished
		rows[i] = &slice{b, float64(i) * width, width, inFlight}
	}
	return newSheet(sliceColumns, rows)
}

// knownTokens returns a number of output tokens; nil if it is not known of any reply.
func knownTokens(n, uncounted int64) any {
	if n == 0 && uncounted > 0 {
		return (*float64)(nil)
	}
	return n
}
