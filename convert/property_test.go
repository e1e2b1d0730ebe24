// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// Random conversations in every dialect, with and without missing parts: no two rows share a block with text in which their prompts
// differ, and rows with complete telemetry share all of their common beginning except for at most one block.

type (
	object = map[string]any
	list   = []any
)

// said is a message of a prompt.
type said struct {
	role, text string
	image      []byte
	tokens     int64  // of the image
	call       string // city whose weather the assistant asks for
	answers    bool   // the message is the result of a call

	// Its form in the telemetry.
	absent      bool // its text is not recorded
	unknown     int  // this many bytes of its beginning are in an unknown member
	placeholder bool // the image is not recorded
}

// asked is a prompt, and the facts about its request.
type asked struct {
	tools    bool
	messages []said
	dialect  int
	missing  string // what the telemetry lacks; "" is nothing
	cut      int    // percentage of the attribute that is left; 0 if it is not cut
	unread   bool   // the system's text is in an unknown member
	remote   bool   // all but the last message is on the server
	dropped  bool   // the SDK dropped attributes
	gap      int    // a missing message, or -1
}

const weatherTool = `{"function":{"description":"what the sky does","name":"weather","parameters":{"type":"object"}},"type":"function"}`

func callOf(city string) string {
	return fmt.Sprintf(`{"function":{"arguments":"{\"city\":\"%s\"}","name":"weather"},"id":"c1","type":"function"}`, city)
}

// unit is a piece of a prompt for the engine: text, whose tokens are four bytes each, or an image.
type unit struct {
	text   string
	tokens int64
}

func (a *asked) units() []unit {
	var units []unit
	write := func(s string) {
		if n := len(units); n > 0 && units[n-1].tokens == 0 {
			units[n-1].text += s
			return
		}
		units = append(units, unit{text: s})
	}
	tools := func() {
		if a.tools {
			write("tools\n" + weatherTool + "\n")
		}
	}
	if a.messages[0].role != "system" {
		tools()
	}
	for i, m := range a.messages {
		write(m.role + "\n" + m.text)
		if m.image != nil {
			units = append(units, unit{string(m.image), m.tokens})
		}
		if m.call != "" {
			write(callOf(m.call))
		}
		write("\n")
		if i == 0 && m.role == "system" {
			tools()
		}
	}
	return units
}

const bytesOfToken = 4

func tokensOf(units []unit) int64 {
	var bytes, images int64
	for _, u := range units {
		if u.tokens > 0 {
			images += u.tokens
		} else {
			bytes += int64(len(u.text))
		}
	}
	return bytes/bytesOfToken + images
}

// inCommon returns the number of tokens at the beginning that two prompts share, and whether the prompts are the same.
func inCommon(a, b []unit) (tokens int64, same bool) {
	var begin []unit
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			begin = append(begin, a[i])
			continue
		}
		if a[i].tokens == 0 && b[i].tokens == 0 {
			n := 0
			for n < min(len(a[i].text), len(b[i].text)) && a[i].text[n] == b[i].text[n] {
				n++
			}
			begin = append(begin, unit{text: a[i].text[:n]})
		}
		return tokensOf(begin), false
	}
	return tokensOf(begin), len(a) == len(b)
}

