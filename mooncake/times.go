// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file tells what the timestamps of a trace are, and makes milliseconds of them, and durations of milliseconds.

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// stamp is a kind of timestamps. All of a trace are of one.
type stamp uint8

const (
	stampNone  stamp = iota // there was no timestamp yet
	stampGiven              // numbers in a unit that was given
	stampSmall              // milliseconds from any zero, below 10^12
	stampS                  // seconds since 1970, and so on
	stampMS
	stampUS
	stampNS
	stampZoned // dates with a zone
	stampLocal // dates without one, which are UTC
)

// stamps describe the kinds, and say which of them are worth a notice.
var stamps = [...]struct {
	what   string
	unit   time.Duration
	notice string
}{
	stampGiven: {"a number", 0, ""},
	stampSmall: {"milliseconds from the start", time.Millisecond, ""},
	stampS:     {"seconds since 1970", time.Second, "seconds since 1970 by their size, and read so (--time-unit says otherwise)"},
	stampMS:    {"milliseconds since 1970", time.Millisecond, ""},
	stampUS:    {"microseconds since 1970", time.Microsecond, "microseconds since 1970 by their size, and read so (--time-unit says otherwise)"},
	stampNS:    {"nanoseconds since 1970", time.Nanosecond, "nanoseconds since 1970 by their size, and read so (--time-unit says otherwise)"},
	stampZoned: {"a date with a zone", 0, "dates, and read as milliseconds since 1970"},
	stampLocal: {"a date without a zone", 0, "dates without a zone, and read as milliseconds since 1970 in UTC"},
}

// The first timestamp of a trace is in seconds since 1970 if it is from 2008 to 2039. As milliseconds from a start it would be the
// 14th to the 25th day.
const (
	firstSecond = 1.2e9
	lastSecond  = 2.2e9
)

// stampOf returns the kind of a number that follows one of a kind. From 10^12 on, the sizes of the units do not overlap: each has the years
// from 2001 (milliseconds) or 1973 to 5138.
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

// timestamp reads the timestamp of a row: a number, or the text of a date with its time.
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

// inMillis returns a number of units in milliseconds. The text is scaled, not the number, which would round twice.
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
		return math.Inf(1) // which no row may have
	}
	return ms
}

// dateLayouts are those of RFC 3339 and ISO 8601 that programs write; a fraction of a second is part of each.
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

// parseDate reads the text of a date from 1970 to 2200 with its time; the kind is stampNone if it is none.
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

// Duration returns a number of milliseconds, the unit of times in rows and in figures, as a duration to the nearest nanosecond. One that
// is beyond the longest duration, which is 292 years, is that one; NaN is 0.
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

// dateAdvice says what to do about a text that is no date with a time.
func dateAdvice(text string) string {
	if _, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil {
		return "write it without quotes"
	}
	return "write it as 2026-11-21T15:04:05.123Z, from 1970 to 2200, or as a number"
}
