// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// parser turns one line into a row. It is reused from line to line; what a row keeps is copied out of the line.
// jsontext bounds the nesting (10,000), refuses invalid UTF-8 and repeated keys.
type parser struct {
	line    []byte
	buf     bytes.Buffer
	dec     jsontext.Decoder
	unknown []string // quoted names of keys that nobody knows
	foreign []string // names of other tools' fields
	numbers []uint64 // of arrays, until the next one
}

// ParseRow reads one row by itself, without the rows and the sidecar of its trace: what only these tell (how many tokens a block
// has, whether there is the row that a reply belongs to) is not checked. The error is a *[RowError].
func ParseRow(line []byte) (*Row, error) {
	row, e := new(parser).parse(line)
	if e != nil {
		return nil, e
	}
	return row, nil
}

// parse parses a line that is not blank, and checks what the row says by itself.
func (p *parser) parse(line []byte) (*Row, *RowError) {
	row, e := p.row(line)
	if e == nil {
		e = row.fault()
	}
	return row, e
}

// row parses a line that is not blank.
func (p *parser) row(line []byte) (*Row, *RowError) {
	p.line, p.buf = line, *bytes.NewBuffer(line)
	p.dec.Reset(&p.buf)
	p.unknown, p.foreign = p.unknown[:0], p.foreign[:0]
	if k := p.dec.PeekKind(); k != '{' && k != jsontext.KindInvalid {
		if _, err := p.dec.ReadValue(); err != nil { // a first letter does not make null of a word
			return nil, p.syntax(err)
		}
		return nil, &RowError{Value: kindName(k), Rule: "a row must be a JSON object", Advice: "write one object on each line"}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, p.syntax(err)
	}
	r := new(Row)
	for p.dec.PeekKind() != '}' {
		name, err := p.dec.ReadValue()
		if err != nil {
			return nil, p.syntax(err)
		}
		if e := p.field(r, name); e != nil {
			return nil, e
		}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return nil, p.syntax(err)
	}
	if _, err := p.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &RowError{Rule: "there is something after the row's object", Advice: "write one object on each line"}
	}
	return r, nil
}

// field reads the value of one key. A name with an escape in it is unknown, or foreign, or it is spelled out.
func (p *parser) field(r *Row, quoted jsontext.Value) *RowError {
	if bytes.IndexByte(quoted, '\\') >= 0 {
		if s, err := unquote(quoted); err == nil {
			quoted = strconv.AppendQuote(nil, s)
		}
	}
	switch string(quoted) {
	case `"timestamp"`, `"created_time"`:
		return p.milliseconds("timestamp", &r.Timestamp)
	case `"delay"`, `"delay_ms"`:
		return p.milliseconds("delay", &r.Delay)
	case `"input_length"`, `"input_tokens"`:
		return p.count("input_length", &r.InputLength)
	case `"output_length"`, `"output_tokens"`:
		return p.count("output_length", &r.OutputLength)
	case `"hash_ids"`:
		return p.ids(r)
	case `"hash_ranges"`:
		return p.ranges(r)
	case `"replies"`:
		return p.replies(r)
	case `"text_input"`:
		v, e := p.value("text_input", '"')
		if v == nil || e != nil {
			return e
		}
		s, err := unquote(v)
		if err != nil {
			return p.syntax(err)
		}
		r.TextInput = Some(s)
		return nil
	case `"messages"`:
		return p.raw("messages", '[', &r.Messages)
	case `"tools"`:
		return p.raw("tools", '[', &r.Tools)
	case `"payload"`:
		return p.raw("payload", '{', &r.Payload)
	case `"extra"`:
		return p.raw("extra", '{', &r.Extra)
	case `"message_mode"`:
		return p.text("message_mode", &r.MessageMode)
	case `"session_id"`:
		return p.text("session_id", &r.SessionID)
	case `"request_id"`:
		return p.text("request_id", &r.RequestID)
	case `"model"`:
		return p.text("model", &r.Model)
	case `"otel"`:
		return p.spanRef(r)
	case `"observed"`:
		return p.observed(r)
	case `"type"`:
		return p.discriminator()
	case `"result"`: // what a replay of ours adds to a row
		return p.skip()
	}
	name := string(quoted[1 : len(quoted)-1])
	if foreignFields[name] {
		return p.foreignField(r, name)
	}
	p.unknown = append(p.unknown, clip(string(quoted)))
	return p.skip()
}

