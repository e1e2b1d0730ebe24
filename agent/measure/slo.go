// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SLO is a set of service level objectives: maximum values for a good request. Zero means no objective. Latencies count from Start, as in
// the goodput of AIPerf and vLLM.
type SLO struct {
	TTFT, TTST, ITL, TPOT, E2E, TTFO, Decode time.Duration
}

// objectives are the possible objectives, each with its names: ours, then those of vLLM's --goodput, and AIPerf's tags.
var objectives = []struct {
	names []string
	limit func(*SLO) *time.Duration
	of    span
	must  bool // a reply without the figure misses the objective; if must is false, it meets the objective
	// sofar is the least value that the figure can still have for a request that was stopped; nil: any, because later tokens lower a mean.
	sofar span
}{
	{[]string{"ttft", "time_to_first_token"}, func(s *SLO) *time.Duration { return &s.TTFT }, from(start, (*Record).TTFT), true, orWaited(from(start, (*Record).TTFT))},
	{[]string{"ttst", "time_to_second_token"}, func(s *SLO) *time.Duration { return &s.TTST }, (*Record).TTST, false, (*Record).TTST},
	{[]string{"itl", "inter_token_latency"}, func(s *SLO) *time.Duration { return &s.ITL }, (*Record).ITL, false, nil},
	{[]string{"tpot", "time_per_output_token"}, func(s *SLO) *time.Duration { return &s.TPOT }, (*Record).TPOT, false, nil},
	{[]string{"e2e", "e2el", "request_latency"}, func(s *SLO) *time.Duration { return &s.E2E }, from(start, (*Record).Latency), true, (*Record).waited},
	{[]string{"ttfo", "time_to_first_output_token"}, func(s *SLO) *time.Duration { return &s.TTFO }, (*Record).TTFO, true, orWaited((*Record).TTFO)},
	{[]string{"decode", "decode_duration"}, func(s *SLO) *time.Duration { return &s.Decode }, (*Record).DecodeDuration, false, (*Record).DecodeDuration},
}

// objective returns the field of an SLO for the objective with a name, or nil.
func (s *SLO) objective(name string) *time.Duration {
	for _, o := range objectives {
		if slices.Contains(o.names, strings.ToLower(name)) {
			return o.limit(s)
		}
	}
	return nil
}

// ParseSLO reads objectives such as "ttft=500ms,itl=50ms", and the spellings of AIPerf and vLLM, "request_latency:250
// inter_token_latency:10": pairs separated by commas or spaces, name and value separated by = or :, a bare number in milliseconds. An empty
// text has no objectives. An error names the pair.
func ParseSLO(text string) (SLO, error) {
	var s SLO
	for _, pair := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' }) {
		at := max(0, strings.IndexAny(pair, "=:"))
		name, limit := pair[:at], s.objective(pair[:at])
		if limit == nil {
			return SLO{}, fmt.Errorf("objective %q: want name=duration, where name is ttft, ttst, itl, tpot, e2e, ttfo or decode, for example ttft=500ms", pair)
		}
		d, err := parseMillis(pair[at+1:])
		if err != nil {
			return SLO{}, fmt.Errorf("objective %q: %w", pair, err)
		}
		if *limit != 0 {
			return SLO{}, fmt.Errorf("objective %q: %s is given twice: give it once", pair, name)
		}
		*limit = d
	}
	return s, nil
}

func parseMillis(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if ms, ferr := strconv.ParseFloat(text, 64); ferr == nil && ms <= float64(math.MaxInt64)/float64(time.Millisecond) { // no NaN
		d, err = time.Duration(ms*float64(time.Millisecond)), nil
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: want one such as 500ms", text)
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is not above 0", text)
	}
	return d, nil
}

// Any reports whether there is an objective.
func (s SLO) Any() bool { return s != SLO{} }

// String returns the objectives in the form that ParseSLO reads.
func (s SLO) String() string {
	var parts []string
	for _, o := range objectives {
		if d := *o.limit(&s); d != 0 {
			parts = append(parts, o.names[0]+"="+d.String())
		}
	}
	return strings.Join(parts, ",")
}

// Good reports whether the record meets every objective. It must have been served at the first attempt. A reply of one token has no inter-token
// figure and meets the objectives for such figures (vLLM's rule); a reply without a first token misses ttft.
func (s *SLO) Good(r *Record) bool {
	if r.Outcome != Served || r.Retried() {
		return false
	}
	for _, o := range objectives {
		if limit := *o.limit(s); limit > 0 {
			if d, ok := o.of(r); d > limit || !ok && o.must {
				return false
			}
		}
	}
	return true
}

// Missed reports whether a request that was stopped had missed an objective by then, for example because its first token was overdue, so
// that no further reply could have made it good. If it had not, it is not known whether it would have been good.
func (s *SLO) Missed(r *Record) bool {
	if r.Outcome != Cancelled || !r.Sent {
		return false
	}
	for _, o := range objectives {
		if limit := *o.limit(s); limit > 0 && o.sofar != nil {
			if d, ok := o.sofar(r); ok && d > limit {
				return true
			}
		}
	}
	return s.Any() && r.Retried()
}

// Judges reports whether it is known if a record meets the objectives: [Rows.Judged] counts these.
func (s *SLO) Judges(r *Record) bool {
	return r.Outcome == Served || r.Outcome == Failed || s.Missed(r)
}

// waited returns the time from the start of a request to its end, whatever had come by then.
func (r *Record) waited() (time.Duration, bool) { return between(r.Exchange.Start, r.Exchange.End) }

// orWaited returns a span that is the time waited so far while the reply lacks what the figure needs.
func orWaited(of span) span {
	return func(r *Record) (time.Duration, bool) {
		if d, ok := of(r); ok {
			return d, true
		}
		return r.waited()
	}
}
