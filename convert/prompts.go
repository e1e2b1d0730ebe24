// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// Prompts says what happens to the prompts in formats that have them.
type Prompts string

// The choices. The zero Prompts is PromptsHash.
const (
	PromptsHash Prompts = "hash" // they are processed as telemetry, and no text is kept
	PromptsKeep Prompts = "keep" // rows contain them unchanged
)

// prompt has the parts of a request that are not in its row, for formats with prompts.
type prompt struct {
	body       []byte // of the whole request; nil if only parts are known
	reply      []byte // messages, as JSON; nil if unknown
	attributes []byte // of a span, a JSON object; replaces everything else
}

// exchange reads a request from the bodies that were sent to and received from an OpenAI-compatible API.
func exchange(in, out *record) *request {
	row := &mooncake.Row{Model: in.name("model"), Messages: in.raw("messages"), Tools: in.raw("tools")}
	if row.Messages == nil && in.has("prompt", "inputs") {
		row.TextInput = mooncake.Some(in.text("prompt", "inputs"))
	}
	q := &request{row: row, prompt: &prompt{body: in.whole()}}
	in.known("stream", "stream_options") // a replay sets its own
	q.usage(out.object("usage"))
	out.known("id", "object", "created", "model")
	out.objects(func(c *record) {
		if row.Observed.FinishReason == "" {
			row.Observed.FinishReason = c.reason("finish_reason")
		}
		if m := c.raw("message"); m != nil && q.prompt.reply == nil {
			q.prompt.reply = append(append([]byte{'['}, m...), ']')
		}
	}, "choices")
	return q
}

// usage reads the token counts that a server reported.
func (q *request) usage(u *record) {
	q.row.InputLength, q.row.OutputLength = u.count("prompt_tokens", "input_tokens"), u.count("completion_tokens", "output_tokens")
	q.row.Observed.CachedTokens = u.object("prompt_tokens_details", "input_tokens_details").count("cached_tokens")
	u.known("total_tokens")
}

// keepPrompt makes the request's row contain the prompt unchanged.
func (q *request) keepPrompt() {
	row, p := q.row, q.prompt
	switch {
	case p == nil:
		return
	case p.body != nil:
		row.Messages, row.Tools, row.TextInput, row.Payload = nil, nil, mooncake.Opt[string]{}, p.body
	case row.Messages == nil && !row.TextInput.Set:
		return
	}
	if string(row.Tools) == "[]" {
		row.Tools = nil
	}
	row.InputLength, row.HashIDs, row.Observed.CachedTokens = mooncake.Opt[int64]{}, nil, mooncake.Opt[int64]{}
}

// span returns a request as the span that an application would have sent. The span's ids follow from the request's position in the files.
func (q *request) span(file int, seq int64) ptrace.Traces {
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	h := fnv.New128a()
	_ = binary.Write(h, binary.BigEndian, [2]int64{int64(file), seq}) // never fails
	id := h.Sum(nil)
	span.SetTraceID(pcommon.TraceID(id))
	span.SetSpanID(pcommon.SpanID(id[:8]))
	span.SetKind(ptrace.SpanKindClient)
	row, a := q.row, span.Attributes()
	span.SetStartTimestamp(pcommon.Timestamp(q.at)) //nolint:gosec // above 0
	if t := row.Observed.Duration; t.Set {
		span.SetEndTimestamp(span.StartTimestamp() + pcommon.Timestamp(t.V*float64(time.Millisecond)))
	}
	if q.prompt.attributes != nil {
		q.flat(a)
		return td
	}
	operation := semconv.OperationChat
	for name, text := range map[string]string{
		semconv.GenAIRequestModel: row.Model, semconv.GenAIConversationID: row.SessionID, semconv.GenAIResponseID: row.RequestID,
		semconv.GenAIInputMessages: string(row.Messages), semconv.GenAIToolDefinitions: string(row.Tools), semconv.GenAIOutputMessages: string(q.prompt.reply),
	} {
		if text != "" {
			a.PutStr(name, text)
		}
	}
	if row.TextInput.Set {
		operation = semconv.OperationTextCompletion
		a.PutStr(semconv.GenAIPrompt, row.TextInput.V)
	}
	a.PutStr(semconv.GenAIOperationName, operation)
	for name, n := range map[string]mooncake.Opt[int64]{
		semconv.GenAIUsageInputTokens: row.InputLength, semconv.GenAIUsageOutputTokens: row.OutputLength, semconv.GenAIUsageCacheReadTokens: row.Observed.CachedTokens,
	} {
		if n.Set {
			a.PutInt(name, n.V)
		}
	}
	if t := row.Observed.TTFT; t.Set {
		a.PutDouble(semconv.GenAIResponseTimeToFirstChunk, t.V/1e3)
	}
	if why := row.Observed.FinishReason; why != "" {
		a.PutEmptySlice(semconv.GenAIResponseFinishReasons).AppendEmpty().SetStr(why)
	}
	return td
}

// flat copies the recorded attributes, and adds the session if they have none.
func (q *request) flat(to pcommon.Map) {
	var raw map[string]any
	dec := json.NewDecoder(bytes.NewReader(q.prompt.attributes))
	dec.UseNumber()
	_ = dec.Decode(&raw) // cannot fail: the object was parsed before
	for name, v := range raw {
		n, isNumber := v.(json.Number)
		whole, err := n.Int64()
		switch f, ferr := n.Float64(); {
		case !isNumber:
		case err == nil:
			raw[name] = whole
		case ferr == nil:
			raw[name] = f
		default:
			raw[name] = n.String() // too large for a float
		}
	}
	_ = to.FromRaw(raw) // a value of another type becomes a string
	if _, there := to.Get(semconv.GenAIConversationID); !there && q.row.SessionID != "" {
		to.PutStr(semconv.GenAIConversationID, q.row.SessionID)
	}
}

// requests reads a record of a format with prompts.
func (t *telemetry) requests(record []byte) error {
	if fault := t.rows.read(record); fault != nil {
		return fault
	}
	for _, q := range t.rows.out {
		if q.at <= 0 {
			t.lost.add("requests", string(reasonNoTime), 1)
			continue
		}
		t.made++
		td := q.span(t.rows.file, t.made)
		t.annotated.Add(t.annotator.Traces(td))
		spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
		for i := range spans.Len() {
			spans.At(i).Attributes().PutBool(semconv.Synthetic, true) // no backend has such a span
		}
		if err := t.records(td); err != nil {
			return err
		}
	}
	return nil
}

// whole returns a copy of an object's JSON.
func (r *record) whole() []byte { return bytes.Clone(r.source) }

// text reads a text of any length.
func (r *record) text(names ...string) string {
	f := r.find(names...)
	switch {
	case f == nil:
		return ""
	case f.json == nil:
		return f.cell
	case f.json.Kind() != '"':
		r.fail(f.name, "", "must be a string", "")
		return ""
	}
	return unquoted(f.json)
}

// encoded returns the object in a field, which is decoded from base64 if base is true.
func (r *record) encoded(name string, base bool) *record {
	f := r.find(name)
	if f == nil || !base {
		return r.object(name)
	}
	b, err := base64.StdEncoding.DecodeString(r.text(name))
	o := r.open(f.name, b)
	if err != nil || o == nil {
		r.fail(f.name, "", "must be an object in base64", "")
		return &record{top: r.top}
	}
	return o
}
