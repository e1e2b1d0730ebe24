// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/semconv"
)

// The reply to a request becomes a message of the next prompt. It is useful only if it is written in the same form: by the same walk over
// the same forms. Doubtful replies are left out: an unknown reply costs little, but a wrong one makes two conversations share text that they
// do not share.

// Reply is the unread reply of a span or log record. It refers to the telemetry and to buffers of the [Reader]: walk it before either
// changes.
type Reply struct {
	source
	calls pcommon.Value // of formParts
	plain bool          // a value that is not a document is the text itself

	outputTokens, reasoningTokens Opt[int64]
	called                        bool // the reply ended with a tool call
	walked                        bool
}

// Walk calls visit for the pieces of the reply as for a message of a prompt, role first. It returns true if that was the whole and only
// reply, text and calls. If it returns false, the visited pieces must not be used: there are several replies or none, or a part is (or may
// be) missing, cut, redacted or not text.
func (r *Reply) Walk(visit func(Piece) bool) bool {
	r.walked = true
	if !r.Present() {
		return false
	}
	w := &r.reader.walker
	w.begin(visit)
	defer w.end()
	t := &w.main
	t.reset()
	if r.form == formParts {
		r.walkParts(w)
	} else {
		n := r.load(t)
		if r.replyTools(t); len(r.reader.record.Tools.Made) == 0 && r.prefix != "" && r.form == formDocument {
			w.side.loadFlat(r.attributes, r.prefix) // the document may be incomplete
			r.replyTools(&w.side)
			w.side.reset()
		}
		if n < 0 || t.cut || t.gaps {
			return false
		}
		w.message(t, n, assistant)
	}
	if w.cut || w.gaps || w.hole || w.stopped || w.media || t.cut || w.opened != assistant || w.seen.Messages != 1 || w.seen.Bytes == 0 {
		return false
	}
	return r.plausible(w)
}

// plausible reports whether the visited pieces can be everything that the server generated: a call with which it ended, reasoning that was
// counted, and at least one byte for each token, except those of the template.
func (r *Reply) plausible(w *walker) bool {
	const templateTokens = 32
	thoughts := w.kinds&(1<<PieceReasoning|1<<PieceOther) != 0
	return (!r.called || w.kinds&(1<<PieceToolCall) != 0) && (r.reasoningTokens.V == 0 || thoughts) &&
		(!r.outputTokens.Set || r.outputTokens.V <= w.seen.Bytes+templateTokens)
}

// load parses the reply into a tree and returns its message, or a negative index: none or several.
func (r *Reply) load(t *tree) int32 {
	switch r.form {
	case formFlat:
		return r.loadFlat(t)
	case formList:
		t.load(r.value)
		return t.choiceOf(0)
	case formChoice:
		if content, ok := r.attributes.Get(azureContent); !ok {
			t.addMap(r.attributes, 0)
		} else if content.Type() != pcommon.ValueTypeStr || !t.parse(content.Str()) {
			return none
		}
		return t.choice(0)
	default: // formDocument
		t.load(r.value)
		if t.kind(0) == nodeString && r.plain {
			return 0
		}
		n := t.reply(0)
		if (n == none || t.cut) && r.prefix != "" {
			n = r.loadFlat(t)
		}
		return n
	}
}

// loadFlat reads flattened messages, of which there must be one.
func (r *Reply) loadFlat(t *tree) int32 {
	t.loadFlat(r.attributes, r.prefix)
	return t.only(0)
}

// choice returns the message of a choice, or none if its index says that it is not the first one.
func (t *tree) choice(n int32) int32 {
	if t.kind(n) != nodeObject || t.int(t.get(n, "index")).V > 0 {
		return none
	}
	if message := t.get(n, "message"); message != none {
		return message
	}
	if t.get(n, "content", "parts", "tool_calls") != none {
		return n
	}
	return none
}

// choiceOf returns the message of the only choice in a list of events.
func (t *tree) choiceOf(list int32) int32 {
	found := none
	for i := range t.values(list) {
		if t.str(t.get(i, "event.name")) == eventChoice {
			if found != none {
				return none
			}
			found = i
		}
	}
	return t.choice(found)
}

// only returns the only member of a list if it is an object, otherwise none.
func (t *tree) only(list int32) int32 {
	n := list + 1
	if t.kind(list) != nodeArray || n == t.nodes[list].next || t.nodes[n].next != t.nodes[list].next || t.kind(n) != nodeObject {
		return none
	}
	return n
}

// several is the index for more than one node.
const several = int32(-2)

