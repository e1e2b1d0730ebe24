// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// parser parses the text of one row, usually a line. It is reused from row to row; values that a row keeps are copied out of the text.
// jsontext limits the nesting (10,000), and refuses invalid UTF-8 and repeated keys.
type parser struct {
	line    []byte
	column  int64 // bytes before the row on its line
	place   int   // position of the error in line; below 0 if the error is about the whole row
	buf     bytes.Buffer
	dec     jsontext.Decoder
	fields  fields        // of a row
	unit    time.Duration // of timestamps, if stamps is stampGiven
	stamps  stamp         // the kind of the trace's timestamps
	stamp   stamp         // the kind of the row's timestamp, if it has one
	unknown []string      // quoted names of unknown keys
	foreign []string      // names of other tools' fields

	done []Transformation // of the trace, if the row has them

	integersRead []uint64 // of an array, until the next one
	// continues is how many ids the row has from the row that it continues; absent if it is complete by itself.
	continues Opt[int64]
}

// ParseRow reads one row by itself, without the other rows and the sidecar of its trace. It does not check what depends on these, such as
// the block size or the row that a reply belongs to. A numeric timestamp is in milliseconds. A row that continues another one is returned
// without ranges and replies. The error is a *[RowError].
func ParseRow(line []byte) (*Row, error) {
	return parseRow(line, parser{fields: rowFields, unit: time.Millisecond, stamps: stampGiven})
}

func parseRow(line []byte, p parser) (*Row, error) {
	row, e := p.parse(line, 0)
	if e != nil {
		return nil, e
	}
	if p.continues.Set {
		row.HashRanges, row.Replies = nil, nil
	}
	return row, nil
}

// parse parses a text that is not blank and that begins in a column, from 0, and checks what does not depend on other rows.
func (p *parser) parse(line []byte, column int64) (*Row, *RowError) {
	p.column = column
	row, e := p.row(line)
	if e == nil && p.continues.Set && (row.HashRanges == nil || row.Replies == nil || p.continues.V < 1) {
		e = fault("continues", "", "needs hash_ranges and replies, of which the first is to the row that is continued, and 1 id or more",
			"give them, or leave the key out")
	}
	return row, e
}

// row reads a line that is not blank.
func (p *parser) row(line []byte) (*Row, *RowError) {
	p.line, p.buf, p.place = line, *bytes.NewBuffer(line), -1
	p.stamp = stampNone
	p.dec.Reset(&p.buf)
	p.unknown, p.foreign, p.continues, p.done = p.unknown[:0], p.foreign[:0], Opt[int64]{}, nil
	if k := p.dec.PeekKind(); k != '{' && k != jsontext.KindInvalid {
		if e := p.skip(); e != nil { // a word that only begins like null is not null
			return nil, e
		}
		return nil, fault("", kindNames[k], "a row must be a JSON object", "write one object on each line")
	}
	r := new(Row)
	if e := p.members(r, "", p.fields); e != nil {
		if p.place < 0 {
			p.place = int(p.dec.InputOffset())
		}
		return nil, e
	}
	if _, err := p.dec.ReadToken(); !errors.Is(err, io.EOF) {
		e := fault("", "", "there is something after the row's object", "write one object on each line")
		e.Err = errSyntax
		return nil, e
	}
	return r, p.suggest(r.fault())
}

// fields read the values of an object's members, by name.
type fields map[string]func(p *parser, r *Row) *RowError

