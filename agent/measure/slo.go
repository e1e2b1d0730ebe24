// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// SLO is a set of service level objectives: greatest values that a good request stays within. Zero means not asked.
// Latencies count from Start, as AIPerf and vLLM count them for their goodput.
type SLO struct {
	TTFT, TTST, ITL, TPOT, E2E time.Duration
}

// sloNames maps what people write to the objective: ours, vLLM's --goodput and AIPerf's tags.
var sloNames = map[string]func(*SLO) *time.Duration{
	"ttft":                  func(s *SLO) *time.Duration { return &s.TTFT },
	"time_to_first_token":   func(s *SLO) *time.Duration { return &s.TTFT },
	"ttst":                  func(s *SLO) *time.Duration { return &s.TTST },
	"time_to_second_token":  func(s *SLO) *time.Duration { return &s.TTST },
	"itl":                   func(s *SLO) *time.Duration { return &s.ITL },
	"inter_token_latency":   func(s *SLO) *time.Duration { return &s.ITL },
	"tpot":                  func(s *SLO) *time.Duration { return &s.TPOT },
	"time_per_output_token": func(s *SLO) *time.Duration { return &s.TPOT },
	"e2e":                   func(s *SLO) *time.Duration { return &s.E2E },
	"e2el":                  func(s *SLO) *time.Duration { return &s.E2E },
	"request_latency":       func(s *SLO) *time.Duration { return &s.E2E },
}

// ParseSLO reads objectives such as "ttft=500ms,itl=50ms", and the spellings of AIPerf and vLLM,
// "request_latency:250 inter_token_latency:10": pairs apart by commas or spaces, name and value by = or :, a bare
// number in milliseconds. An empty text is no objective. An error names the pair.
func ParseSLO(text string) (SLO, error) {
	var s SLO
	for _, pair := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' }) {
		name, value, ok := cut(pair)
		field := sloNames[strings.ToLower(name)]
		if !ok || field == nil {
			return SLO{}, fmt.Errorf("objective %q: want name=duration with a name of ttft, ttst, itl, tpot, e2e, for example ttft=500ms", pair)
		}
		d, err := parseMillis(value)
		if err != nil {
			return SLO{}, fmt.Errorf("objective %q: %w", pair, err)
		}
		if p := field(&s); *p == 0 {
			*p = d
		} else {
			return SLO{}, fmt.Errorf("objective %q: %s is given twice", pair, name)
		}
	}
	return s, nil
}

func cut(pair string) (name, value string, ok bool) {
	i := strings.IndexAny(pair, "=:")
	if i < 0 {
		return pair, "", false
	}
	return pair[:i], pair[i+1:], true
}

func parseMillis(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if ms, ferr := strconv.ParseFloat(text, 64); ferr == nil {
		if math.IsNaN(ms) || ms > float64(math.MaxInt64)/float64(time.Millisecond) {
			return 0, fmt.Errorf("%q is no duration", text)
		}
		d, err = time.Duration(ms*float64(time.Millisecond)), nil
	}
	if err != nil {
		return 0, fmt.Errorf("%q is no duration, want for example 500ms", text)
	}
	if d <= 0 {
		return 0, fmt.Errorf("%q is not above 0", text)
	}
	return d, nil
}

// Any reports whether there is an objective.
func (s SLO) Any() bool { return s != SLO{} }

// String writes the objectives as ParseSLO reads them.
func (s SLO) String() string {
	var b strings.Builder
	for _, o := range []struct {
		name string
		d    time.Duration
	}{{"ttft", s.TTFT}, {"ttst", s.TTST}, {"itl", s.ITL}, {"tpot", s.TPOT}, {"e2e", s.E2E}} {
		if o.d == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(o.name + "=" + o.d.String())
	}
	return b.String()
}

// MarshalText writes the objectives as String does.
func (s SLO) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Good reports whether the record meets every objective. It must have been served and sent once. A reply
// of one token has no inter-token figure and meets those objectives (vLLM's rule); one without a first token misses ttft.
func (s SLO) Good(r *Record) bool {
	if r.Outcome != Served || r.Resent() {
		return false
	}
	if d, ok := r.TTFT(r.Exchange.Start); s.TTFT > 0 && (!ok || d > s.TTFT) {
		return false
	}
	if d, ok := r.Latency(r.Exchange.Start); s.E2E > 0 && (!ok || d > s.E2E) {
		return false
	}
	if d, ok := r.TTST(); s.TTST > 0 && ok && d > s.TTST {
		return false
	}
	if d, ok := r.ITL(); s.ITL > 0 && ok && d > s.ITL {
		return false
	}
	d, ok := r.TPOT()
	return s.TPOT == 0 || !ok || d <= s.TPOT
}