func (m said) url() string {
	if m.placeholder {
		return "__REDACTED__"
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(m.image)
}

func (m said) data() string {
	if m.placeholder {
		return ""
	}
	return base64.StdEncoding.EncodeToString(m.image)
}

// with adds an unknown member to a message.
func (m said) with(o object) object {
	if m.unknown > 0 {
		o["background"] = m.text[:m.unknown]
	}
	return o
}

// seen returns the part of the text that is recorded where it belongs.
func (m said) seen() string { return m.text[m.unknown:] }

// modern is a message in the shape of the conventions.
func (m said) modern() any {
	text := object{"type": "text", "content": m.seen()}
	if m.absent {
		delete(text, "content")
	}
	parts := list{text}
	if m.answers {
		parts = list{object{"type": "tool_call_response", "id": "c1", "response": m.seen()}}
		if m.absent {
			parts = list{object{"type": "tool_call_response", "id": "c1"}}
		}
	}
	if m.image != nil {
		parts = append(parts, object{"type": "blob", "modality": "image", "mime_type": "image/png", "content": m.data()})
	}
	if m.call != "" {
		parts = append(parts, object{"type": "tool_call", "id": "c1", "name": "weather", "arguments": object{"city": m.call}})
	}
	return m.with(object{"role": m.role, "parts": parts})
}

// chat is a message in the shape of the chat completions API.
func (m said) chat() object {
	o := object{"role": m.role, "content": any(m.seen())}
	switch {
	case m.image != nil:
		text := object{"type": "text", "text": m.seen()}
		if m.absent {
			delete(text, "text")
		}
		o["content"] = list{text, object{"type": "image_url", "image_url": object{"url": m.url()}}}
	case m.absent:
		delete(o, "content")
	}
	if m.call != "" {
		o["tool_calls"] = list{object{"id": "c1", "type": "function", "function": object{"name": "weather", "arguments": `{"city":"` + m.call + `"}`}}}
	}
	if m.answers {
		o["tool_call_id"] = "c1"
	}
	return m.with(o)
}

// google returns a message in the shape of Gemini's or genkit's messages; parts is the key of the list of parts.
func (m said) google(parts string, image object) object {
	role := m.role
	if role == "assistant" {
		role = "model"
	}
	all := list{}
	if !m.absent {
		all = append(all, object{"text": m.seen()})
	}
	if m.image != nil {
		all = append(all, image)
	}
	return m.with(object{"role": role, parts: all})
}

func each(messages []said, shape func(said) any) list {
	all := list{}
	for _, m := range messages {
		all = append(all, shape(m))
	}
	return all
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// dialect writes a prompt to a span. doc is the attribute that may be cut.
type dialect struct {
	name          string
	tools, images bool
	write         func(t testing.TB, a *asked, span ptrace.Span, put func(name string, value any))
	doc           string // the attribute that holds the whole prompt as JSON
	body          bool   // doc is the body of a request
	flat          string // prefix of the attributes that hold the prompt
	logs          func(t testing.TB, a *asked, add func(event string) plog.LogRecord)
}

var openAITools = list{object{"type": "function", "function": object{"name": "weather", "description": "what the sky does", "parameters": object{"type": "object"}}}}

// system splits off a leading system message.
func system(messages []said) (string, []said) {
	if messages[0].role == "system" {
		return messages[0].text, messages[1:]
	}
	return "", messages
}

func gemini(a *asked) object {
	lead, rest := system(a.messages)
	body := object{"model": "m", "contents": each(rest, func(m said) any {
		return m.google("parts", object{"inline_data": object{"mime_type": "image/png", "data": m.data()}})
	})}
	if key := "system_instruction"; lead != "" {
		if a.unread {
			key = "persona"
		}
		body["config"] = object{"temperature": 0.5, key: lead}
	}
	return body
}

func openAI(a *asked) object {
	messages := a.messages
	body := object{"model": "m", "stream": true}
	if lead, rest := system(messages); a.unread && lead != "" {
		messages, body["persona"] = rest, lead
	}
	body["messages"] = each(messages, func(m said) any { return m.chat() })
	if a.tools {
		body["tools"] = openAITools
	}
	return body
}

func flatten(a *asked, put func(string, any)) {
	for i, m := range a.messages {
		if i == a.gap {
			continue
		}
		at := fmt.Sprintf("llm.input_messages.%d.message.", i)
		put(at+"role", m.role)
		switch {
		case m.image != nil:
			put(at+"contents.0.message_content.type", "text")
			if !m.absent {
				put(at+"contents.0.message_content.text", m.seen())
			}
			put(at+"contents.1.message_content.type", "image")
			put(at+"contents.1.message_content.image.image.url", m.url())
		case !m.absent:
			put(at+"content", m.seen())
		}
		if m.unknown > 0 {
			put(at+"background", m.text[:m.unknown])
		}
		if m.call != "" {
			put(at+"tool_calls.0.tool_call.id", "c1")
			put(at+"tool_calls.0.tool_call.function.name", "weather")
			put(at+"tool_calls.0.tool_call.function.arguments", `{"city":"`+m.call+`"}`)
		}
	}
	if a.tools {
		put("llm.tools.0.tool.json_schema", weatherTool)
	}
}

var dialects = []dialect{
	{name: "conventions, JSON", tools: true, images: true, doc: "gen_ai.input.messages", write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("gen_ai.input.messages", text(t, each(a.messages, said.modern)))
	}},
	{name: "conventions, structured", tools: true, images: true, write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("gen_ai.input.messages", each(a.messages, said.modern))
	}},
	{name: "conventions, instructions apart", tools: true, images: true, write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		lead, rest := system(a.messages)
		if lead != "" {
			put("gen_ai.system_instructions", text(t, list{object{"type": "text", "content": lead}}))
		}
		put("gen_ai.input.messages", text(t, each(rest, said.modern)))
	}},
	{name: "OpenLIT: instructions twice", tools: true, images: true, doc: "gen_ai.input.messages", write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		if lead, _ := system(a.messages); lead != "" {
			put("gen_ai.system_instructions", text(t, list{object{"type": "text", "content": lead}}))
		}
		put("gen_ai.input.messages", text(t, each(a.messages, said.modern)))
	}},
	{name: "events", tools: true, images: true, write: func(t testing.TB, a *asked, span ptrace.Span, _ func(string, any)) {
		t.Helper()
		for _, m := range a.messages {
			event := span.Events().AppendEmpty()
			event.SetName("gen_ai." + m.role + ".message")
			must(t, event.Attributes().FromRaw(m.chat()))
		}
	}},
	{name: "events of Azure", tools: true, images: true, write: func(t testing.TB, a *asked, span ptrace.Span, _ func(string, any)) {
		t.Helper()
		for _, m := range a.messages {
			event := span.Events().AppendEmpty()
			event.SetName("gen_ai." + m.role + ".message")
			event.Attributes().PutStr("gen_ai.event.content", text(t, m.chat()))
		}
	}},
	{name: "OpenInference, flattened", tools: true, images: true, flat: "llm.input_messages.", write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("openinference.span.kind", "LLM")
		flatten(a, put)
	}},
	{name: "OpenInference, document", tools: true, images: true, doc: "input.value", body: true, write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("openinference.span.kind", "LLM")
		put("input.value", text(t, openAI(a)))
	}},
	{name: "OpenInference of Google", images: true, body: true, write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("openinference.span.kind", "LLM")
		put("input.value", text(t, gemini(a)))
		flatten(a, put)
	}},
	{name: "Google's Agent Development Kit", images: true, doc: "gcp.vertex.agent.llm_request", body: true, write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("gen_ai.system", "gcp.vertex.agent")
		put("gcp.vertex.agent.llm_request", text(t, gemini(a)))
	}},
	{name: "Traceloop, flattened", flat: "gen_ai.prompt.", write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		for i, m := range a.messages {
			at := fmt.Sprintf("gen_ai.prompt.%d.", i)
			if i == a.gap {
				continue
			}
			put(at+"role", m.role)
			if !m.absent {
				put(at+"content", m.seen())
			}
			if m.unknown > 0 {
				put(at+"background", m.text[:m.unknown])
			}
		}
	}},
	{name: "Vercel", images: true, doc: "ai.prompt.messages", write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("ai.operationId", "ai.generateText.doGenerate")
		put("ai.prompt.messages", text(t, each(a.messages, func(m said) any {
			o := m.chat()
			if m.image != nil {
				content := list{object{"type": "text", "text": m.seen()}, object{"type": "image", "image": m.url()}}
				if m.absent {
					content[0] = object{"type": "text"}
				}
				o["content"] = content
			}
			return o
		})))
	}},
	{name: "Langfuse", tools: true, images: true, doc: "langfuse.observation.input", body: true, write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("langfuse.observation.type", "generation")
		put("langfuse.observation.input", text(t, openAI(a)))
	}},
	{name: "genkit", images: true, doc: "genkit:input", body: true, write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("genkit:metadata:subtype", "model")
		body, messages := object{"config": object{"temperature": 0.5}}, a.messages
		if lead, rest := system(messages); a.unread && lead != "" {
			messages, body["docs"] = rest, list{object{"content": list{object{"text": lead}}}}
		}
		body["messages"] = each(messages, func(m said) any {
			return m.google("content", object{"media": object{"contentType": "image/png", "url": m.url()}})
		})
		put("genkit:input", text(t, body))
	}},
	{name: "pydantic-ai", tools: true, images: true, doc: "events", write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		all := each(a.messages, func(m said) any {
			o := m.chat()
			o["event.name"] = "gen_ai." + m.role + ".message"
			if m.image != nil {
				content := list{m.seen(), object{"kind": "binary", "media_type": "image/png", "content": m.data()}}
				if m.absent {
					content[0] = object{"kind": "text"}
				}
				o["content"] = content
			}
			return o
		})
		put("events", text(t, append(all, object{"event.name": "gen_ai.choice", "index": 0, "message": object{"role": "assistant", "content": "a reply"}})))
	}},
	{name: "responses API", images: true, doc: "input.value", body: true, write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("openinference.span.kind", "LLM")
		lead, rest := system(a.messages)
		body := object{"model": "m", "input": each(rest, func(m said) any {
			o := m.chat()
			if m.image != nil {
				content := list{object{"type": "input_text", "text": m.seen()}, object{"type": "input_image", "image_url": m.url()}}
				if m.absent {
					content[0] = object{"type": "input_text"}
				}
				o["content"] = content
			}
			return o
		})}
		switch {
		case lead != "" && a.unread:
			body["persona"] = lead
		case lead != "":
			body["instructions"] = lead
		}
		put("input.value", text(t, body))
	}},
	{name: "log records", images: true, logs: func(t testing.TB, a *asked, add func(string) plog.LogRecord) {
		t.Helper()
		for _, m := range a.messages {
			log := add("gen_ai." + m.role + ".message")
			must(t, log.Body().FromRaw(m.chat()))
		}
	}},
	{name: "one log record", tools: true, images: true, logs: func(t testing.TB, a *asked, add func(string) plog.LogRecord) {
		t.Helper()
		log := add("gen_ai.client.inference.operation.details")
		must(t, log.Attributes().PutEmpty("gen_ai.input.messages").FromRaw(each(a.messages, said.modern)))
		if a.tools {
			must(t, log.Attributes().PutEmpty("gen_ai.tool.definitions").FromRaw(openAITools))
		}
	}},
	{name: "logfire", tools: true, images: true, doc: "request_data", body: true, write: func(t testing.TB, a *asked, _ ptrace.Span, put func(string, any)) {
		t.Helper()
		put("request_data", text(t, openAI(a)))
	}},
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// author writes conversations that have much in common.
type author struct{ *rand.Rand }