var rowFields = fields{
	"timestamp":     func(p *parser, r *Row) *RowError { return p.timestamp(&r.Timestamp) },
	"created_time":  func(p *parser, r *Row) *RowError { return p.timestamp(&r.Timestamp) },
	"delay":         func(p *parser, r *Row) *RowError { return p.milliseconds("delay", &r.Delay) },
	"delay_ms":      func(p *parser, r *Row) *RowError { return p.milliseconds("delay", &r.Delay) },
	"tool_wait_ms":  func(p *parser, r *Row) *RowError { return p.milliseconds("tool_wait_ms", &r.ToolWait) },
	"wait_for":      func(p *parser, r *Row) *RowError { return p.texts("wait_for", &r.WaitFor) },
	"wait_evidence": (*parser).evidence,
	"input_length":  func(p *parser, r *Row) *RowError { return p.count("input_length", &r.InputLength) },
	"input_tokens":  func(p *parser, r *Row) *RowError { return p.count("input_length", &r.InputLength) },
	"output_length": func(p *parser, r *Row) *RowError { return p.count("output_length", &r.OutputLength) },
	"output_tokens": func(p *parser, r *Row) *RowError { return p.count("output_length", &r.OutputLength) },
	"hash_ids":      (*parser).ids,
	"hash_ranges":   (*parser).ranges,
	"replies":       (*parser).replies,
	"images":        (*parser).images,
	"continues":     func(p *parser, _ *Row) *RowError { return p.count("continues", &p.continues) },
	"text_input": func(p *parser, r *Row) *RowError {
		r.TextInput.Set = p.dec.PeekKind() == '"'
		return p.text("text_input", &r.TextInput.V)
	},
	"messages":     func(p *parser, r *Row) *RowError { return p.raw("messages", '[', &r.Messages) },
	"tools":        func(p *parser, r *Row) *RowError { return p.raw("tools", '[', &r.Tools) },
	"payload":      func(p *parser, r *Row) *RowError { return p.raw("payload", '{', &r.Payload) },
	"extra":        func(p *parser, r *Row) *RowError { return p.raw("extra", '{', &r.Extra) },
	"message_mode": func(p *parser, r *Row) *RowError { return p.text("message_mode", &r.MessageMode) },
	"session_id":   func(p *parser, r *Row) *RowError { return p.text("session_id", &r.SessionID) },
	"request_id":   func(p *parser, r *Row) *RowError { return p.text("request_id", &r.RequestID) },
	"model":        func(p *parser, r *Row) *RowError { return p.text("model", &r.Model) },
	"class":        (*parser).class,
	"policy_class": (*parser).class, // Dynamo's name
	"slo_class":    (*parser).class, // BLIS's name
	"priority":     (*parser).priority,
	"otel":         (*parser).spanRef,
	"observed": func(p *parser, r *Row) *RowError {
		return p.object(r, "observed", "cached_tokens, ttft_ms, duration_ms or finish_reason", observedFields)
	},
	"transformations": (*parser).transformations,
	"type":            func(p *parser, _ *Row) *RowError { return p.discriminator() },
	"result":          func(p *parser, _ *Row) *RowError { return p.skip() }, // added to the row by a replay of ours
	"sent":            func(p *parser, _ *Row) *RowError { return p.skip() }, // what the prompt was made of, next to the payload that was sent
}

var observedFields = fields{
	"cached_tokens": func(p *parser, r *Row) *RowError { return p.count("observed.cached_tokens", &r.Observed.CachedTokens) },
	"ttft_ms":       func(p *parser, r *Row) *RowError { return p.milliseconds("observed.ttft_ms", &r.Observed.TTFT) },
	"duration_ms":   func(p *parser, r *Row) *RowError { return p.milliseconds("observed.duration_ms", &r.Observed.Duration) },
	"finish_reason": func(p *parser, r *Row) *RowError { return p.text("observed.finish_reason", &r.Observed.FinishReason) },
}

var spanFields = fields{
	"trace_id": func(p *parser, r *Row) *RowError { return p.hexID(r.OTel.TraceID[:]) },
	"span_id":  func(p *parser, r *Row) *RowError { return p.hexID(r.OTel.SpanID[:]) },
}

// foreignFields are fields that have a meaning in other tools and no effect here.
var foreignFields = map[string]bool{
	// Dynamo
	"output_token_ids": true, "strict_priority": true,
	"routing_constraints": true, "request_kind": true, "branches": true, "prefix_reset": true, "tool_events": true,
	// AIPerf
	"context_mode": true, "group_id": true,
}

// members reads an object. within is its name and a dot, empty for the row itself.
func (p *parser) members(r *Row, within string, known fields) *RowError {
	if _, err := p.dec.ReadToken(); err != nil {
		return p.syntax(err)
	}
	for p.dec.PeekKind() != '}' {
		quoted, err := p.dec.ReadValue()
		if err != nil {
			return p.syntax(err)
		}
		name := quoted[1 : len(quoted)-1]
		read := known[string(name)]
		if read == nil && bytes.IndexByte(name, '\\') >= 0 {
			name, _ = jsontext.AppendUnquote(nil, quoted)
			read = known[string(name)]
		}
		var e *RowError
		switch {
		case read != nil:
			e = read(p, r)
		case within == "" && foreignFields[string(name)]:
			e = p.foreignField(r, string(name))
		default:
			p.unknown = append(p.unknown, clip(strconv.Quote(within+string(name))))
			e = p.skip()
		}
		if e != nil {
			return e
		}
	}
	_, err := p.dec.ReadToken()
	return p.syntax(err)
}

