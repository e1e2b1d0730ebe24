// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/mooncake"
)

// record is an object of a JSON file, or a line of a table: values by name. Its methods read a value and remember the first invalid one, so
// that a format's decoder only states what it needs. Values that are not read count as lost.
//
// An absent field, null, and an empty cell are all treated as absent.
type record struct {
	fields []field
	table  bool   // cells instead of JSON
	within string // names of the enclosing objects, with a dot after each
	top    *record
	inner  []*record // objects within it that were read; only in the outermost record
	err    *mooncake.RowError
	source []byte // of a JSON object
}

// field is a value of a record.
type field struct {
	name string
	json jsontext.Value // nil in a table; part of the line
	cell string
	used bool
}

// maxName is the maximum length of a session id or model, in bytes.
const maxName = 256

var errNoName = fmt.Errorf("is longer than %d bytes: it is not a name", maxName)

// parse reads a JSON object.
func (r *record) parse(object []byte) *mooncake.RowError {
	old := r.fields
	*r = record{fields: old[:0], within: r.within, top: r.top, source: object}
	if r.top == nil {
		r.top = r
	}
	dec := jsontext.NewDecoder(bytes.NewReader(object))
	if dec.PeekKind() != '{' {
		if err := dec.SkipValue(); err != nil {
			return jsonFault(err)
		}
		return noObject()
	}
	if _, err := dec.ReadToken(); err != nil {
		return jsonFault(err)
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return jsonFault(err)
		}
		f := field{name: name.String()}
		v, err := dec.ReadValue()
		if err != nil {
			return jsonFault(err)
		}
		end := dec.InputOffset()
		f.json = object[end-int64(len(v)) : end]
		r.fields = append(r.fields, f)
	}
	if _, err := dec.ReadToken(); err != nil {
		return jsonFault(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &mooncake.RowError{Rule: "there is something after the line's object", Advice: "write one object on each line"}
	}
	return nil
}

// cells reads a line of a table. Its names are those of the columns.
func (r *record) cells(names, cells []string) {
	*r = record{fields: r.fields[:0], table: true, top: r}
	for i, cell := range cells {
		r.fields = append(r.fields, field{name: names[i], cell: strings.TrimSpace(cell)})
	}
}

// find returns the first of the fields that exists, nil if none does.
func (r *record) find(names ...string) *field {
	for _, name := range names {
		for i := range r.fields {
			f := &r.fields[i]
			if f.name != name && (!r.table || columnName(f.name) != columnName(name)) {
				continue
			}
			f.used = true
			if !f.empty() {
				return f
			}
		}
	}
	return nil
}

func (f *field) empty() bool {
	if f.json == nil {
		return f.cell == ""
	}
	return f.json.Kind() == 'n'
}

// has reports whether one of the fields exists.
func (r *record) has(names ...string) bool { return r.find(names...) != nil }

// known marks fields whose content is known from other fields, so that they do not count as lost.
func (r *record) known(names ...string) {
	for _, name := range names {
		r.find(name)
	}
}

// discard marks all fields as read, because the request that they describe is counted as a whole.
func (r *record) discard() {
	for i := range r.fields {
		r.fields[i].used = true
	}
}

// fail remembers the first error of a line.
func (r *record) fail(name, value, rule, advice string) {
	if r.top.err == nil {
		r.top.err = &mooncake.RowError{Field: clip(r.within + name), Value: value, Rule: rule, Advice: advice}
	}
}

// want reports a missing field, if it is not there.
func (r *record) want(there bool, name, advice string) {
	switch {
	case there:
	case r.table:
		r.fail(name, "", "is empty", advice)
	default:
		r.fail(name, "", "is missing", advice)
	}
}

// number reads a number from its text. In JSON, it must not be in quotes.
func (r *record) number(read func(string) (int64, error), advice string, names ...string) (none mooncake.Opt[int64]) {
	f := r.find(names...)
	switch {
	case f == nil:
		return none
	case f.json != nil && f.json.Kind() != '0':
		_, err := read("")
		r.fail(f.name, "", err.Error(), advice)
		return none
	}
	s := f.cell + string(f.json)
	n, err := read(s)
	if err != nil {
		r.fail(strings.TrimSpace(f.name), shown(s), err.Error(), advice)
		return none
	}
	return mooncake.Some(n)
}

// count reads a number of tokens.
func (r *record) count(names ...string) mooncake.Opt[int64] { return r.number(tokens, "", names...) }

// counted reads a number of tokens, which is required.
func (r *record) counted(names ...string) mooncake.Opt[int64] {
	n := r.count(names...)
	r.want(n.Set, names[0], "")
	return n
}

// integer reads an integer of either sign.
func (r *record) integer(names ...string) mooncake.Opt[int64] {
	return r.number(func(s string) (int64, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			err = errors.New("must be an integer")
		}
		return n, err
	}, "", names...)
}