var topics = strings.Fields("the quick moon loops over lazy tides while eleven engines hum old songs of prefix and cache under rain é 月 \"quoted\" back\\slash")

// prose returns at least this many bytes of words; the same for the same seed.
func prose(seed uint64, bytes int) string {
	r := rand.New(rand.NewPCG(seed, 7))
	var b strings.Builder
	for b.Len() < bytes {
		b.WriteString(topics[r.IntN(len(topics))])
		b.WriteByte(' ')
	}
	return b.String()
}

// text returns one of a few texts, some of which begin alike.
func (r author) text(kind uint64, longest int) string {
	s := prose(kind*8+r.Uint64N(3), 40+int(r.Uint64N(3))*longest/3)
	if r.IntN(2) == 0 {
		s += prose(kind*8+4+r.Uint64N(3), 60)
	}
	return s
}

func (r author) image() []byte {
	image := make([]byte, 30+r.IntN(3)*20_000)
	image[0] = byte(r.IntN(3))
	return image
}

// conversation returns the prompts of the turns of a random conversation.
func (r author) conversation() []*asked {
	var turns []*asked
	var messages []said
	if r.IntN(5) > 0 {
		messages = append(messages, said{role: "system", text: r.text(1, 12_000)})
	}
	tools := r.IntN(3) == 0
	for range 1 + r.IntN(4) {
		user := said{role: "user", text: r.text(2, 1500)}
		if r.IntN(5) == 0 {
			user.image, user.tokens = r.image(), 0
			user.tokens = 85 + int64(len(user.image))/40 + int64(user.image[0])
		}
		messages = append(messages, user)
		if tools && r.IntN(2) == 0 {
			messages = append(messages, said{role: "assistant", text: "", call: []string{"Bern", "Kyoto"}[r.IntN(2)]}, said{role: "tool", text: r.text(3, 800), answers: true})
		}
		turns = append(turns, &asked{tools: tools, messages: slices.Clone(messages), gap: -1})
		messages = append(messages, said{role: "assistant", text: r.text(4, 900)})
	}
	return turns
}

