// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

var (
	errNoTime   = errors.New("is not a time")
	errNoNumber = errors.New("is not a number")
	errBefore   = errors.New("must be 0 or more")
	errFar      = errors.New("is out of range")
)

// decimal converts a decimal number of units of time to nanoseconds. It truncates fractions of a nanosecond; for a number with an exponent,
// it rounds them.
func decimal(s string, unit time.Duration) (int64, error) {
	if strings.ContainsAny(s, "-eE") {
		return scientific(s, unit)
	}
	whole, fraction, _ := strings.Cut(s, ".")
	if whole == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, errNoNumber
	}
	name := map[time.Duration]string{time.Second: "s", time.Millisecond: "ms", time.Microsecond: "us", time.Nanosecond: "ns"}[unit]
	d, err := time.ParseDuration(whole + "." + fraction[:min(len(fraction), 9)] + name)
	if err != nil {
		return 0, errFar
	}
	return int64(d), nil
}

// scientific is decimal for a number with a minus sign, or with an exponent, which some writers use for small numbers.
func scientific(s string, unit time.Duration) (int64, error) {
	f, err := strconv.ParseFloat(s, 64)
	switch ns := math.Round(f * float64(unit)); {
	case err != nil:
		return 0, errNoNumber
	case ns < 0 || strings.HasPrefix(s, "-"):
		return 0, errBefore
	case !(ns < math.MaxInt64):
		return 0, errFar
	default:
		return int64(ns), nil
	}
}

// epoch reads a time since 1970, in the only unit for which it lies between 2001 and 2262.
func epoch(s string) (int64, error) {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond} {
		ns, err := decimal(s, unit)
		if err != nil && !errors.Is(err, errFar) {
			return 0, err
		}
		if err == nil && ns >= 1e18 {
			return ns, nil
		}
	}
	return 0, errNoTime
}

// date reads a date and time of day such as 2023-11-16 18:17:03.9799600, with or without an offset from UTC, as nanoseconds since the
// Unix epoch.
func date(s string) (int64, error) {
	if len(s) > len("2006-01-02T15:04:05") && s[len("2006-01-02")] == 'T' {
		s = s[:len("2006-01-02")] + " " + s[len("2006-01-02")+1:]
	}
	// Both layouts accept a fraction of any number of digits after the seconds.
	t, err := time.Parse("2006-01-02 15:04:05", s)
	if err != nil {
		if t, err = time.Parse("2006-01-02 15:04:05Z07:00", s); err != nil {
			return 0, errNoTime
		}
	}
	if y := t.Year(); y < 1971 || y > 2200 {
		return 0, errFar
	}
	return t.UnixNano(), nil
}

// milliseconds converts nanoseconds to the nearest number of milliseconds.
func milliseconds(ns int64) float64 {
	if ns%int64(time.Millisecond) == 0 {
		return float64(ns / int64(time.Millisecond)) // exact even if float64(ns) is not
	}
	return float64(ns) / float64(time.Millisecond)
}
