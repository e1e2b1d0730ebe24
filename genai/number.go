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
	maxCount      = 1e12 // a larger value is not a number of tokens
	maxSeconds    = 1e7
)

// number returns f if it is finite and not negative.
func number(f float64) Opt[float64] {
	if !(f >= 0) || math.IsInf(f, 0) {
		return Opt[float64]{}
	}
	return Some(f)
}

// parseNumber reads a number from a text.
func parseNumber(s string) Opt[float64] {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > 32 {
		return Opt[float64]{}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return Opt[float64]{}
	}
	return number(f)
}

// count returns a number if it may be a number of tokens.
func count(n Opt[float64]) Opt[int64] {
	if !n.Set || n.V > maxCount || n.V != math.Trunc(n.V) {
		return Opt[int64]{}
	}
	return Some(int64(n.V))
}

func parseBool(s string) Opt[bool] {
	yes := strings.EqualFold(s, "true")
	return Opt[bool]{yes, yes || strings.EqualFold(s, "false")}
}

// toNumber reads a number from a number or a numeric string.
func toNumber(v pcommon.Value) Opt[float64] {
	switch v.Type() {
	case pcommon.ValueTypeInt:
		return number(float64(v.Int()))
	case pcommon.ValueTypeDouble:
		return number(v.Double())
	case pcommon.ValueTypeStr:
		return parseNumber(v.Str())
	default:
		return Opt[float64]{}
	}
}

// toCount reads a count from an int, an integral double or a numeric string.
func toCount(v pcommon.Value) Opt[int64] { return count(toNumber(v)) }

func toBool(v pcommon.Value) Opt[bool] {
	switch v.Type() {
	case pcommon.ValueTypeBool:
		return Some(v.Bool())
	case pcommon.ValueTypeStr:
		return parseBool(v.Str())
	default:
		return Opt[bool]{}
	}
}

// toText reads a short string, or ""; it also accepts numbers, as ids that lost their quotes.
func toText(v pcommon.Value) string {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return cleanString(v.Str())
	case pcommon.ValueTypeInt:
		return strconv.FormatInt(v.Int(), 10)
	default:
		return ""
	}
}

// toSession reads the id of a session, or "". Callers must hash it, so its length does not matter.
func toSession(v pcommon.Value) string {
	if v.Type() == pcommon.ValueTypeStr && len(v.Str()) > maxValueBytes {
		return v.Str()
	}
	return toText(v)
}

// toClass returns a class: one word, which may be in the list of a request header.
func toClass(v pcommon.Value) string {
	if v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() == 1 {
		v = v.Slice().At(0)
	}
	if class := toText(v); IsWord(class) {
		return class
	}
	return ""
}

// cleanString returns "" for a long string, and replaces invalid UTF-8.
func cleanString(s string) string {
	if len(s) <= maxValueBytes && !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD") // one byte may become three
	}
	if len(s) > maxValueBytes {
		return ""
	}
	return s
}

// The types from which a field can be read.
func isText(v pcommon.Value) bool    { return toText(v) != "" }
func isSession(v pcommon.Value) bool { return toSession(v) != "" }
func isClass(v pcommon.Value) bool   { return toClass(v) != "" }
func isFlag(v pcommon.Value) bool    { return toBool(v).Set }
func isCount(v pcommon.Value) bool   { return toCount(v).Set }
func isNumber(v pcommon.Value) bool  { return toNumber(v).Set }

func isFilled(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return v.Str() != ""
	case pcommon.ValueTypeMap:
		return v.Map().Len() > 0
	case pcommon.ValueTypeSlice:
		return v.Slice().Len() > 0
	default:
		return false
	}
}

func isVercelOperation(v pcommon.Value) bool {
	return v.Type() == pcommon.ValueTypeStr && strings.HasPrefix(v.Str(), "ai.")
}

// IsWord reports whether a text is one word, like ids, types and reasons, and unlike messages: printable ASCII without spaces that does not
// begin like a JSON object, list or string. An empty text is not a word.
func IsWord(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && s[0] != '{' && s[0] != '[' && s[0] != '"'
}

// wordOr returns a text if it is a word, else other.
func wordOr(s, other string) string {
	if IsWord(s) {
		return s
	}
	return other
}
