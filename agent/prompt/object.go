// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object that keeps the order of its members and the bytes of their values. A name occurs once.
type object []member

type member struct {
	name  string
	raw   []byte // the value, unless it is generated
	value []part
}

// draft is a body before it becomes parts.
type draft struct {
	object
	prompt []part // of the member that has the prompt
	digits []byte // of the values that are numbers

	model  string // of the last body
	quoted []byte // the same as JSON
}

// setModel sets the model, which is mostly the same as in the last body.
func (d *draft) setModel(model string) {
	if model != d.model || d.quoted == nil {
		d.model, d.quoted = model, quote(nil, model)
	}
	d.set("model", d.quoted)
}

// number returns a value that is a number.
func (d *draft) number(n int64) []byte {
	from := len(d.digits)
	d.digits = strconv.AppendInt(d.digits, n, 10)
	return d.digits[from:len(d.digits):len(d.digits)]
}

// drafts are reused. This is safe, because [object.parts] copies what it returns.
var drafts = sync.Pool{New: func() any { return &draft{object: make(object, 0, 16)} }}

// free gives a draft back. Nothing may refer to its members or its prompt.
func (d *draft) free() {
	clear(d.object)
	clear(d.prompt)
	d.object, d.prompt, d.digits = d.object[:0], d.prompt[:0], d.digits[:0]
	drafts.Put(d)
}

var errNotObject = errors.New("not a JSON object")

// parseObject reads an object; empty input and null give empty objects. If a name occurs twice, the later value counts, as for most
// readers. Values alias data. The error never quotes it.
func parseObject(data []byte) (object, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return nil, nil
	}
	var o object
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if token, err := dec.ReadToken(); err != nil || token.Kind() != jsontext.KindBeginObject {
		return nil, errNotObject
	}
	for dec.PeekKind() == jsontext.KindString {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, syntaxError(dec)
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, syntaxError(dec)
		}
		end := int(dec.InputOffset())
		o.set(key, data[end-len(value):end])
	}
	if _, err := dec.ReadToken(); err != nil || int(dec.InputOffset()) != len(data) {
		return nil, syntaxError(dec)
	}
	return o, nil
}

func syntaxError(dec *jsontext.Decoder) error {
	return fmt.Errorf("%w: syntax error after byte %d", errNotObject, dec.InputOffset())
}

// get returns a member's value; nil if it is absent, or generated.
func (o object) get(name string) []byte {
	if i := o.index(name); i >= 0 {
		return o[i].raw
	}
	return nil
}

func (o object) has(name string) bool { return o.index(name) >= 0 }

func (o object) index(name string) int {
	return slices.IndexFunc(o, func(m member) bool { return m.name == name })
}

// integer returns a member's value if it is a whole number above 0, else 0.
func (o object) integer(name string) int64 {
	n, err := strconv.ParseInt(string(o.get(name)), 10, 64)
	if err != nil {
		return 0
	}
	return max(0, n)
}

// set sets a member's value. A new member is added at the end.
func (o *object) set(name string, value []byte) { o.setMember(member{name: name, raw: value}) }

// setParts sets a member to a value that may be generated.
func (o *object) setParts(name string, value []part) {
	if len(value) == 1 && value[0].raw != nil {
		o.set(name, value[0].raw)
		return
	}
	o.setMember(member{name: name, value: value})
}

func (o *object) setMember(m member) {
	if i := o.index(m.name); i >= 0 {
		(*o)[i] = m
		return
	}
	*o = append(*o, m)
}

// merge sets the members of other.
func (o *object) merge(other object) {
	for _, m := range other {
		o.setMember(m)
	}
}

func (o *object) remove(names ...string) {
	*o = slices.DeleteFunc(*o, func(m member) bool { return slices.Contains(names, m.name) })
}

// parts returns the object as parts of a body.
func (o object) parts() []part {
	out := make([]part, 0, 3) // before the prompt, the prompt, after it
	text := make([]byte, 0, 256)
	add := func(p part) {
		if p.raw != nil && len(p.raw) <= 512 { // small enough to copy
			text = append(text, p.raw...)
			return
		}
		if len(text) > 0 {
			out = append(out, part{raw: slices.Clip(text)})
			text = text[len(text):] // the rest of its capacity, if there is any
		}
		out = append(out, p)
	}
	text = append(text, '{')
	for i, m := range o {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(quote(text, m.name), ':')
		if m.value == nil {
			add(part{raw: m.raw})
		}
		for _, p := range m.value {
			add(p)
		}
	}
	text = append(text, '}')
	return append(out, part{raw: text})
}

// oneLine removes line breaks from JSON that becomes part of a body, so that the body can be stored as a line of a trace.
func oneLine(raw jsontext.Value) jsontext.Value {
	if !bytes.ContainsAny(raw, "\r\n") {
		return raw
	}
	short := raw.Clone()
	if short.Compact(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return raw // the caller's parser reports errors
	}
	return short
}

// quote appends s as a JSON string. Invalid UTF-8 becomes U+FFFD, because JSON cannot represent it.
func quote(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// unquoted returns the value of a JSON string, or "".
func unquoted(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	s, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(s)
}

// inner appends s as the inside of a JSON string.
func inner(dst []byte, s string) []byte {
	from := len(dst)
	dst = quote(dst, s)
	copy(dst[from:], dst[from+1:len(dst)-1])
	return dst[:len(dst)-2]
}
