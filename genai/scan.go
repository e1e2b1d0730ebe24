// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/semconv"
)

// scan is one pass over the attributes of a span or log record: for each field, the value that counts.
type scan struct {
	values [maxFields]pcommon.Value // an empty value if no attribute has the field
	ranks  [maxFields]uint8         // absent in that case
	marks  mark
}

const absent = 0xff

// nothing is the value of a field without an attribute. It must not be modified.
var nothing = pcommon.NewValueEmpty()

func (s *scan) reset() {
	s.marks = 0
	for i, rank := range s.ranks {
		if rank != absent { // few fields are present: most spans have no GenAI telemetry
			s.ranks[i], s.values[i] = absent, nothing // do not keep the telemetry in memory
		}
	}
}

func (s *scan) has(f field) bool { return s.ranks[f] != absent }

// name returns the attribute of a field; "" if there is none. It is not for fieldSession and fieldClass, whose names [Options] can change.
func (s *scan) name(f field) string {
	if !s.has(f) {
		return ""
	}
	return fields[f].names[s.ranks[f]]
}

// attributes reads all attributes. It ignores values from which their field cannot be read.
func (s *scan) attributes(m pcommon.Map, index map[string][]slot) {
	for key, value := range m.All() {
		for _, slot := range index[key] {
			if slot.rank < s.ranks[slot.field] && fields[slot.field].readable(value) {
				s.ranks[slot.field], s.values[slot.field] = slot.rank, value
			}
		}
		if key == "" {
			continue
		}
		for i := range beginnings[key[0]] {
			b := &beginnings[key[0]][i]
			switch rest, ok := strings.CutPrefix(key, b.prefix); {
			case !ok:
			case b.flat == fieldNone:
				if b.prefix != semconv.GenAISystem || key != semconv.GenAISystemInstructions {
					s.marks |= b.mark
				}
			case isIndexed(rest):
				s.marks |= b.mark
				if slot := index[b.prefix+"*"][0]; slot.rank < s.ranks[slot.field] {
					s.ranks[slot.field], s.values[slot.field] = slot.rank, value
				}
			}
		}
	}
}

func (s *scan) text(f field) string {
	if !s.has(f) { // most are absent
		return ""
	}
	return toText(s.values[f])
}

func (s *scan) count(f field) Opt[int64] {
	if !s.has(f) {
		return Opt[int64]{}
	}
	return toCount(s.values[f])
}

// seconds reads a duration in its attribute's unit.
func (s *scan) seconds(f field) Opt[float64] {
	n := toNumber(s.values[f])
	if n.Set && inMilliseconds[s.name(f)] {
		n.V /= 1e3
	}
	n.Set = n.Set && n.V < maxSeconds
	return n
}