// object reads a member that is an object; null is absent.
func (p *parser) object(r *Row, field, members string, known fields) *RowError {
	switch k := p.dec.PeekKind(); k {
	case '{':
		return p.members(r, field+".", known)
	case 'n', jsontext.KindInvalid:
		return p.skip()
	default:
		return fault(field, kindNames[k], "must be an object with "+members, correctOrOmit)
	}
}

// value reads the next value. Nil without an error means null: absent.
func (p *parser) value(field string, want jsontext.Kind) (jsontext.Value, *RowError) {
	v, err := p.dec.ReadValue()
	if err != nil {
		return nil, p.syntax(err)
	}
	k := v.Kind()
	switch {
	case k == want:
		return v, nil
	case k == 'n':
		return nil, nil
	case k == '"' && want == '0':
		return nil, fault(field, kindNames[k], "must be "+kindNames[want], numberAdvice(v))
	}
	return nil, fault(field, kindNames[k], "must be "+kindNames[want], correctOrOmit)
}

// numberAdvice returns advice for a string in place of a number.
func numberAdvice(v jsontext.Value) string {
	text, _ := jsontext.AppendUnquote(nil, v)
	if _, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err == nil {
		return "write it without quotes"
	}
	return correctOrOmit
}

func (p *parser) skip() *RowError { return p.syntax(p.dec.SkipValue()) }

// number reads a number. It is an error if the field has been set before, under another name. Nil without an error means null: absent.
func (p *parser) number(field string, before bool) (jsontext.Value, *RowError) {
	v, e := p.value(field, '0')
	if v != nil && before {
		return nil, givenTwice(field)
	}
	return v, e
}

func givenTwice(field string) *RowError {
	return fault(field, "", "is given twice, under its name and under an alias", "keep one of the two")
}

func notFinite(field string, v jsontext.Value) *RowError {
	return fault(field, clip(string(v)), "is not a finite number", "correct the row")
}

func (p *parser) milliseconds(field string, to *Opt[float64]) *RowError {
	v, e := p.number(field, to.Set)
	if v == nil {
		return e
	}
	ms, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return notFinite(field, v)
	}
	*to = Some(ms)
	return nil
}

// class reads the name of a class. It is an error if the class has been set before, under another name.
func (p *parser) class(r *Row) *RowError {
	if r.Class != "" {
		return givenTwice("class")
	}
	return p.text("class", &r.Class)
}

// priority reads a positive or negative integer.
func (p *parser) priority(r *Row) *RowError {
	v, e := p.number("priority", r.Priority.Set)
	if v == nil {
		return e
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return fault("priority", clip(string(v)), "must be an integer, as engines require", correctOrOmit)
	}
	r.Priority = Some(n)
	return nil
}

// count reads an integer. 512.0 is an integer: some writers have only floats.
func (p *parser) count(field string, to *Opt[int64]) *RowError {
	v, e := p.number(field, to.Set)
	if v == nil {
		return e
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(v), 64)
		switch {
		case err != nil || math.Abs(f) > 1<<53: // too large even for a float
			return tooLong(field, clip(string(v)))
		case f != math.Trunc(f):
			return fault(field, clip(string(v)), "must be an integer", "a request has no part of a token; correct the row")
		}
		n = int64(f)
	}
	*to = Some(n)
	return nil
}

func (p *parser) ids(r *Row) *RowError {
	n, e := p.integers("hash_ids", 0, "")
	if n != nil {
		ids := make([]uint64, len(n))
		copy(ids, n)
		r.HashIDs = ids
	}
	return e
}