func (a *asked) images() (n int) {
	for _, m := range a.messages {
		if m.image != nil {
			n++
		}
	}
	return n
}

// tell decides in which dialect a prompt is recorded, and what is missing.
func (r author) tell(a *asked) {
	needTools := a.tools || slices.ContainsFunc(a.messages, func(m said) bool { return m.call != "" || m.answers })
	for {
		a.dialect = r.IntN(len(dialects))
		if d := dialects[a.dialect]; (d.tools || !needTools) && (d.images || a.images() == 0) {
			break
		}
	}
	if r.IntN(3) > 0 {
		return
	}
	for tries := 0; a.missing == "" && tries < 5; tries++ {
		r.lose(a)
	}
}

// lose removes something from the telemetry, if it exists there.
func (r author) lose(a *asked) {
	d, i := dialects[a.dialect], r.IntN(len(a.messages))
	m := &a.messages[i]
	hasLead := a.messages[0].role == "system"
	lead := i == 0 && hasLead
	switch r.IntN(10) {
	case 0:
		if m.call == "" && !lead {
			m.absent, a.missing = true, "the text of a message"
		}
	case 1:
		if m.text != "" && !lead && !m.answers {
			m.text, a.missing = "__REDACTED__", "a redacted text"
		}
	case 2:
		if n := len(m.text); n > 40 && !lead {
			m.text, a.missing = strings.ToValidUTF8(m.text[:n/2], "")+"...[truncated]", "the end of a text"
		}
	case 3:
		if m.image != nil {
			m.placeholder, a.missing = true, "an image"
		}
	case 4:
		if n := strings.IndexByte(m.text, ' '); n > 0 && len(m.text) > 30 && !lead && !m.answers {
			m.unknown, a.missing = strings.LastIndexByte(m.text[:30], ' ')+1, "an unknown member"
		}
	case 5:
		if d.doc != "" {
			a.cut, a.missing = 1+r.IntN(99), "the end of the attribute"
		}
	case 6:
		if d.body && hasLead {
			a.unread, a.missing = true, "the instructions, under an unknown key"
		}
	case 7:
		a.remote, a.missing = true, "what the server keeps"
	case 8:
		if text, rest := system(a.messages); hasLead && len(text)/bytesOfToken > tokensSeen(rest) {
			a.missing = "the instructions, without a trace"
			a.messages = rest
		}
	case 9:
		switch {
		case d.flat == "" || len(a.messages) == 1:
		case r.IntN(2) == 0:
			a.gap, a.missing = r.IntN(len(a.messages)-1), "a message"
		default:
			a.dropped, a.missing = true, "attributes"
			a.messages = a.messages[:len(a.messages)-1]
		}
	}
}

