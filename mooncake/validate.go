// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Values of Row.MessageMode.
const (
	MessageHistory = "history" // messages hold the whole conversation; the default
	MessageDelta   = "delta"   // messages hold the new turn only
)

// maxTokens bounds both lengths, so that sums over a trace and block arithmetic cannot overflow.
const maxTokens = 1 << 40

// maxTime bounds times, in the trace's unit: beyond it a float does not tell one millisecond from the next.
const maxTime = 1 << 53

// Validate reports the first thing that makes the row meaningless by itself, as a *[RowError]: no prompt or two,
// a length out of range, a field without the one that it belongs to. Rules between rows are the [Checker]'s.
func (r *Row) Validate() error {
	if e := r.fault(); e != nil {
		return e
	}
	return nil
}

// fault is Validate with the concrete type, which the reader completes with file and line.
func (r *Row) fault() *RowError {
	for _, rule := range []func(*Row) *RowError{faultSource, faultNumbers, faultRanges, faultReplies, faultMessages, faultBody, faultObserved} {
		if e := rule(r); e != nil {
			return e
		}
	}
	return nil
}

// faultSource: exactly one field gives the prompt.
func faultSource(r *Row) *RowError {
	var first, second string
	for _, f := range [...]struct {
		name string
		set  bool
	}{
		{"input_length", r.InputLength.Set},
		{"text_input", r.TextInput.Set},
		{"messages", r.Messages != nil},
		{"payload", r.Payload != nil},
	} {
		switch {
		case !f.set:
		case first == "":
			first = f.name
		case second == "":
			second = f.name
		}
	}
	switch {
	case first == "":
		return &RowError{
			Rule:   "the row has no prompt",
			Advice: "give exactly one of input_length, text_input, messages, payload",
		}
	case second != "":
		return &RowError{Field: second, Rule: "the row already has its prompt from " + first, Advice: "keep one of the two"}
	case r.HashIDs != nil && !r.InputLength.Set:
		return &RowError{Field: "hash_ids", Rule: "needs input_length, the number of tokens that the blocks cover", Advice: "give input_length, or remove hash_ids"}
	}
	return nil
}

// faultNumbers: numbers are finite and in range.
func faultNumbers(r *Row) *RowError {
	for _, f := range [...]struct {
		name string
		ms   Opt[float64]
	}{{"timestamp", r.Timestamp}, {"delay", r.Delay}} {
		if f.ms.Set && !(f.ms.V >= 0 && f.ms.V <= maxTime) { // NaN, too
			return &RowError{
				Field: f.name, Value: strconv.FormatFloat(f.ms.V, 'g', -1, 64),
				Rule:   "must be a finite number of milliseconds, 0 or more and at most 2^53",
				Advice: "count times from the first row, or from 1970",
			}
		}
	}
	if r.InputLength.Set && r.InputLength.V <= 0 {
		return &RowError{
			Field: "input_length", Value: strconv.FormatInt(r.InputLength.V, 10), Rule: "must be above 0",
			Advice: "a request has at least one prompt token; remove the row or correct its count",
		}
	}
	if r.OutputLength.Set && r.OutputLength.V < 0 {
		return &RowError{
			Field: "output_length", Value: strconv.FormatInt(r.OutputLength.V, 10), Rule: "must be 0 or more",
			Advice: "correct the row, or leave the key out",
		}
	}
	for _, f := range [...]struct {
		name   string
		tokens int64
	}{{"input_length", r.InputLength.V}, {"output_length", r.OutputLength.V}} {
		if f.tokens > maxTokens {
			return tooLong(f.name, strconv.FormatInt(f.tokens, 10))
		}
	}
	return nil
}

// tooLong is the answer to a length that no request has.
func tooLong(field, value string) *RowError {
	return &RowError{Field: field, Value: value, Rule: "is no number of tokens: it is beyond 2^40", Advice: "correct the row"}
}

// faultMessages: messages, tools and message_mode fit together.
func faultMessages(r *Row) *RowError {
	switch r.MessageMode {
	case "", MessageHistory, MessageDelta:
	default:
		return &RowError{
			Field: "message_mode", Value: word(r.MessageMode), Rule: "must be history or delta",
			Advice: "say whether messages hold the whole conversation or the new turn",
		}
	}
	if r.Messages == nil {
		if r.Tools != nil {
			return &RowError{Field: "tools", Rule: "needs messages", Advice: "put them into payload or extra instead"}
		}
		if r.MessageMode == MessageDelta {
			return &RowError{Field: "message_mode", Value: MessageDelta, Rule: "needs messages", Advice: "give messages, or leave message_mode out"}
		}
		return nil
	}
	if e := eachObject("messages", r.Messages, "role"); e != nil {
		return e
	}
	if r.Tools != nil {
		if e := eachObject("tools", r.Tools, ""); e != nil {
			return e
		}
	}
	return nil
}

