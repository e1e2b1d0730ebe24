// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

const (
	maxValueBytes = 256  // longer strings are content, not facts
	maxCount      = 1e12 // more tokens than that are no count
	maxSeconds    = 1e7
)

// toInt reads a count from an int, an integral double or a numeric string.
func toInt(v pcommon.Value) (int64, bool) {
	switch v.Type() {
	case pcommon.ValueTypeInt:
		return count(v.Int())
	case pcommon.ValueTypeDouble:
		return countFloat(v.Double())
	case pcommon.ValueTypeStr:
		return parseInt(v.Str())
	default:
		return 0, false
	}
}

func parseInt(s string) (int64, bool) {
	s = strings.TrimSpace(s)
	if len(s) > 32 {
		return 0, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return count(n)
	}
	if f, ok := parseFloat(s); ok {
		return countFloat(f)
	}
	return 0, false
}

func count(n int64) (int64, bool) { return n, n >= 0 && n <= maxCount }

func countFloat(f float64) (int64, bool) {
	if !(f >= 0 && f <= maxCount) || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

// toFloat reads a finite number that is not negative.
func toFloat(v pcommon.Value) (float64, bool) {
	switch v.Type() {
	case pcommon.ValueTypeInt:
		return float64(v.Int()), v.Int() >= 0
	case pcommon.ValueTypeDouble:
		return v.Double(), v.Double() >= 0 && !math.IsInf(v.Double(), 0)
	case pcommon.ValueTypeStr:
		return parseFloat(strings.TrimSpace(v.Str()))
	default:
		return 0, false
	}
}

func parseFloat(s string) (float64, bool) {
	if s == "" || len(s) > 32 {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && f >= 0 && !math.IsInf(f, 0)
}

func toBool(v pcommon.Value) (value, ok bool) {
	switch v.Type() {
	case pcommon.ValueTypeBool:
		return v.Bool(), true
	case pcommon.ValueTypeStr:
		return parseBool(v.Str())
	default:
		return false, false
	}
}

func parseBool(s string) (value, ok bool) {
	switch {
	case strings.EqualFold(s, "true"):
		return true, true
	case strings.EqualFold(s, "false"):
		return false, true
	}
	return false, false
}

// toString reads a short string; numbers are taken for ids that lost their quotes.
func toString(v pcommon.Value) (string, bool) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return cleanString(v.Str())
	case pcommon.ValueTypeInt:
		return strconv.FormatInt(v.Int(), 10), true
	default:
		return "", false
	}
}

// toSession reads the id of a session. It is hashed by whoever uses it, so that its length is no matter.
func toSession(v pcommon.Value) (string, bool) {
	if v.Type() == pcommon.ValueTypeStr && len(v.Str()) > maxValueBytes {
		return v.Str(), true
	}
	return toString(v)
}

// cleanString refuses the empty and the overlong, and replaces what is not UTF-8.
func cleanString(s string) (string, bool) {
	if s == "" || len(s) > maxValueBytes {
		return "", false
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
		if len(s) > maxValueBytes { // three bytes may have come for one
			return "", false
		}
	}
	return s, true
}

// IsWord reports whether a text is one word, as ids, types and reasons are, and messages are not: printable ASCII
// without a space that does not begin as a JSON object, a list or a string does. The empty text is none.
func IsWord(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && s[0] != '{' && s[0] != '[' && s[0] != '"'
}

// wordOr returns a text that is a word, else other.
func wordOr(s, other string) string {
	if IsWord(s) {
		return s
	}
	return other
}
