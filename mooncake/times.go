// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file recognises the kind of a trace's timestamps, and converts them to milliseconds, and milliseconds to durations.

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// stamp is a kind of timestamp. All timestamps of a trace have one kind.
type stamp uint8

const (
	stampNone  stamp = iota // no timestamp yet
	stampGiven              // numbers in a given unit
	stampSmall              // milliseconds from any zero, below 10^12
	stampS                  // seconds since 1970, and so on
	stampMS
	stampUS
	stampNS
	stampZoned // dates with a zone
	stampLocal // dates without one, which are UTC
)

// stamps describes the kinds, and which of them are worth a notice.
var stamps = [...]struct {
	what   string
	unit   time.Duration
	notice string
}{
	stampGiven: {"a number", 0, ""},
	stampSmall: {"milliseconds from the start", time.Millisecond, ""},
	stampS:     {"seconds since 1970", time.Second, "so large that they must be seconds since 1970, and are read in this unit (--time-unit sets another)"},
	stampMS:    {"milliseconds since 1970", time.Millisecond, ""},
	stampUS:    {"microseconds since 1970", time.Microsecond, "so large that they must be microseconds since 1970, and are read in this unit (--time-unit sets another)"},
	stampNS:    {"nanoseconds since 1970", time.Nanosecond, "so large that they must be nanoseconds since 1970, and are read in this unit (--time-unit sets another)"},
	stampZoned: {"a date with a zone", 0, "dates, and read as milliseconds since 1970"},
	stampLocal: {"a date without a zone", 0, "dates without a zone, and read as milliseconds since 1970 in UTC"},
}

// The first timestamp of a trace is in seconds since 1970 if it is a time from 2008 to 2039. As milliseconds from a start, it would be on
// day 14 to 25.
const (
	firstSecond = 1.2e9
	lastSecond  = 2.2e9
)

// stampOf returns the kind of a number, given the kind of the timestamps before. From 10^12 on, the ranges of the units do not overlap:
// each begins in 2001 (milliseconds) or 1973 (smaller units), and ends in 5138.
func stampOf(v float64, before stamp) stamp {
	switch second := v >= firstSecond && v < lastSecond; {
	case before == stampGiven:
		return stampGiven
	case second && (before == stampNone || before == stampS):
		return stampS
	case v < 1e12:
		return stampSmall
	case v < 1e14:
		return stampMS
	case v < 1e17:
		return stampUS
	}
	return stampNS
}

// timestamp reads the timestamp of a row: a number, or a text with date and time.
func (p *parser) timestamp(to *Opt[float64]) *RowError {
	v, err := p.dec.ReadValue()
	if err != nil {
		return p.syntax(err)
	}
	var ms float64
	switch k := v.Kind(); {
	case k == 'n':
		return nil
	case to.Set:
		return givenTwice("timestamp")
	case k == '"':
		text, _ := jsontext.AppendUnquote(nil, v)
		at, kind := parseDate(string(text))
		if kind == stampNone {
			return fault("timestamp", kindNames[k], "must be a number, or a date with a time", dateAdvice(string(text)))
		}
		ms, p.stamp = millisOf(at), kind
	case k == '0':
		if ms, err = strconv.ParseFloat(string(v), 64); err != nil {
			return notFinite("timestamp", v)
		}
		p.stamp = stampOf(ms, p.stamps)
		unit := stamps[p.stamp].unit
		if p.stamp == stampGiven {
			unit = p.unit
		}
		ms = inMillis(v, ms, unit)
	default:
		return fault("timestamp", kindNames[k], "must be a number, or a date with a time", correctOrOmit)
	}
	if given := p.stamps == stampGiven && p.stamp != stampGiven; p.stamp != p.stamps && p.stamps != stampNone && !given {
		return fault("timestamp", "", "is "+stamps[p.stamp].what+", and those of the rows before are "+stamps[p.stamps].what,
			"write all of them in one way; if they are numbers in one unit, say which with --time-unit")
	}
	*to = Some(ms)
	return nil
}

// inMillis converts a number with a unit to milliseconds. It scales the text, not the number, because that would round twice.
func inMillis(text []byte, v float64, unit time.Duration) float64 {
	exponent := map[time.Duration]string{time.Second: "e3", time.Microsecond: "e-3", time.Nanosecond: "e-6"}[unit]
	switch {
	case exponent == "":
		return v
	case bytes.ContainsAny(text, "eE"):
		return v * (float64(unit) / float64(time.Millisecond))
	}
	ms, err := strconv.ParseFloat(string(text)+exponent, 64)
	if err != nil {
		return math.Inf(1) // which is invalid in a row
	}
	return ms
}

// dateLayouts are the forms of RFC 3339 and ISO 8601 that programs write; each may have a fraction of a second.
var dateLayouts = []struct {
	layout string
	kind   stamp
}{
	{"2006-01-02T15:04:05Z07:00", stampZoned},
	{"2006-01-02 15:04:05Z07:00", stampZoned},
	{"2006-01-02T15:04:05", stampLocal},
	{"2006-01-02 15:04:05", stampLocal},
	{"2006-01-02T15:04:05Z0700", stampZoned},
	{"2006-01-02 15:04:05Z0700", stampZoned},
	{"2006-01-02 15:04:05 Z0700", stampZoned},
	{"2006-01-02 15:04:05 Z07:00", stampZoned},
}

// parseDate reads a text with a date from 1970 to 2200 and a time. The kind is stampNone if the text is something else.
func parseDate(text string) (at time.Time, kind stamp) {
	if len(text) < len(time.DateTime) || len(text) > 64 {
		return at, stampNone
	}
	for _, l := range dateLayouts {
		if at, err := time.Parse(l.layout, text); err == nil && at.Unix() >= 0 && at.Year() <= 2200 {
			return at, l.kind
		}
	}
	return at, stampNone
}

// millisOf returns the milliseconds since 1970.
func millisOf(at time.Time) float64 {
	return float64(at.UnixMilli()) + float64(at.Nanosecond()%int(time.Millisecond))/float64(time.Millisecond)
}

// Duration converts milliseconds, the unit of times in rows and in figures, to a duration, rounded to the nearest nanosecond. A time beyond
// the longest duration (292 years) becomes that duration; NaN becomes 0.
func Duration(ms float64) time.Duration {
	switch ns := math.Round(ms * float64(time.Millisecond)); {
	case ns >= math.MaxInt64:
		return math.MaxInt64
	case ns <= math.MinInt64:
		return math.MinInt64
	case math.IsNaN(ns):
		return 0
	default:
		return time.Duration(ns)
	}
}

// dateAdvice returns advice for a text that is not a date with a time.
func dateAdvice(text string) string {
	if _, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil {
		return "write it without quotes"
	}
	return "write it as 2026-11-21T15:04:05.123Z, from 1970 to 2200, or as a number"
}