// tokensSeen returns the maximum number of tokens that is plausible for this much text.
func tokensSeen(messages []said) int {
	n := 600
	for _, m := range messages {
		n += len(m.text) + 150
		if m.image != nil {
			n += 1 << 30
		}
	}
	return n
}

// span returns the telemetry of a prompt of this many tokens.
func (a *asked) span(t testing.TB, number int, tokens int64) string {
	t.Helper()
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetName("chat m")
	span.SetTraceID([16]byte{1, byte(number), byte(number >> 8)})
	span.SetSpanID([8]byte{1, byte(number), byte(number >> 8)})
	start := pcommon.Timestamp(1_800_000_000_000_000_000 + uint64(number)*1e9)
	span.SetStartTimestamp(start)
	span.SetEndTimestamp(start + 1e6)
	attributes := span.Attributes()
	put := func(name string, value any) { must(t, attributes.PutEmpty(name).FromRaw(value)) }
	put("gen_ai.operation.name", "chat")
	put("gen_ai.request.model", "m")
	put("gen_ai.usage.input_tokens", tokens)
	put("gen_ai.usage.output_tokens", 5)
	d := dialects[a.dialect]
	shown := *a
	if a.remote {
		put("gen_ai.request.previous_response.id", "r1")
		shown.messages = a.messages[len(a.messages)-1:]
	}
	if d.logs != nil {
		return a.inLogs(t, &shown, td)
	}
	d.write(t, &shown, span, put)
	if d.flat == "" && !d.body && a.tools {
		put("gen_ai.tool.definitions", text(t, openAITools))
	}
	if a.cut > 0 {
		v, _ := attributes.Get(d.doc)
		v.SetStr(v.Str()[:max(1, len(v.Str())*a.cut/100)])
	}
	if a.dropped {
		span.SetDroppedAttributesCount(3)
	}
	line, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
	must(t, err)
	return string(line)
}