// faultBody: payload and extra are objects, and cap no reply below 0.
func faultBody(r *Row) *RowError {
	for _, f := range [...]struct {
		name string
		raw  json.RawMessage
	}{{"payload", r.Payload}, {"extra", r.Extra}} {
		if e := faultCap(f.name, f.raw); e != nil {
			return e
		}
	}
	if r.Payload != nil {
		if n, _, ok := members(r.Payload, ""); !ok || n == 0 {
			return &RowError{Field: "payload", Rule: "must be an object with at least one member: the whole request body", Advice: "give the body as the engine shall have it"}
		}
	}
	if r.Extra != nil {
		_, messages, ok := members(r.Extra, "messages")
		if !ok {
			return &RowError{Field: "extra", Rule: "must be an object", Advice: "give the members that the request body shall have, or leave it out"}
		}
		if messages && r.MessageMode == MessageDelta {
			return &RowError{
				Field: "extra", Rule: "must not hold messages on a delta row: it would replace the conversation that the turn extends",
				Advice: "move them to messages, or remove them",
			}
		}
	}
	return nil
}

// faultCap: a body asks for no negative number of tokens, which engines refuse or take for as many as fit.
func faultCap(field string, raw json.RawMessage) *RowError {
	if !bytes.Contains(raw, []byte("_tokens")) {
		return nil
	}
	var caps struct {
		MaxTokens           json.RawMessage `json:"max_tokens"`
		MaxCompletionTokens json.RawMessage `json:"max_completion_tokens"`
	}
	if json.Unmarshal(raw, &caps) != nil {
		return nil // what is no object is told apart elsewhere
	}
	for _, limit := range [...]struct {
		name string
		raw  json.RawMessage
	}{{"max_tokens", caps.MaxTokens}, {"max_completion_tokens", caps.MaxCompletionTokens}} {
		if n, err := strconv.ParseFloat(string(limit.raw), 64); err == nil && n < 0 {
			return &RowError{
				Field: field + "." + limit.name, Value: strconv.FormatFloat(n, 'g', -1, 64), Rule: "must be above 0",
				Advice: "give the number of tokens that the reply may have, or leave it out",
			}
		}
	}
	return nil
}

// eachObject checks that raw is a non-empty array of objects, each with the wanted key ("" for none).
func eachObject(field string, raw json.RawMessage, key string) *RowError {
	bad := func(rule string) *RowError {
		return &RowError{Field: field, Rule: rule, Advice: "write them as for the chat completions endpoint"}
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if dec.PeekKind() != '[' {
		return bad("must be an array of objects")
	}
	if _, err := dec.ReadToken(); err != nil {
		return bad("is not valid JSON")
	}
	n := 0
	for ; dec.PeekKind() != ']'; n++ {
		v, err := dec.ReadValue()
		if err != nil {
			return bad("is not valid JSON")
		}
		if v.Kind() != '{' {
			return bad("element " + strconv.Itoa(n) + " is not an object")
		}
		if _, has, ok := members(json.RawMessage(v), key); !ok || key != "" && !has {
			return bad("element " + strconv.Itoa(n) + " has no " + key)
		}
	}
	if !ends(dec) {
		return bad("is not valid JSON")
	}
	if n == 0 {
		return bad("must not be empty")
	}
	return nil
}

// ends reads the closing bracket and reports whether nothing follows it.
func ends(dec *jsontext.Decoder) bool {
	if _, err := dec.ReadToken(); err != nil {
		return false
	}
	_, err := dec.ReadToken()
	return errors.Is(err, io.EOF)
}

// members counts the members of an object and looks for one; ok is false when raw is not a valid object.
func members(raw json.RawMessage, key string) (n int, has, ok bool) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if dec.PeekKind() != '{' {
		return 0, false, false
	}
	if _, err := dec.ReadToken(); err != nil {
		return 0, false, false
	}
	for ; dec.PeekKind() != '}'; n++ {
		name, err := dec.ReadToken()
		if err != nil {
			return 0, false, false
		}
		has = has || key != "" && name.String() == key
		if err := dec.SkipValue(); err != nil {
			return 0, false, false
		}
	}
	return n, has, ends(dec)
}

// word returns s when it is a short word that can be shown, else a description of it: a value from outside
// may be anything, prompt text included.
func word(s string) string {
	if len(s) > 32 {
		return "a long string"
	}
	for _, c := range []byte(s) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return "a string"
		}
	}
	return strconv.Quote(s)
}