// span reads a duration in this unit, and returns nanoseconds.
func (r *record) span(unit time.Duration, names ...string) mooncake.Opt[int64] {
	return r.number(func(s string) (int64, error) { return decimal(s, unit) }, "", names...)
}

// millis reads a duration in this unit, and returns milliseconds.
func (r *record) millis(unit time.Duration, names ...string) mooncake.Opt[float64] {
	ns := r.span(unit, names...)
	return mooncake.Opt[float64]{V: milliseconds(ns.V), Set: ns.Set}
}

// at reads the time of a request, which is required. It is in this unit, counted from some zero; at returns nanoseconds from the same zero.
func (r *record) at(unit time.Duration, names ...string) int64 {
	advice := "want " + map[time.Duration]string{time.Second: "seconds", time.Millisecond: "milliseconds", time.Microsecond: "microseconds", time.Nanosecond: "nanoseconds"}[unit]
	n := r.number(func(s string) (int64, error) { return decimal(s, unit) }, advice, names...)
	r.want(n.Set, names[0], advice)
	return n.V
}

// date reads a time, which is required: a date and time of day, or seconds, milliseconds, microseconds or nanoseconds since 1970. The unit
// is that for which the time lies between 2001 and 2262.
func (r *record) date(names ...string) int64 {
	ns := r.instant(names...)
	r.want(ns.Set, names[0], wantDate)
	return ns.V
}

const wantDate = "want a date and time such as 2023-11-16 18:17:03.9799600"

// instant is like date, but the time may be absent.
func (r *record) instant(names ...string) (none mooncake.Opt[int64]) {
	f := r.find(names...)
	if f == nil {
		return none
	}
	s, read := f.cell, date
	switch f.json.Kind() {
	case jsontext.KindInvalid:
		if strings.Trim(s, "0123456789.") == "" {
			read = epoch
		}
	case '0':
		s, read = string(f.json), epoch
	case '"':
		s = unquoted(f.json)
	default:
		r.fail(f.name, "", errNoTime.Error(), wantDate)
		return none
	}
	ns, err := read(s)
	if err != nil {
		r.fail(f.name, shown(s), err.Error(), wantDate)
		return none
	}
	return mooncake.Some(ns)
}

// name reads a session id, a model, or another short text; numbers are names, too.
func (r *record) name(names ...string) string {
	f := r.find(names...)
	if f == nil {
		return ""
	}
	s := f.cell
	switch f.json.Kind() {
	case jsontext.KindInvalid:
	case '"':
		s = unquoted(f.json)
	case '0':
		s = string(f.json)
	default:
		r.fail(f.name, "", "must be a string", "")
	}
	if len(s) > maxName {
		r.fail(f.name, shown(s), errNoName.Error(), "")
		return ""
	}
	return s
}

// expect reports an error unless a field has this text.
func (r *record) expect(name, text string) {
	if r.name(name) != text {
		r.fail(name, "", "must be "+text, "")
	}
}

// reason reads why a reply ended; a text that cannot be a finish reason is ignored.
func (r *record) reason(name string) string {
	f := r.find(name)
	if f == nil {
		return ""
	}
	s := f.cell
	if f.json.Kind() == '"' {
		s = unquoted(f.json)
	}
	if f.used = mooncake.IsFinishReason(s); !f.used {
		return ""
	}
	return s
}

// texts reads a text, or several.
func (r *record) texts(names ...string) (out []string) {
	f := r.find(names...)
	if f != nil && f.json.Kind() == '"' {
		return []string{unquoted(f.json)}
	}
	r.array(func(name string, i int, v jsontext.Value) {
		if v.Kind() != '"' {
			r.fail(name, "element "+strconv.Itoa(i), "must be a string", "")
		}
		out = append(out, unquoted(v))
	}, "a string or an array of strings", names...)
	return out
}

// only returns a record that has only these of its fields.
func (r *record) only(names ...string) *record {
	o := &record{top: r.top, within: r.within, table: r.table}
	for _, name := range names {
		if f := r.find(name); f != nil {
			o.fields = append(o.fields, *f)
		}
	}
	return o
}

// unit reads the name of a unit of time; it is milliseconds unless the field says otherwise.
func (r *record) unit(name string) time.Duration {
	switch r.name(name) {
	case "s", "sec", "seconds":
		return time.Second
	case "us":
		return time.Microsecond
	case "ns":
		return time.Nanosecond
	}
	return time.Millisecond
}

// yes reads a boolean, in any spelling that [strconv.ParseBool] accepts; it is false if absent.
func (r *record) yes(names ...string) bool {
	f := r.find(names...)
	if f == nil {
		return false
	}
	b, err := strconv.ParseBool(f.cell + string(f.json))
	if err != nil {
		r.fail(f.name, "", "must be true or false", "")
	}
	return b
}