// inLogs returns the telemetry of a prompt whose text is in log records.
func (a *asked) inLogs(t testing.TB, shown *asked, td ptrace.Traces) string {
	t.Helper()
	span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	ld := plog.NewLogs()
	records := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	dialects[a.dialect].logs(t, shown, func(event string) plog.LogRecord {
		log := records.AppendEmpty()
		log.SetEventName(event)
		log.SetTraceID(span.TraceID())
		log.SetSpanID(span.SpanID())
		log.SetTimestamp(span.StartTimestamp() + pcommon.Timestamp(records.Len()))
		return log
	})
	spans, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
	must(t, err)
	logs, err := new(plog.JSONMarshaler).MarshalLogs(ld)
	must(t, err)
	return string(logs) + "\n" + string(spans)
}

func TestSharedBlocksAreSharedText(t *testing.T) {
	if testing.Short() {
		t.Skip("other records, no other goroutines: not under the race detector")
	}
	const block, rounds = 64, 40
	compared, whole := 0, 0
	lacked := map[string]int{}
	for seed := range uint64(rounds) {
		r := author{rand.New(rand.NewPCG(seed, 1))}
		var prompts []*asked
		var truth [][]unit
		var lines []string
		for len(prompts) < 24 {
			for _, a := range r.conversation() {
				units := a.units()
				r.tell(a)
				lines = append(lines, a.span(t, len(prompts), tokensOf(units)))
				prompts, truth = append(prompts, a), append(truth, units)
			}
		}
		var traces []*trace
		opt := convert.Options{Format: convert.OTLP, Annotate: annotate.Config{Key: testKey(t)}, Compile: capture.Options{BlockSize: block}}
		_, err := convert.Convert(t.Context(), opt, memory(&traces), source("random", strings.Join(lines, "\n")))
		must(t, err)
		rows := traces[0].rows(t)
		if len(rows) != len(prompts) {
			t.Fatalf("seed %d: %d rows of %d prompts", seed, len(rows), len(prompts))
		}
		for i, a := range prompts {
			for j := range i {
				b := prompts[j]
				shared := int64(0)
				for shared < int64(min(len(rows[i].HashIDs), len(rows[j].HashIDs))) && rows[i].HashIDs[shared] == rows[j].HashIDs[shared] {
					shared++
				}
				common, same := inCommon(truth[i], truth[j])
				compared++
				describe := func() string {
					return fmt.Sprintf("seed %d: %d of %d tokens by %s, lacking %q; %d of %d tokens by %s, lacking %q", seed,
						i, rows[i].InputLength.V, dialects[a.dialect].name, a.missing, j, rows[j].InputLength.V, dialects[b.dialect].name, b.missing)
				}
				// Borders are at whole tokens: two may be lost at an image, which gets the tokens that the text leaves.
				if most := (common + 2) / block; shared > most && (!same || shared > common/block+1) {
					t.Errorf("%s: share %d blocks, and %d tokens", describe(), shared, common)
				}
				if a.missing != "" || b.missing != "" || a.images() > 1 || b.images() > 1 {
					if least := common / block; shared < least {
						lacked[a.missing+b.missing]++
					}
					continue
				}
				if whole++; shared < common/block-1 {
					t.Errorf("%s: share %d blocks only, and %d tokens", describe(), shared, common)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	if whole < compared/20 {
		t.Errorf("of %d pairs %d were whole", compared, whole)
	}
	for _, what := range []string{
		"the text of a message", "a redacted text", "the end of a text", "an image", "an unknown member", "the end of the attribute",
		"the instructions, under an unknown key", "what the server keeps", "the instructions, without a trace", "a message", "attributes",
	} {
		if lacked[what] == 0 {
			t.Errorf("nothing was ever lost because of %s: the test does not show what it should", what)
		}
	}
}
