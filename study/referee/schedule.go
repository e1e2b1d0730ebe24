// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// Schedule is what a generator was asked to send: the rows of a trace at their times, or requests at a rate.
type Schedule struct {
	Name string // for people
	rows []due  // by time; empty for a rate
	// Rate is the number of requests per second, for a schedule without rows.
	Rate float64
	// Count is the requested number of requests; 0 is unknown.
	Count int
	// Random says that the requests come at random times, as a Poisson process, so that none can be late.
	Random bool
}

// due is a request of the schedule.
type due struct {
	at     float64 // ms, from any zero
	output int64   // tokens of the reply; -1 is unknown
	after  []int   // rows whose replies it waits for
	wait   float64 // ms from the end of the last of these replies, of a row with wait_for
	graph  bool    // it has wait_for
}

// untimed reports whether the ends of replies alone determine when a row is due.
func (d due) untimed() bool { return d.graph && len(d.after) > 0 }

// Asked is the parsed task: a rate, or the name of a trace.
type Asked struct {
	Rate  *Schedule // nil: a trace
	Trace string
}

// rateForm is how a rate is written.
const rateForm = "rate=R, rate=R,count=N or rate=R,arrival=poisson, such as rate=1000,count=30000"

// ParseAsked reads rate=R[,count=N][,arrival=constant|poisson], or else the name of a trace.
func ParseAsked(text string) (a Asked, err error) {
	if !strings.HasPrefix(text, "rate=") {
		return Asked{Trace: text}, nil
	}
	s := &Schedule{Name: text}
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		wrong := fmt.Errorf("%q: must be %s", pair, rateForm)
		switch name {
		case "rate":
			if s.Rate, err = strconv.ParseFloat(value, 64); err != nil || !(s.Rate >= 1e-6 && s.Rate <= 1e6) {
				return a, fmt.Errorf("%q: the rate must be from 0.000001 to 1000000 requests per second", pair)
			}
		case "count":
			if s.Count, err = strconv.Atoi(value); err != nil || s.Count < 1 || s.Count > MaxRequests {
				return a, fmt.Errorf("%q: the count must be from 1 to %d requests", pair, MaxRequests)
			}
		case "arrival":
			if value != "constant" && value != "poisson" {
				return a, wrong
			}
			s.Random = value == "poisson"
		default:
			return a, wrong
		}
	}
	return Asked{Rate: s}, nil
}

// ReadSchedule reads the rows of a trace until io.EOF. speedup divides their times. A later turn of a session waits for the reply to the turn
// before, and a row with wait_for for the replies to these rows, as in a replay. Errors name the trace, as those of a [mooncake.Trace] do.
func ReadSchedule(name string, speedup float64, read func() (*mooncake.Row, error)) (*Schedule, error) {
	s := &Schedule{Name: name}
	turn, named := map[string]int{}, map[string]int{} // the last row of each session, and with each request_id
	for {
		row, err := read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch at := row.Timestamp; {
		case !at.Set:
			return nil, fmt.Errorf("%s: row %d has no timestamp, so it is unknown when it was due: judge a trace whose rows all have one, or a rate", name, len(s.rows))
		case len(s.rows) == MaxRequests:
			return nil, fmt.Errorf("%s: it has more than %d rows: judge a part of it, which `moonloop transform` cuts out", name, MaxRequests)
		default:
			n, d := len(s.rows), due{at: at.V / speedup, output: row.OutputLength.Or(-1), graph: row.WaitFor != nil}
			for _, id := range row.WaitFor {
				if before, ok := named[id]; ok {
					d.after = append(d.after, before)
				}
			}
			if d.graph {
				d.wait = (row.Delay.V + row.ToolWait.V) / speedup
			} else if before, ok := turn[row.SessionID]; ok {
				d.after = []int{before}
			}
			if row.SessionID != "" {
				turn[row.SessionID] = n
			}
			if row.RequestID != "" {
				named[row.RequestID] = n
			}
			s.rows = append(s.rows, d)
		}
	}
	if len(s.rows) == 0 {
		return nil, fmt.Errorf("%s: it has no rows: name another trace", name)
	}
	order, place := make([]int, len(s.rows)), make([]int, len(s.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.rows[a].at, s.rows[b].at) })
	sorted := make([]due, len(s.rows))
	for i, k := range order {
		sorted[i], place[k] = s.rows[k], i
	}
	for i := range sorted {
		for k, before := range sorted[i].after {
			sorted[i].after[k] = place[before]
		}
	}
	s.rows = sorted
	s.Count = len(s.rows)
	return s, nil
}

// expected returns the rows of the schedule. For a rate, it makes Count rows, or n rows if Count is unknown.
func (s *Schedule) expected(n int) []due {
	if s.rows != nil {
		return s.rows
	}
	if s.Count > 0 {
		n = s.Count
	}
	rows := make([]due, n)
	for i, at := range Even(n, s.Rate) {
		rows[i] = due{at: at, output: -1}
	}
	return rows
}

// rate returns the requested number of requests per second; NaN if all were due at once.
func (s *Schedule) rate() float64 {
	if s.rows == nil {
		return s.Rate
	}
	n := len(s.rows)
	if span := s.rows[n-1].at - s.rows[0].at; span > 0 {
		return 1e3 * float64(n-1) / span
	}
	return math.NaN()
}