// reply returns the message of the reply in a document: the response of an API, a list of one message, or a message. A text that happens to
// be JSON is not among these. For several choices it returns several.
func (t *tree) reply(n int32) int32 {
	if t.kind(n) == nodeArray {
		n = t.only(n)
	}
	if t.kind(n) != nodeObject || t.bool(t.get(n, "partial")).V { // Google's Agent Development Kit
		return none
	}
	if list := t.get(n, "choices", "candidates"); t.kind(list) == nodeArray { // of OpenAI; of Gemini and genkit
		if t.nodes[list].next > list+1 && t.only(list) == none {
			return several
		}
		return t.object(t.get(t.only(list), "message", "content"))
	}
	switch output := t.get(n, "output"); t.kind(output) {
	case nodeArray: // the responses API: each item would be a message of its own
		return t.only(output)
	case nodeObject: // Bedrock
		return t.object(t.get(output, "message"))
	default:
	}
	if message := t.object(t.get(n, "message")); message != none {
		return message
	}
	if content := t.get(n, "content"); t.get(content, "parts") != none { // Gemini
		return content
	}
	if t.role(n, "") != "" {
		return n
	}
	return none
}

// object returns a node that is an object, or none.
func (t *tree) object(n int32) int32 {
	if t.kind(n) != nodeObject {
		return none
	}
	return n
}

// walkParts visits a text and the calls in a separate attribute.
func (r *Reply) walkParts(w *walker) {
	t := &w.main
	w.open(assistant)
	switch r.value.Type() {
	case pcommon.ValueTypeEmpty:
	case pcommon.ValueTypeStr:
		t.addPlain(r.value.Str())
		w.text(PieceText, t.nodes[0])
	default:
		w.gaps = true
	}
	if r.calls.Type() != pcommon.ValueTypeEmpty {
		t.load(r.calls)
		r.replyTools(t)
		w.gaps = w.gaps || t.kind(0) != nodeArray || t.cut
		for i := range t.values(0) {
			w.call(t, i)
		}
	}
	w.shut(false)
}

// findReply determines where the reply is in attributes.
func (r *Reader) findReply(attributes pcommon.Map, dropped bool) {
	s, rec := &r.scan, &r.record
	p := &rec.Reply
	switch operation := s.operation(); {
	case rec.Choices.V > 1, rec.ErrorType != "", operation == "text_completion", operation == "completion" && rec.Dialect != DialectLiteLLM:
		return // the next prompt after a completion is a longer text
	}
	p.attributes = attributes
	name := s.name(fieldReply)
	prefix, flat := strings.CutSuffix(name, "*")
	switch {
	case flat:
		if !dropped {
			p.form, p.prefix = formFlat, prefix
		}
	case name == "output.value":
		if s.marks&markFlatOutput != 0 && !dropped {
			p.prefix = flatOutput // in case there is no document
		}
		mime, ok := attributes.Get("output.mime_type")
		switch text := ok && strings.HasPrefix(toText(mime), "text/plain"); {
		case !text:
			p.choose(s.values[fieldReply], formDocument)
		case p.prefix != "": // a text has no calls
			p.form = formFlat
		}
	case name != "":
		p.choose(s.values[fieldReply], formDocument)
		p.plain = name == "langfuse.observation.output"
	case s.has(fieldReplyReasoning): // it is unknown whether the reasoning is sent again
	case (s.has(fieldReplyText) || s.has(fieldReplyCalls)) && !dropped:
		p.choose(s.values[fieldReplyText], formParts)
		p.calls = s.values[fieldReplyCalls]
	case s.name(fieldContent) == contentEvents:
		p.choose(s.values[fieldContent], formList)
	}
}

// findReplyEvents looks for the reply in the events of a span.
func (r *Reader) findReplyEvents(span ptrace.Span) {
	p := &r.record.Reply
	if p.Present() || span.DroppedEventsCount() > 0 || r.record.Choices.V > 1 || r.record.ErrorType != "" {
		return
	}
	for _, event := range span.Events().All() {
		switch name := event.Name(); name {
		case eventChoice:
			if p.Present() { // several
				p.form = formNone
				return
			}
			p.form, p.attributes = formChoice, event.Attributes()
		case "gen_ai.content.completion", semconv.EventInferenceDetails:
			if v, ok := firstOf(event.Attributes(), semconv.GenAIOutputMessages, semconv.GenAICompletion); ok {
				p.choose(v, formDocument)
			}
		}
	}
}

// boundReply records the facts with which a reply is checked.
func (r *Reader) boundReply() {
	rec := &r.record
	p := &rec.Reply
	p.outputTokens, p.reasoningTokens = rec.OutputTokens, rec.ReasoningTokens
	if len(rec.FinishReasons) > 0 {
		reason := rec.FinishReasons[0]
		p.called = strings.Contains(reason, "tool") || strings.Contains(reason, "function_call")
	}
}
