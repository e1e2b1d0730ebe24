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

// Writer writes rows as JSON lines, in the exact style of the public traces. Each Write makes one call to the
// underlying writer, which should be buffered.
type Writer struct {
	w    io.Writer
	buf  []byte
	rows int64
}

// NewWriter returns a writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Rows returns the number of rows written.
func (w *Writer) Rows() int64 { return w.rows }

// Write writes one row. It refuses a row that a reader would refuse ([Row.Validate]) or whose raw fields
// are not JSON.
func (w *Writer) Write(row *Row) error {
	if err := row.Validate(); err != nil {
		return fmt.Errorf("row %d cannot be written: %w", w.rows+1, err)
	}
	for name, raw := range row.Foreign {
		if !jsontext.Value(raw).IsValid() {
			return fmt.Errorf("row %d cannot be written: %s is not valid JSON", w.rows+1, clip(name))
		}
	}
	w.buf = append(AppendRow(w.buf[:0], row), '\n')
	if _, err := w.w.Write(w.buf); err != nil {
		return fmt.Errorf("row %d was not written: %w", w.rows+1, err)
	}
	w.rows++
	return nil
}

// AppendRow appends the row as one JSON object without a newline, and returns the extended slice. The four fields of
// the public traces come first, in their order, then hash_ranges, replies, text_input, messages, tools, message_mode, payload, extra,
// delay, session_id, request_id, model, otel, observed, then foreign fields by name. Absent fields are left out. The row must
// be valid ([Row.Validate]); a timestamp or delay that JSON has no number for becomes null.
func AppendRow(dst []byte, row *Row) []byte {
	o := object{dst: append(dst, '{')}
	if row.Timestamp.Set {
		o.milliseconds("timestamp", row.Timestamp.V)
	}
	if row.InputLength.Set {
		o.integer("input_length", row.InputLength.V)
	}
	if row.OutputLength.Set {
		o.integer("output_length", row.OutputLength.V)
	}
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
	o.sharing(row)
	if row.TextInput.Set {
		o.text("text_input", row.TextInput.V)
	}
	o.raw("messages", row.Messages)
	o.raw("tools", row.Tools)
	o.nonEmpty("message_mode", row.MessageMode)
	o.raw("payload", row.Payload)
	o.raw("extra", row.Extra)
	if row.Delay.Set {
		o.milliseconds("delay", row.Delay.V)
	}
	o.nonEmpty("session_id", row.SessionID)
	o.nonEmpty("request_id", row.RequestID)
	o.nonEmpty("model", row.Model)
	if !row.OTel.IsZero() {
		o.key("otel")
		o.dst = append(o.dst, `{"trace_id": "`...)
		o.dst = hex.AppendEncode(o.dst, row.OTel.TraceID[:])
		o.dst = append(o.dst, `", "span_id": "`...)
		o.dst = hex.AppendEncode(o.dst, row.OTel.SpanID[:])
		o.dst = append(o.dst, `"}`...)
	}
	o.observed(row.Observed)
	if len(row.Foreign) > 0 {
		for _, name := range slices.Sorted(maps.Keys(row.Foreign)) {
			o.raw(name, row.Foreign[name])
		}
	}
	return append(o.dst, '}')
}

// object writes the members of a JSON object with the separators ", " and ": ".
type object struct {
	dst    []byte
	filled bool
}

func (o *object) key(name string) {
	if o.filled {
		o.dst = append(o.dst, ", "...)
	}
	o.filled = true
	o.dst = appendString(o.dst, name)
	o.dst = append(o.dst, ": "...)
}

func (o *object) integer(name string, n int64) {
	o.key(name)
	o.dst = strconv.AppendInt(o.dst, n, 10)
}

// milliseconds writes an integer where it is one, else the shortest decimal that reads back as the same number.
func (o *object) milliseconds(name string, ms float64) {
	o.key(name)
	switch {
	case isInteger(ms):
		o.dst = strconv.AppendInt(o.dst, int64(ms), 10)
	case math.IsNaN(ms) || math.IsInf(ms, 0):
		o.dst = append(o.dst, "null"...)
	default:
		o.dst = strconv.AppendFloat(o.dst, ms, 'f', -1, 64)
	}
}

func (o *object) text(name, s string) {
	o.key(name)
	o.dst = appendString(o.dst, s)
}

func (o *object) nonEmpty(name, s string) {
	if s != "" {
		o.text(name, s)
	}
}

// raw writes JSON as it is, unless it holds a line break, which would end the row.
func (o *object) raw(name string, v json.RawMessage) {
	if v == nil {
		return
	}
	o.key(name)
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
	dst, _ = jsontext.AppendQuote(dst, s) // reports invalid UTF-8 after having replaced it
	return dst
}