// integers reads an array of unsigned integers or, with a size, an array of arrays of that size. It returns all integers one after another;
// they are valid until the next call. Nil without an error means null: absent. The array must be valid JSON. Numbers are never converted to
// floats.
func (p *parser) integers(field string, size int, advice string) ([]uint64, *RowError) {
	v, e := p.value(field, '[')
	if v == nil {
		return nil, e
	}
	out := append(p.integersRead[:0], 0)[:0] // not nil
	bad := func(rule string) ([]uint64, *RowError) {
		return nil, fault(field, element(len(out)/size), rule, advice)
	}
	no := func(f integerFault) ([]uint64, *RowError) {
		if size == 0 {
			return nil, fault(field, element(len(out)), f.alone, f.advice)
		}
		return bad(f.inside)
	}
	inside, n := size == 0, 0 // within an array, and the number of its integers
	for i := 1; i < len(v)-1; {
		switch c := v[i]; {
		case c >= '0' && c <= '9' && inside && (n < size || size == 0):
			x := uint64(c - '0')
			for i++; v[i] >= '0' && v[i] <= '9'; i++ {
				d := uint64(v[i] - '0')
				if x > math.MaxUint64/10 || x*10+d < d {
					return no(above)
				}
				x = x*10 + d
			}
			if c := v[i]; c == '.' || c|0x20 == 'e' {
				return no(fraction)
			}
			out = append(out, x)
			n++
		case c == ',' || c <= ' ':
			i++
		case !inside && c == '[':
			inside, n = true, 0
			i++
		case !inside:
			return bad("is not an array")
		case c == ']' && n == size:
			inside = false
			i++
		case c == ']':
			return bad(fmt.Sprintf("holds %d numbers, not %d", n, size))
		case c == '-':
			return no(negative)
		case c < '0' || c > '9':
			return no(noInteger)
		default:
			out = out[:len(out)-n]
			return bad(fmt.Sprintf("holds more than %d numbers", size))
		}
	}
	p.integersRead = out
	return out, nil
}

// integerFault has the error texts for an id, and for an integer within an array.
type integerFault struct{ alone, advice, inside string }

var (
	negative  = integerFault{"is negative", "write ids as unsigned integers below 2^64", "holds a negative number"}
	above     = integerFault{"is above 2^64-1", negative.advice, "holds a number above 2^64-1"}
	noInteger = integerFault{"is not an integer", negative.advice + ", without quotes", "holds something that is not an integer"}
	fraction  = integerFault{noInteger.alone, "a float cannot hold a 64-bit id exactly", noInteger.inside}
)

func (p *parser) text(field string, to *string) *RowError {
	v, e := p.value(field, '"')
	if v == nil {
		return e
	}
	if bytes.IndexByte(v, '\\') < 0 {
		*to = string(v[1 : len(v)-1])
		return nil
	}
	b, err := jsontext.AppendUnquote(nil, v)
	*to = string(b)
	return p.syntax(err)
}

func (p *parser) raw(field string, want jsontext.Kind, to *json.RawMessage) *RowError {
	v, e := p.value(field, want)
	*to = bytes.Clone(v)
	return e
}

func (p *parser) foreignField(r *Row, name string) *RowError {
	v, err := p.dec.ReadValue()
	if err != nil || v.Kind() == 'n' {
		return p.syntax(err)
	}
	if r.Foreign == nil {
		r.Foreign = make(map[string]json.RawMessage)
	}
	r.Foreign[name] = bytes.Clone(v)
	p.foreign = append(p.foreign, name)
	return nil
}

// transformations reads the list of transformations. A trace that came through a pipe has it on its last row, because it has no sidecar.
func (p *parser) transformations(*Row) *RowError {
	v, e := p.value("transformations", '[')
	if v != nil && json.Unmarshal(v, &p.done) != nil {
		return fault("transformations", "", "is not what a transformation writes on its last row", correctOrOmit)
	}
	return e
}

// discriminator accepts the type that AIPerf allows, and refuses rows of other types.
func (p *parser) discriminator() *RowError {
	var s string
	e := p.text("type", &s)
	if e == nil && s != "" && s != "mooncake_trace" {
		return fault("type", word(s), "is not mooncake_trace: the file is of another format", "convert it to Mooncake rows first")
	}
	return e
}

// spanRef reads otel: {trace_id, span_id}, both in hex.
func (p *parser) spanRef(r *Row) *RowError {
	isObject := p.dec.PeekKind() == '{'
	e := p.object(r, "otel", "trace_id and span_id", spanFields)
	if e == nil && isObject && r.OTel.IsZero() {
		return badSpanRef
	}
	return e
}

var badSpanRef = fault("otel", "", "must have a trace_id of 32 and a span_id of 16 hexadecimal digits, not all zero",
	correctOrOmit)

func (p *parser) hexID(to []byte) *RowError {
	var s string
	if e := p.text("otel", &s); e != nil {
		return e
	}
	if len(s) != 2*len(to) {
		return badSpanRef
	}
	if _, err := hex.Decode(to, []byte(s)); err != nil {
		return badSpanRef
	}
	return nil
}

// clip shortens a text of a foreign file for a message.
func clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

var kindNames = map[jsontext.Kind]string{
	'{': "an object", '[': "an array", '"': "a string", '0': "a number", 't': "a boolean", 'f': "a boolean", 'n': "null",
	'}': "not JSON", ']': "not JSON",
}
