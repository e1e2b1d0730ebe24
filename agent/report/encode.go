// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"math"
	"strconv"
)

// This file writes a result as encoding/json does, byte for byte, but member by member and without reflection: the result of each request
// is written while others are sent, and this way takes a fifth of the time. TestAppendIsJSON compares the two for every field.

// append appends the result as a JSON object. It returns an error if a number has no form in JSON.
func (r *result) append(dst []byte) ([]byte, error) {
	m := memberWriter{dst: append(dst, '{')}
	m.always(`"outcome":`)
	m.dst = appendText(m.dst, r.Outcome)
	m.text(`"reason":`, r.Reason)
	m.text(`"message":`, r.Message)
	m.always(`"row":`)
	m.dst = strconv.AppendInt(m.dst, r.Row, 10)
	m.always(`"turn":`)
	m.dst = strconv.AppendInt(m.dst, int64(r.Turn), 10)
	m.text(`"request_model":`, r.Model)

	m.optional(`"intended":`, r.Intended)
	m.optional(`"dispatched":`, r.Dispatched)
	m.optional(`"admitted":`, r.Admitted)
	m.optional(`"start":`, r.Start)
	m.optional(`"wire":`, r.Wire)
	m.flag(`"wire_unknown":`, r.WireLate)
	m.optional(`"first_event":`, r.FirstEvent)
	m.optional(`"first":`, r.First)
	m.optional(`"first_answer":`, r.Answer)
	m.optional(`"last":`, r.Last)
	m.optional(`"end":`, r.End)

	m.optional(`"lateness_ms":`, r.Lateness)
	m.number(`"excused_ms":`, r.Excused)
	m.number(`"spread_ms":`, r.Spread)
	m.optional(`"ttft_ms":`, r.TTFT)
	m.optional(`"latency_ms":`, r.Latency)
	m.optional(`"itl_ms":`, r.ITL)
	if len(r.Gaps) > 0 {
		m.always(`"gaps_ms":`)
		for i, gap := range r.Gaps {
			m.dst = append(m.dst, "[,"[min(i, 1)])
			m.float(gap)
		}
		m.dst = append(m.dst, ']')
	}
	m.count(`"coalesced":`, int64(r.Coalesced))
	if len(r.Tokens) > 0 {
		m.always(`"chunk_tokens":`)
		for i, n := range r.Tokens {
			m.dst = strconv.AppendInt(append(m.dst, "[,"[min(i, 1)]), int64(n), 10)
		}
		m.dst = append(m.dst, ']')
	}
	m.flag(`"whole":`, r.Whole)
	m.flag(`"embedding":`, r.Embedding)
	m.flag(`"kernel_stamps":`, r.Kernel)
	if p := r.Phases; p != nil {
		m.open(`"phases_ms":`)
		m.number(`"blocked":`, p.Blocked)
		m.number(`"dns":`, p.DNS)
		m.number(`"connect":`, p.Connect)
		m.number(`"tls":`, p.TLS)
		m.number(`"sending":`, p.Sending)
		m.number(`"waiting":`, p.Waiting)
		m.number(`"receiving":`, p.Receiving)
		m.dst = append(m.dst, '}')
	}
	m.count(`"bytes_sent":`, r.BytesSent)
	m.count(`"bytes_read":`, r.BytesRead)

	if u := &r.Usage; *u != (usage{}) {
		m.open(`"usage":`)
		m.known(`"prompt_tokens":`, u.Prompt)
		m.known(`"completion_tokens":`, u.Completion)
		m.known(`"cached_tokens":`, u.Cached)
		m.known(`"reasoning_tokens":`, u.Reasoning)
		m.dst = append(m.dst, '}')
	}
	m.flag(`"cached_tokens_refused":`, r.Refused)
	m.known(`"predicted_cached_tokens":`, r.Predicted)
	m.known(`"predicted_cached_tokens_finest":`, r.Finest)
	m.count(`"predicted_block":`, r.Block)
	m.known(`"output_tokens_asked":`, r.Asked)
	m.known(`"prompt_tokens_sent":`, r.Sized)
	m.known(`"priority":`, r.Priority)
	if len(r.Replies) > 0 {
		m.always(`"replies":`)
		for i, why := range r.Replies {
			m.dst = appendText(append(m.dst, "[,"[min(i, 1)]), why)
		}
		m.dst = append(m.dst, ']')
	}
	m.count(`"carried_reply_tokens":`, r.CarriedTokens)
	m.count(`"invented_reply_tokens":`, r.InventedTokens)

	m.text(`"prompt_agreement":`, r.Prompt)
	m.count(`"prompt_token_error":`, r.PromptError)
	m.text(`"output_agreement":`, r.Output)
	m.flag(`"too_short":`, r.TooShort)
	m.flag(`"tail_cut":`, r.TailCut)
	m.flag(`"template_assumed":`, r.Assumed)

	m.count(`"status":`, int64(r.Status))
	m.count(`"attempts":`, int64(r.Attempts))
	m.count(`"unconnected_attempts":`, int64(r.Unconnected))
	m.count(`"replays":`, int64(r.Replays))
	m.count(`"resent":`, int64(r.Resent))
	m.flag(`"connection_reused":`, r.Reused)
	m.count(`"choices":`, int64(r.Choices))
	m.text(`"finish_reason":`, r.FinishReason)
	m.text(`"server":`, r.Server)
	m.text(`"instance":`, r.Instance)
	m.text(`"response_id":`, r.ResponseID)
	m.text(`"trace_id":`, r.TraceID)
	m.text(`"span_id":`, r.SpanID)
	return append(m.dst, '}'), m.err
}

