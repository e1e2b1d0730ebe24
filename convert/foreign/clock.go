// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package foreign

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

// seconds reads a decimal number of seconds as nanoseconds. Digits after the ninth are cut off.
func seconds(s string) (int64, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	switch {
	case strings.HasPrefix(s, "-"):
		if _, err := strconv.ParseFloat(s, 64); err != nil {
			return 0, errNoNumber
		}
		return 0, errBefore
	case strings.ContainsAny(s, "eE"):
		return scientific(s)
	case whole == "" || !digits(whole) || !digits(fraction):
		return 0, errNoNumber
	}
	if len(fraction) > 9 {
		fraction = fraction[:9]
	}
	sec, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || sec >= math.MaxInt64/int64(time.Second) {
		return 0, errFar
	}
	ns := int64(0)
	for i := range 9 {
		ns *= 10
		if i < len(fraction) {
			ns += int64(fraction[i] - '0')
		}
	}
	return sec*int64(time.Second) + ns, nil
}

// scientific reads seconds with an exponent, which some writers use for small numbers.
func scientific(s string) (int64, error) {
	f, err := strconv.ParseFloat(s, 64)
	switch ns := math.Round(f * 1e9); {
	case err != nil:
		return 0, errNoNumber
	case ns < 0:
		return 0, errBefore
	case !(ns < math.MaxInt64):
		return 0, errFar
	default:
		return int64(ns), nil
	}
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// date reads a date and time of day such as 2023-11-16 18:17:03.9799600, with or without an offset from UTC, as nanoseconds since the
// Unix epoch.
func date(s string) (int64, error) {
	if len(s) > len("2006-01-02T15:04:05") && s[len("2006-01-02")] == 'T' {
		s = s[:len("2006-01-02")] + " " + s[len("2006-01-02")+1:]
	}
	// Both layouts take a fraction of any number of digits after the seconds.
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

// milliseconds returns nanoseconds as the nearest number of milliseconds.
func milliseconds(ns int64) float64 {
	if ns%int64(time.Millisecond) == 0 {
		return float64(ns / int64(time.Millisecond)) // exact where float64(ns) is not
	}
	return float64(ns) / float64(time.Millisecond)
}
