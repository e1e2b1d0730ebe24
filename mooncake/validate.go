// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Values of Row.MessageMode.
const (
	MessageHistory = "history" // messages have the whole conversation; the default
	MessageDelta   = "delta"   // messages have only the new turn
)

// maxTokens is the maximum of both lengths, so that sums over a trace and block arithmetic cannot overflow.
const maxTokens = 1 << 40

// maxTime is the maximum time, in milliseconds: above it, floats cannot represent every millisecond.
const maxTime = 1 << 53

// Validate returns the first error that makes the row meaningless by itself, as a *[RowError]: no prompt or two, a length out of range, a
// field without the field that it belongs to. The [Checker] has the rules between rows.
func (r *Row) Validate() error {
	if e := r.fault(); e != nil {
		return e
	}
	return nil
}

// fault is Validate with the concrete error type, to which the reader adds file and line.
func (r *Row) fault() *RowError {
	for _, rule := range []func(*Row) *RowError{faultSource, faultNumbers, faultRanges, faultReplies, faultImages, faultMessages, faultBody, faultGraph, faultObserved} {
		if e := rule(r); e != nil {
			return e
		}
	}
	return nil
}

var noPrompt = fault("", "", "the row has no prompt", "give exactly one of input_length, text_input, messages, payload")

// faultSource checks that exactly one field has the prompt.
func faultSource(r *Row) *RowError {
	source := ""
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
		case source != "":
			return fault(f.name, "", "the row already has its prompt from "+source, "keep one of the two")
		default:
			source = f.name
		}
	}
	switch {
	case source == "":
		return noPrompt
	case r.HashIDs != nil && !r.InputLength.Set:
		return fault("hash_ids", "", "needs input_length, the number of tokens that the blocks cover",
			"give input_length, or remove hash_ids")
	}
	return nil
}

// faultNumbers checks that numbers are finite and in range.
func faultNumbers(r *Row) *RowError {
	const rule, advice = "must be a finite number of milliseconds, 0 or more and at most 2^53",
		"count times from the first row, or from 1970"
	if e := cmp.Or(faultTime("timestamp", r.Timestamp, rule, advice), faultTime("delay", r.Delay, rule, advice)); e != nil {
		return e
	}
	switch in, out := r.InputLength, r.OutputLength; {
	case in.Set && in.V <= 0:
		return fault("input_length", in.V, "must be above 0",
			"a request has at least one prompt token; remove the row or correct its count")
	case out.Set && out.V < 0:
		return fault("output_length", out.V, "must be 0 or more", correctOrOmit)
	case in.V > maxTokens:
		return tooLong("input_length", in.V)
	case out.V > maxTokens:
		return tooLong("output_length", out.V)
	}
	return nil
}

// faultTime refuses a number of milliseconds that is not from 0 to maxTime.
func faultTime(field string, ms Opt[float64], rule, advice string) *RowError {
	if !ms.Set || ms.V >= 0 && ms.V <= maxTime { // also false for NaN
		return nil
	}
	return fault(field, ms.V, rule, advice)
}

// tooLong returns the error for a length that is impossible.
func tooLong(field string, value any) *RowError {
	return fault(field, value, "is not a number of tokens: it is above 2^40", "correct the row")
}

// faultMessages checks that messages, tools and message_mode fit together.
func faultMessages(r *Row) *RowError {
	switch mode := r.MessageMode; {
	case mode != "" && mode != MessageHistory && mode != MessageDelta:
		return fault("message_mode", word(mode), "must be history or delta",
			"say whether messages hold the whole conversation or the new turn")
	case r.Messages != nil:
		return cmp.Or(faultObjects("messages", r.Messages, true), faultObjects("tools", r.Tools, false))
	case r.Tools != nil:
		return fault("tools", "", "needs messages", "put them into payload or extra instead")
	case mode == MessageDelta:
		return fault("message_mode", mode, "needs messages", "give messages, or leave message_mode out")
	}
	return nil
}

// faultBody checks that payload and extra are objects, and do not limit the reply to a negative length.
func faultBody(r *Row) *RowError {
	payload, extra := parseBody(r.Payload), parseBody(r.Extra)
	if e := cmp.Or(payload.faultCap("payload"), extra.faultCap("extra")); e != nil {
		return e
	}
	switch {
	case r.Payload != nil && (payload == nil || payload.empty):
		return fault("payload", "", "must be an object with at least one member: the whole request body",
			"give the body as the engine should receive it")
	case r.Extra != nil && extra == nil:
		return fault("extra", "", "must be an object", "give the members that the request body should have, or leave it out")
	case extra != nil && bool(extra.Messages) && r.MessageMode == MessageDelta:
		return fault("extra", "", "must not hold messages on a delta row: it would replace the conversation that the turn extends",
			"move them to messages, or remove them")
	}
	return nil
}

// body has the members of a request body for which there is a rule.
type body struct {
	Messages            presence       `json:"messages"`
	MaxTokens           jsontext.Value `json:"max_tokens"`
	MaxCompletionTokens jsontext.Value `json:"max_completion_tokens"`

	empty bool
}

// presence records that a member exists, with any value.
type presence bool

func (p *presence) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*p = true
	return dec.SkipValue()
}

// parseBody reads a body; nil when raw is not a valid object.
func parseBody(raw []byte) *body {
	if jsontext.Value(raw).Kind() != '{' {
		return nil
	}
	b := new(body)
	if json.Unmarshal(raw, b) != nil {
		return nil
	}
	b.empty = raw[bytes.IndexAny(raw, `"}`)] == '}' // it has no member before its end
	return b
}

// faultCap checks that a body does not ask for a negative number of tokens. Engines refuse such a number, or treat it as unlimited.
func (b *body) faultCap(field string) *RowError {
	if b == nil {
		return nil
	}
	for i, limit := range [...]jsontext.Value{b.MaxTokens, b.MaxCompletionTokens} {
		if limit.Kind() != '0' {
			continue
		}
		if n, err := strconv.ParseFloat(string(limit), 64); err == nil && n < 0 {
			name := [...]string{"max_tokens", "max_completion_tokens"}[i]
			return fault(field+"."+name, n, "must not be below 0", "give the number of tokens that the reply may have, or leave it out")
		}
	}
	return nil
}

// faultObjects checks that raw is absent, or an array of objects that is not empty. If roles is set, each object must have a role.
func faultObjects(field string, raw []byte, roles bool) *RowError {
	if raw == nil {
		return nil
	}
	bad := func(rule string) *RowError {
		return fault(field, "", rule, "write them as for the chat completions endpoint")
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if dec.PeekKind() != '[' {
		return bad("must be an array of objects")
	}
	_, _ = dec.ReadToken() // the bracket
	n := 0
	for ; dec.PeekKind() != ']'; n++ {
		v, err := dec.ReadValue()
		if err != nil {
			return bad("is not valid JSON")
		}
		var object struct {
			Role presence `json:"role"`
		}
		switch err := json.Unmarshal(v, &object); {
		case v.Kind() != '{':
			return bad(element(n) + " is not an object")
		case err != nil || roles && !bool(object.Role):
			return bad(element(n) + " has no role")
		}
	}
	_, _ = dec.ReadToken() // the other bracket
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return bad("is not valid JSON")
	}
	if n == 0 {
		return bad("must not be empty")
	}
	return nil
}

const wordCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// word returns s if it is a short word that can be shown, else a description of it, because a foreign value may be prompt text.
func word(s string) string {
	switch {
	case len(s) > 32:
		return "a long string"
	case strings.Trim(s, wordCharacters) != "":
		return "a string"
	}
	return strconv.Quote(s)
}