// memberWriter appends the members of an object; names come with their quotes and the colon.
type memberWriter struct {
	dst []byte
	err error
}

// always begins a member.
func (m *memberWriter) always(name string) {
	if m.dst[len(m.dst)-1] != '{' {
		m.dst = append(m.dst, ',')
	}
	m.dst = append(m.dst, name...)
}

// open begins a member that is an object.
func (m *memberWriter) open(name string) {
	m.always(name)
	m.dst = append(m.dst, '{')
}

func (m *memberWriter) text(name, v string) {
	if v != "" {
		m.always(name)
		m.dst = appendText(m.dst, v)
	}
}

func (m *memberWriter) flag(name string, v bool) {
	if v {
		m.always(name)
		m.dst = append(m.dst, "true"...)
	}
}

func (m *memberWriter) count(name string, v int64) {
	if v != 0 {
		m.known(name, &v)
	}
}

func (m *memberWriter) known(name string, v *int64) {
	if v != nil {
		m.always(name)
		m.dst = strconv.AppendInt(m.dst, *v, 10)
	}
}

func (m *memberWriter) number(name string, v float64) {
	if v != 0 {
		m.optional(name, &v)
	}
}

func (m *memberWriter) optional(name string, v *float64) {
	if v != nil {
		m.always(name)
		m.float(*v)
	}
}

// float appends a number. Most are milliseconds with three decimals at most: their digits are those of a whole number of µs, and to search
// for the shortest decimal that is the same float takes three times as long.
func (m *memberWriter) float(v float64) {
	const exact = 1e15 // two different decimals of up to 15 digits are different floats
	if micro := math.Round(v * 1e3); v >= 0 && micro < exact && micro/1e3 == v && !math.Signbit(v) {
		n := uint64(micro)
		m.dst = strconv.AppendUint(m.dst, n/1e3, 10)
		if n %= 1e3; n > 0 {
			m.dst = append(m.dst, '.', '0'+byte(n/100))
			if n %= 100; n > 0 {
				m.dst = append(m.dst, '0'+byte(n/10))
				if n %= 10; n > 0 {
					m.dst = append(m.dst, '0'+byte(n))
				}
			}
		}
		return
	}
	m.marshal(v)
}

// marshal appends a value of a rare form, as encoding/json does.
func (m *memberWriter) marshal(v any) {
	text, err := json.Marshal(v)
	if err != nil && m.err == nil {
		m.err = err
	}
	m.dst = append(m.dst, text...)
}

// appendText appends a string.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // a string is always valid
			return append(dst, text...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}
