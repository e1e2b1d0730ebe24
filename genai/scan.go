// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// scan is one pass over the attributes of a span or log record: for each field, the value that counts.
type scan struct {
	values [fieldCount]pcommon.Value
	ranks  [fieldCount]uint8 // absent where no attribute holds the field
	names  [fieldCount]string
	marks  mark
	flat   uint8 // which of flatContent and flatReplies there are
}

const absent = 0xff

func (s *scan) reset() {
	s.marks, s.flat = 0, 0
	for i, rank := range s.ranks {
		if rank != absent { // few are: most spans have nothing to do with GenAI
			s.ranks[i], s.values[i], s.names[i] = absent, pcommon.Value{}, "" // telemetry is not to be kept alive
		}
	}
}

func (s *scan) has(f field) bool { return s.ranks[f] != absent }

// attributes reads all attributes. A value that its field cannot be read from is not there.
func (s *scan) attributes(m pcommon.Map, index map[string][]slot) {
	for key, value := range m.All() {
		s.marks |= marksOf(key)
		for _, slot := range index[key] {
			if slot.rank < s.ranks[slot.field] && readable(slot.field, value) {
				s.take(slot, key, value)
			}
		}
		if key == "" {
			continue
		}
		for _, f := range flatByByte[key[0]] {
			if _, ok := flatPath(key, f.prefix); ok {
				s.flat |= f.bit
				if slot := index[f.prefix][0]; slot.rank < s.ranks[f.field] {
					s.take(slot, f.prefix, value)
				}
			}
		}
	}
}

func (s *scan) take(slot slot, key string, value pcommon.Value) {
	s.ranks[slot.field], s.values[slot.field], s.names[slot.field] = slot.rank, value, key
}

// readable reports whether a value is of a type that the field can be read from.
func readable(f field, v pcommon.Value) bool {
	ok := false
	switch f {
	case fieldStream:
		_, ok = toBool(v)
	case fieldMaxTokens, fieldChoices, fieldPriority, fieldInput, fieldOutput, fieldCached, fieldCacheWrite,
		fieldReasoning, fieldHTTPStatus:
		_, ok = toInt(v)
	case fieldTTFT, fieldServerTTFT:
		_, ok = toFloat(v)
	case fieldFinish, fieldTools, fieldSystem, fieldContent, fieldInvocation, fieldUsageDetails, fieldGenkitInput,
		fieldGenkitOutput, fieldOutputValue, fieldReply, fieldReplyText, fieldReplyCalls, fieldReplyReasoning:
		switch v.Type() {
		case pcommon.ValueTypeStr:
			ok = v.Str() != ""
		case pcommon.ValueTypeMap:
			ok = v.Map().Len() > 0
		case pcommon.ValueTypeSlice:
			ok = v.Slice().Len() > 0
		default:
		}
	case fieldSession:
		_, ok = toSession(v)
	case fieldVercelOperation:
		ok = v.Type() == pcommon.ValueTypeStr && strings.HasPrefix(v.Str(), "ai.")
	default:
		_, ok = toString(v)
	}
	return ok
}

func (s *scan) str(f field) string {
	if !s.has(f) {
		return ""
	}
	v, _ := toString(s.values[f])
	return v
}

func (s *scan) int(f field) Opt[int64] {
	if !s.has(f) {
		return Opt[int64]{}
	}
	v, ok := toInt(s.values[f])
	return Opt[int64]{v, ok}
}

func (s *scan) bool(f field) Opt[bool] {
	if !s.has(f) {
		return Opt[bool]{}
	}
	v, ok := toBool(s.values[f])
	return Opt[bool]{v, ok}
}

// seconds reads a duration in its attribute's unit.
func (s *scan) seconds(f field) Opt[float64] {
	if !s.has(f) {
		return Opt[float64]{}
	}
	v, ok := toFloat(s.values[f])
	if milliseconds[s.names[f]] {
		v /= 1e3
	}
	return Opt[float64]{v, ok && v < maxSeconds}
}