// ids reads block ids; nil without an error means none.
func (r *record) ids(names ...string) (out []uint64) {
	r.array(func(name string, i int, v jsontext.Value) {
		n, err := strconv.ParseUint(string(v), 10, 64)
		if err != nil {
			r.fail(name, "element "+strconv.Itoa(i), "must be an integer from 0 to 2^64-1", "")
		}
		out = append(out, n)
	}, "an array of integers", names...)
	return out
}

// numbers reads an array of numbers.
func (r *record) numbers(read func(string) (int64, error), names ...string) (out []int64) {
	r.array(func(name string, i int, v jsontext.Value) {
		n, err := int64(0), errNoNumber
		if v.Kind() == '0' {
			n, err = read(string(v))
		}
		if err != nil {
			r.fail(name, "element "+strconv.Itoa(i), err.Error(), "")
		}
		out = append(out, n)
	}, "an array of numbers", names...)
	return out
}

func negative(v jsontext.Value) bool {
	n, err := strconv.ParseInt(string(v), 10, 64)
	return err == nil && n < 0
}

// digests reads block ids that may also be negative, or texts of digests, of which it keeps 64 bits.
func (r *record) digests(names ...string) (out []uint64) {
	r.array(func(name string, i int, v jsontext.Value) {
		switch n, err := strconv.ParseUint(string(v), 10, 64); {
		case err == nil:
			out = append(out, n)
		case negative(v):
			n, _ := strconv.ParseInt(string(v), 10, 64)
			out = append(out, uint64(n)) //nolint:gosec // the same 64 bits
		case v.Kind() == '"':
			h := fnv.New64a()
			_, _ = h.Write(v) // never fails
			out = append(out, h.Sum64())
		default:
			r.fail(name, "element "+strconv.Itoa(i), "must be an integer of 64 bits or a text", "")
		}
	}, "an array of integers or texts", names...)
	return out
}

// array calls visit for the elements of an array. A cell of a table may contain an array as JSON.
func (r *record) array(visit func(name string, i int, v jsontext.Value), what string, names ...string) {
	f := r.find(names...)
	if f == nil {
		return
	}
	raw := f.value()
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if dec.PeekKind() != '[' {
		r.fail(f.name, "", "must be "+what, "")
		return
	}
	_, _ = dec.ReadToken() // the bracket
	for i := 0; ; i++ {
		if dec.PeekKind() == ']' {
			return
		}
		v, err := dec.ReadValue()
		if err != nil {
			r.fail(f.name, "", "is not valid JSON", "")
			return
		}
		end := dec.InputOffset()
		visit(f.name, i, raw[end-int64(len(v)):end])
	}
}

// objects calls visit for the objects of an array.
func (r *record) objects(visit func(*record), names ...string) {
	r.array(func(name string, i int, v jsontext.Value) {
		if o := r.open(name, v); o != nil {
			visit(o)
		} else {
			r.fail(name, "element "+strconv.Itoa(i), "must be an object", "")
		}
	}, "an array of objects", names...)
}

// object returns an object within the record; an empty one if there is none. A text that contains a JSON object counts, too.
func (r *record) object(names ...string) *record {
	f := r.find(names...)
	if f == nil {
		return &record{within: r.within + names[0] + ".", top: r.top}
	}
	o := r.open(f.name, f.value())
	if o == nil {
		r.fail(f.name, "", "must be an object", "")
		return &record{top: r.top}
	}
	return o
}

func (r *record) open(name string, v jsontext.Value) *record {
	o := &record{within: r.within + name + ".", top: r.top}
	if o.parse(v) != nil {
		return nil
	}
	r.top.inner = append(r.top.inner, o)
	return o
}

// value returns a field as JSON. An object or an array in a cell or a text is returned as such; any other cell as a JSON string.
func (f *field) value() jsontext.Value {
	s := f.cell
	switch f.json.Kind() {
	case jsontext.KindInvalid:
	case '"':
		s = unquoted(f.json)
	default:
		return f.json
	}
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") {
		return jsontext.Value(s)
	}
	b, _ := jsontext.AppendQuote(nil, s) // invalid UTF-8 is replaced
	return b
}

// raw returns the JSON of a field, as a copy; nil if there is none.
func (r *record) raw(names ...string) []byte {
	f := r.find(names...)
	if f == nil {
		return nil
	}
	return bytes.Clone(f.value())
}

// unread calls visit for the names of the fields that have a value and were not read.
func (r *record) unread(visit func(name string)) {
	for i := range r.fields {
		if f := &r.fields[i]; !f.used && !f.empty() {
			visit(r.within + strings.TrimSpace(f.name))
		}
	}
	for _, o := range r.inner {
		o.unread(visit)
	}
}

func unquoted(v jsontext.Value) string {
	b, _ := jsontext.AppendUnquote(nil, v)
	return string(b)
}
