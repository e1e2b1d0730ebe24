// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Writer writes rows as JSON lines, in the exact style of the public traces. Each Write makes one call to the underlying writer, which
// should be buffered.
type Writer struct {
	w    io.Writer
	buf  []byte
	rows int64
	recent
	privacy Privacy
	encode  Encode
	end     func(w io.Writer) error
}

// NewWriter returns a writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Encode appends a row to a slice, without a newline, in the format of another tool. It returns the slice, and the part of the row that was
// written: the file reveals no more than that.
type Encode func(dst []byte, row *Row) (out []byte, written *Row, err error)

// EncodeWith sets a function that writes the rows in place of [AppendRow]. If the function appends nothing, the row is not written. end,
// unless it is nil, is called by [Writer.End]. EncodeWith must be called before the first row.
func (w *Writer) EncodeWith(encode Encode, end func(w io.Writer) error) {
	w.encode, w.end = encode, end
}

// End writes the end of the file in the format of another tool, or the whole file if rows of a session are written together. It must be
// called once, after the last row.
func (w *Writer) End() error {
	if w.end == nil {
		return nil
	}
	return w.end(w.w)
}

// Rows returns the number of rows written.
func (w *Writer) Rows() int64 { return w.rows }

// Write writes one row. It refuses a row that a reader would refuse ([Row.Validate]) or whose raw fields are not JSON.
func (w *Writer) Write(row *Row) error {
	if err := row.Validate(); err != nil {
		return fmt.Errorf("row %d cannot be written: %w", w.rows+1, err)
	}
	for name, raw := range row.Foreign {
		if !jsontext.Value(raw).IsValid() {
			return fmt.Errorf("row %d cannot be written: %s is not valid JSON", w.rows+1, clip(name))
		}
	}
	of, continues := w.without(row, w.rows)
	if continues == 0 {
		of = prefix{row.HashRanges, row.Replies}
	}
	written := row
	if w.encode == nil {
		w.buf = appendRow(w.buf[:0], row, of, continues)
	} else {
		var err error
		if w.buf, written, err = w.encode(w.buf[:0], row); err != nil {
			return err
		}
	}
	if len(w.buf) > 0 {
		w.buf = append(w.buf, '\n')
	}
	w.recent.add(w.rows, row)
	w.privacy.add(written)
	if _, err := w.w.Write(w.buf); err != nil {
		return fmt.Errorf("row %d was not written: %w", w.rows+1, err)
	}
	w.rows++
	return nil
}

// AppendRow appends the row as one JSON object without a newline, and returns the extended slice. For a row that continues another one, a
// [Writer] writes less. The four fields of the public traces come first, in their order, then continues, hash_ranges, replies, images,
// text_input, messages, tools, message_mode, payload, extra, delay, tool_wait_ms, wait_for, wait_evidence, session_id, request_id, model,
// class, priority, otel, observed, then foreign fields by name. Absent fields are left out. The row must be valid ([Row.Validate]); a
// timestamp or delay that JSON has no number for becomes null.
func AppendRow(dst []byte, row *Row) []byte {
	return appendRow(dst, row, prefix{row.HashRanges, row.Replies}, 0)
}

// appendRow appends a row with other ranges and replies: those that it adds to the row that it continues.
func appendRow(dst []byte, row *Row, of prefix, continues int64) []byte {
	o := object{dst: append(dst, '{')}
	o.milliseconds("timestamp", row.Timestamp)
	o.integer("input_length", row.InputLength)
	o.integer("output_length", row.OutputLength)
	if row.HashIDs != nil {
		o.key("hash_ids")
		o.dst = append(o.dst, '[')
		for i, id := range row.HashIDs {
			if i > 0 {
				o.dst = append(o.dst, ", "...)
			}
			o.dst = strconv.AppendUint(o.dst, id, 10)
		}
		o.dst = append(o.dst, ']')
	}
	o.sharing(of, continues)
	o.images(row.Images)
	if row.TextInput.Set {
		o.key("text_input")
		o.dst = appendString(o.dst, row.TextInput.V)
	}
	o.raw("messages", row.Messages)
	o.raw("tools", row.Tools)
	o.text("message_mode", row.MessageMode)
	o.raw("payload", row.Payload)
	o.raw("extra", row.Extra)
	o.milliseconds("delay", row.Delay)
	o.milliseconds("tool_wait_ms", row.ToolWait)
	o.texts("wait_for", row.WaitFor)
	o.texts("wait_evidence", EvidenceNames(row.Evidence))
	o.text("session_id", row.SessionID)
	o.text("request_id", row.RequestID)
	o.text("model", row.Model)
	o.text("class", row.Class)
	o.integer("priority", row.Priority)
	if !row.OTel.IsZero() {
		o.key("otel")
		o.dst = hex.AppendEncode(append(o.dst, `{"trace_id": "`...), row.OTel.TraceID[:])
		o.dst = hex.AppendEncode(append(o.dst, `", "span_id": "`...), row.OTel.SpanID[:])
		o.dst = append(o.dst, `"}`...)
	}
	if v := row.Observed; !v.IsZero() {
		o.key("observed")
		observed := object{dst: append(o.dst, '{')}
		observed.integer("cached_tokens", v.CachedTokens)
		observed.milliseconds("ttft_ms", v.TTFT)
		observed.milliseconds("duration_ms", v.Duration)
		observed.text("finish_reason", v.FinishReason)
		o.dst = append(observed.dst, '}')
	}
	if len(row.Foreign) > 0 {
		for _, name := range slices.Sorted(maps.Keys(row.Foreign)) {
			if v := row.Foreign[name]; v != nil {
				o.separate()
				o.dst = append(appendString(o.dst, name), ": "...)
				o.json(v)
			}
		}
	}
	return append(o.dst, '}')
}