// foreignFields are the fields that other tools give a meaning to and that have no effect here.
var foreignFields = map[string]bool{
	// Dynamo
	"output_token_ids": true, "priority": true, "strict_priority": true, "policy_class": true,
	"routing_constraints": true, "request_kind": true, "wait_for": true, "branches": true, "prefix_reset": true,
	"tool_wait_ms": true, "tool_events": true,
	// AIPerf
	"context_mode": true, "group_id": true,
}

// value reads the next value. Nil without an error means null: absent.
func (p *parser) value(field string, want jsontext.Kind) (jsontext.Value, *RowError) {
	v, err := p.dec.ReadValue()
	if err != nil {
		return nil, p.syntax(err)
	}
	switch k := v.Kind(); k {
	case want:
		return v, nil
	case 'n':
		return nil, nil
	default:
		advice := "correct the row, or leave the key out"
		if k == '"' && want == '0' {
			advice = numberAdvice(field, v)
		}
		return nil, &RowError{Field: field, Value: kindName(k), Rule: "must be " + kindName(want), Advice: advice}
	}
}

// numberAdvice says what to do about a string where a number must be.
func numberAdvice(field string, v jsontext.Value) string {
	s, err := unquote(v)
	if err != nil {
		s = ""
	}
	if _, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil {
		return "write it without quotes"
	}
	switch _, err := time.Parse(time.DateOnly, s[:min(len(s), len(time.DateOnly))]); { // of a date with a time, too
	case field != "timestamp" && field != "delay":
		return "correct the row, or leave the key out"
	case field == "timestamp" && err == nil:
		return "it looks like a date, and milliseconds from any instant on are wanted: convert it, " +
			"for instance with jq -c '.timestamp |= fromdateiso8601 * 1000' (whole seconds in UTC)"
	}
	return "write milliseconds as a number, from any instant on"
}

func (p *parser) skip() *RowError {
	if err := p.dec.SkipValue(); err != nil {
		return p.syntax(err)
	}
	return nil
}

// twice is the answer to a field that came under its name and its alias.
func twice(field string) *RowError {
	return &RowError{Field: field, Rule: "is given twice, under its name and under an alias", Advice: "keep one of the two"}
}

func (p *parser) milliseconds(field string, to *Opt[float64]) *RowError {
	v, e := p.value(field, '0')
	if v == nil || e != nil {
		return e
	}
	if to.Set {
		return twice(field)
	}
	ms, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return &RowError{Field: field, Value: clip(string(v)), Rule: "is not a finite number", Advice: "correct the row"}
	}
	*to = Some(ms)
	return nil
}

// count reads an integer. 512.0 is one: some writers know only floats.
func (p *parser) count(field string, to *Opt[int64]) *RowError {
	v, e := p.value(field, '0')
	if v == nil || e != nil {
		return e
	}
	if to.Set {
		return twice(field)
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(string(v), 64)
		switch {
		case ferr != nil || math.Abs(f) > 1<<53: // ferr says that it is beyond even a float
			return tooLong(field, clip(string(v)))
		case f != math.Trunc(f):
			return &RowError{Field: field, Value: clip(string(v)), Rule: "must be an integer", Advice: "a request has no part of a token; correct the row"}
		}
		n = int64(f)
	}
	*to = Some(n)
	return nil
}

// ids reads hash_ids. The array is valid JSON when it gets here; ids never pass through a float.
func (p *parser) ids(r *Row) *RowError {
	v, e := p.value("hash_ids", '[')
	if v == nil || e != nil {
		return e
	}
	ids := make([]uint64, 0, bytes.Count(v, []byte{','})+1)
	for i := 1; i < len(v)-1; {
		c := v[i]
		switch {
		case c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n':
			i++
			continue
		case c >= '0' && c <= '9':
		case c == '-':
			return &RowError{
				Field: "hash_ids", Value: "element " + strconv.Itoa(len(ids)), Rule: "is negative",
				Advice: "write ids as unsigned integers below 2^64",
			}
		default:
			return &RowError{
				Field: "hash_ids", Value: "element " + strconv.Itoa(len(ids)), Rule: "is not an integer",
				Advice: "write ids as unsigned integers below 2^64, without quotes",
			}
		}
		var id uint64
		for ; v[i] >= '0' && v[i] <= '9'; i++ {
			d := uint64(v[i] - '0')
			if id > (math.MaxUint64-d)/10 {
				return &RowError{
					Field: "hash_ids", Value: "element " + strconv.Itoa(len(ids)), Rule: "is above 2^64-1",
					Advice: "write ids as unsigned integers below 2^64",
				}
			}
			id = id*10 + d
		}
		if c := v[i]; c == '.' || c|0x20 == 'e' {
			return &RowError{
				Field: "hash_ids", Value: "element " + strconv.Itoa(len(ids)), Rule: "is not an integer",
				Advice: "a float cannot hold a 64-bit id exactly",
			}
		}
		ids = append(ids, id)
	}
	r.HashIDs = ids
	return nil
}