// object writes the members of a JSON object with the separators ", " and ": ". Absent members are left out.
type object struct {
	dst    []byte
	filled bool
}

// key begins a member. Its name needs no escapes.
func (o *object) key(name string) {
	o.separate()
	o.dst = append(append(append(o.dst, '"'), name...), `": `...)
}

func (o *object) separate() {
	if o.filled {
		o.dst = append(o.dst, ", "...)
	}
	o.filled = true
}

func (o *object) integer(name string, n Opt[int64]) {
	if n.Set {
		o.key(name)
		o.dst = strconv.AppendInt(o.dst, n.V, 10)
	}
}

// milliseconds writes an integer if the number is one, else the shortest decimal that reads back as the same number.
func (o *object) milliseconds(name string, ms Opt[float64]) {
	if !ms.Set {
		return
	}
	o.key(name)
	ns := math.Round(ms.V * 1e6)
	switch {
	case isInteger(ms.V):
		o.dst = strconv.AppendInt(o.dst, int64(ms.V), 10)
	case ms.V > 0 && ms.V < 1<<32 && ns/1e6 == ms.V:
		o.dst = appendNanoseconds(o.dst, uint64(ns))
	case math.IsNaN(ms.V) || math.IsInf(ms.V, 0):
		o.dst = append(o.dst, "null"...)
	default:
		o.dst = strconv.AppendFloat(o.dst, ms.V, 'f', -1, 64)
	}
}

// appendNanoseconds appends ns, which are not a whole number of ms, in ms. Below 2^32 ms, where floats are less than 1 ns apart, no shorter
// decimal is the same float. This takes a third of the time of searching for the shortest one.
func appendNanoseconds(dst []byte, ns uint64) []byte {
	const each = 1_000_000
	dst = append(strconv.AppendUint(dst, ns/each, 10), '.')
	var digits [6]byte
	for i, part := len(digits)-1, ns%each; i >= 0; i, part = i-1, part/10 {
		digits[i] = '0' + byte(part%10)
	}
	return append(dst, bytes.TrimRight(digits[:], "0")...)
}

// isInteger reports whether a float holds an integer exactly.
func isInteger(f float64) bool { return f == math.Trunc(f) && math.Abs(f) <= 1<<53 }

func (o *object) text(name, s string) {
	if s != "" {
		o.key(name)
		o.dst = appendString(o.dst, s)
	}
}

// texts writes an array of strings; nil is absent.
func (o *object) texts(name string, all []string) {
	if all == nil {
		return
	}
	o.key(name)
	o.dst = append(o.dst, '[')
	for i, s := range all {
		if i > 0 {
			o.dst = append(o.dst, ", "...)
		}
		o.dst = appendString(o.dst, s)
	}
	o.dst = append(o.dst, ']')
}

// tuple writes element i of an array of arrays, without spaces between its numbers, because a turn of a long conversation has many.
func (o *object) tuple(i int, numbers ...uint64) {
	if i > 0 {
		o.dst = append(o.dst, ',')
	}
	for i, n := range numbers {
		o.dst = strconv.AppendUint(append(o.dst, "[,,"[i]), n, 10)
	}
	o.dst = append(o.dst, ']')
}

// sharing writes hash_ranges and replies, and, if the row continues another one, how many ids it has from that row.
func (o *object) sharing(of prefix, continues int64) {
	if continues > 0 {
		o.integer("continues", Some(continues))
	}
	if of.ranges != nil {
		o.key("hash_ranges")
		o.dst = append(o.dst, '[')
		for i, h := range of.ranges {
			o.tuple(i, h.First, uint64(h.Count)) //nolint:gosec // 1 or more
		}
		o.dst = append(o.dst, ']')
	}
	if len(of.replies) > 0 {
		o.key("replies")
		o.dst = append(o.dst, '[')
		for i, r := range of.replies {
			o.tuple(i, uint64(r.Back), uint64(r.At), uint64(r.Tokens)) //nolint:gosec // 1 or more
		}
		o.dst = append(o.dst, ']')
	}
}

// raw writes a member with the given JSON.
func (o *object) raw(name string, v json.RawMessage) {
	if v != nil {
		o.key(name)
		o.json(v)
	}
}

// json writes JSON unchanged, unless it contains a line break, which would end the row.
func (o *object) json(v json.RawMessage) {
	if bytes.ContainsAny(v, "\r\n") {
		w := jsontext.Value(bytes.Clone(v))
		if w.Compact() != nil {
			w = jsontext.Value("null")
		}
		v = json.RawMessage(w)
	}
	o.dst = append(o.dst, v...)
}

// appendString appends s as a JSON string; bytes that are not UTF-8 become the replacement character.
func appendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // reports invalid UTF-8 after replacing it
	return dst
}