func (p *parser) text(field string, to *string) *RowError {
	v, e := p.value(field, '"')
	if v == nil || e != nil {
		return e
	}
	s, err := unquote(v)
	if err != nil {
		return p.syntax(err)
	}
	*to = s
	return nil
}

func (p *parser) raw(field string, want jsontext.Kind, to *json.RawMessage) *RowError {
	v, e := p.value(field, want)
	if v == nil || e != nil {
		return e
	}
	*to = bytes.Clone(v)
	return nil
}

func (p *parser) foreignField(r *Row, name string) *RowError {
	v, err := p.dec.ReadValue()
	if err != nil {
		return p.syntax(err)
	}
	if v.Kind() == 'n' {
		return nil
	}
	if r.Foreign == nil {
		r.Foreign = make(map[string]json.RawMessage)
	}
	r.Foreign[name] = bytes.Clone(v)
	p.foreign = append(p.foreign, name)
	return nil
}

// discriminator accepts the type that AIPerf allows and refuses rows that call themselves something else.
func (p *parser) discriminator() *RowError {
	var s string
	if e := p.text("type", &s); e != nil {
		return e
	}
	if s != "" && s != "mooncake_trace" {
		return &RowError{
			Field: "type", Value: word(s), Rule: "is not mooncake_trace: the file is of another format",
			Advice: "convert it to Mooncake rows first",
		}
	}
	return nil
}

// object reads an object member by member. found is false for null: absent.
func (p *parser) object(field, members string, member func(name string) *RowError) (found bool, e *RowError) {
	switch k := p.dec.PeekKind(); k {
	case 'n', jsontext.KindInvalid:
		return false, p.skip()
	case '{':
	default:
		return false, &RowError{
			Field: field, Value: kindName(k), Rule: "must be an object with " + members,
			Advice: "correct the row, or leave the key out",
		}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return false, p.syntax(err)
	}
	for p.dec.PeekKind() != '}' {
		name, err := p.dec.ReadToken()
		if err != nil {
			return false, p.syntax(err)
		}
		if e := member(name.String()); e != nil {
			return false, e
		}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return false, p.syntax(err)
	}
	return true, nil
}

// stranger skips the value of a member that nobody knows, and notes its name.
func (p *parser) stranger(name string) *RowError {
	p.unknown = append(p.unknown, clip(strconv.Quote(name)))
	return p.skip()
}

// spanRef reads otel: {trace_id, span_id}, both in hex.
func (p *parser) spanRef(r *Row) *RowError {
	found, e := p.object("otel", "trace_id and span_id", func(name string) *RowError {
		var to []byte
		switch name {
		case "trace_id":
			to = r.OTel.TraceID[:]
		case "span_id":
			to = r.OTel.SpanID[:]
		default:
			return p.stranger("otel." + name)
		}
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
	})
	if found && r.OTel.IsZero() {
		return badSpanRef
	}
	return e
}

var badSpanRef = &RowError{
	Field: "otel", Rule: "must have a trace_id of 32 and a span_id of 16 hexadecimal digits, not all zero",
	Advice: "correct the row, or leave the key out",
}

// unquote returns the text of a JSON string.
func unquote(v jsontext.Value) (string, error) {
	if bytes.IndexByte(v, '\\') < 0 && len(v) >= 2 {
		return string(v[1 : len(v)-1]), nil
	}
	b, err := jsontext.AppendUnquote(nil, v)
	return string(b), err
}

// clip bounds what of a foreign file is repeated in messages.
func clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "not JSON"
	}
}
