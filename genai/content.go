// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// contentSource says where a prompt is.
type contentSource uint8

const (
	sourceNone   contentSource = iota
	sourceValue                // one attribute: JSON, structured or plain text
	sourceText                 // one attribute that is text even where it looks like JSON
	sourceFlat                 // attributes below a prefix
	sourceEvents               // span events, one per message
	sourceBody                 // a log record's body, one message
)

// Content is the prompt that a span or log record holds, not yet read. It refers to the telemetry and to buffers of
// the [Reader]: walk it before either changes.
type Content struct {
	reader *Reader
	source contentSource

	value      pcommon.Value // of sourceValue, sourceText and sourceBody
	attributes pcommon.Map
	prefix     string // of sourceFlat
	toolPrefix string // of flattened tools, or ""
	events     ptrace.SpanEventSlice
	role       string // of sourceBody

	system, tools       pcommon.Value // beside the messages
	hasSystem, hasTools bool

	inputTokens Opt[int64]
	dropped     bool // the SDK dropped attributes of the span
	remote      bool // a part of the history is at the server only
	listInText  bool // a list of messages may stand as JSON in the text of one user message
}

// Present reports whether there are messages to walk. They may still turn out to have no text.
func (c *Content) Present() bool { return c.source != sourceNone }

// Walk calls visit for the pieces of the prompt in canonical order: system messages that lead, tools, other messages.
// It stops when visit returns false; the result then covers what was visited. A record without content visits nothing.
func (c *Content) Walk(visit func(Piece) bool) Walked {
	if c.source == sourceNone {
		return Walked{}
	}
	w := &c.reader.walker
	w.begin(visit, &c.reader.limits)
	defer w.end()
	if p, ok := c.load(w); ok {
		w.prompt(p)
	}
	w.cut = w.cut || c.source == sourceFlat && c.dropped
	w.gaps = w.gaps || c.remote || w.implausible(c.inputTokens)
	return w.result()
}

// prompt is where in the trees of a walker the parts of a prompt are.
type prompt struct {
	messages *tree
	list     int32 // array of messages, one message, or a string
	lead     int32 // instructions in the same tree, or none
	tools    *tree
	toolList int32
	system   *tree // instructions beside the messages, or nil
	open     bool  // the document was cut: it may have had members behind that
	unread   bool  // the document has more that may be of the prompt, and nobody knows where in it
}

// load reads the content into the walker's trees.
func (c *Content) load(w *walker) (prompt, bool) {
	p := prompt{messages: &w.main, lead: none, tools: &w.main, toolList: none}
	w.main.reset()
	switch c.source {
	case sourceFlat:
		w.entries = w.main.addFlat(c.attributes, c.prefix, w.entries, w.limits)
	case sourceEvents:
		c.loadEvents(w)
	case sourceBody:
		c.loadBody(w)
	case sourceText:
		w.main.add(plain(c.value.Str(), w.limits))
	case sourceValue:
		w.main.load(c.value, w.limits)
		p.find(&w.main)
		if c.prefix != "" && (p.unread || w.main.cut || c.moreSystem(&p)) {
			p = c.flattened(w, p)
		}
		if c.listInText {
			w.main.loadListInText(c.value, p.list, w.limits)
		}
	case sourceNone:
	}
	if w.main.empty() {
		return p, false
	}
	if p.toolList == none {
		p.tools = &w.side
		switch {
		case c.hasTools:
			w.side.load(c.tools, w.limits)
			p.toolList = 0
		case c.toolPrefix != "":
			w.entries = w.side.addFlat(c.attributes, c.toolPrefix, w.entries, w.limits)
			p.toolList = 0
		}
	}
	if c.hasSystem {
		w.instructions.load(c.system, w.limits)
		if !w.main.repeats(p.list, &w.instructions) {
			p.system = &w.instructions
		}
	}
	return p, true
}

// moreSystem reports whether flattened messages begin with one of the system, and the document has none.
func (c *Content) moreSystem(p *prompt) bool {
	v, ok := c.attributes.Get(c.prefix + "0.message.role")
	if !ok || p.lead != none {
		return false
	}
	role, _ := toString(v)
	if same, ok := roles[role]; ok {
		role = same
	}
	t, first := p.messages, p.list
	if t.kind(first) == nodeArray {
		first++
	}
	return systemRole(role) && !systemRole(t.role(first, ""))
}

// flattened returns the prompt of flattened messages in place of a document that is not understood or lacks something, if they are whole.
func (c *Content) flattened(w *walker, document prompt) prompt {
	w.entries = w.main.addFlat(c.attributes, c.prefix, w.entries, w.limits)
	if w.main.empty() || w.main.cut || w.main.gaps {
		w.main.load(c.value, w.limits)
		return document
	}
	return prompt{messages: &w.main, lead: none, tools: &w.main, toolList: none}
}

// find looks for the messages in a document: a list of messages, a request body that holds one, or a text.
func (p *prompt) find(t *tree) {
	if t.kind(0) != nodeObject {
		return
	}
	body := int32(0)
	for range 2 { // some wrap the request
		inner := none
		for _, name := range [...]string{"request", "args", "kwargs", "body"} {
			if n := t.get(body, name); inner == none && t.kind(n) == nodeObject {
				inner = n
			}
		}
		if inner == none {
			break
		}
		p.unread = p.unread || t.moreText(body, inner)
		body = inner
	}
	config := t.get(body, "config") // Google's
	lead := [...]string{"instructions", "system", "systemInstruction", "system_instruction"}
	if p.lead = t.get(body, lead[:]...); p.lead == none {
		p.lead = t.get(config, lead[:]...)
	}
	if p.toolList = t.get(body, "tools", "functions"); p.toolList == none {
		p.toolList = t.get(config, "tools")
	}
	list := t.get(body, "messages", "input", "contents", "prompt")
	if list == none {
		return // the document is a message itself
	}
	p.list, p.open = list, t.cut
	p.unread = p.unread || t.moreText(body, list, p.lead, p.toolList, config) || t.moreText(config, p.lead, p.toolList) ||
		t.get(body, "previous_response_id", "conversation") != none
}

// load reads an attribute of any encoding, JSON within JSON included.
func (t *tree) load(v pcommon.Value, limits *Limits) {
	t.reset()
	if v.Type() != pcommon.ValueTypeStr {
		t.addValue(v, limits, 0)
		return
	}
	s := v.Str()
	for range 3 {
		if !jsonLike(s) || !t.parse(s, limits) {
			break
		}
		if t.kind(0) != nodeString {
			return
		}
		s = t.raw(0)
	}
	t.reset()
	t.add(plain(s, limits))
}

// loadListInText replaces a single user message whose text is a JSON list of messages by that list. Traceloop writes
// the input of the responses API so.
func (t *tree) loadListInText(v pcommon.Value, list int32, limits *Limits) {
	message := list + 1
	if t.kind(list) != nodeArray || message >= t.nodes[list].next || t.nodes[message].next != t.nodes[list].next {
		return
	}
	part := t.get(message, "parts", "content") + 1 // of none: the message, which has no text
	text := t.get(part, "content", "text")
	if t.role(message, "") != "user" || t.kind(text) != nodeString || t.cut || !jsonLike(t.raw(text)) {
		return
	}
	if t.parse(t.raw(text), limits) && t.kind(0) == nodeArray && t.get(1, "role", "type") != none {
		return
	}
	t.load(v, limits)
}

func (c *Content) loadEvents(w *walker) {
	list := w.main.add(node{kind: nodeArray})
	for _, event := range c.events.All() {
		if role := messageRole(event.Name()); role != "" && !w.main.cut && !w.main.full(w.limits) {
			w.addMessage(role, event.Attributes())
		}
	}
	w.main.close(list)
}

func (c *Content) loadBody(w *walker) {
	switch c.value.Type() {
	case pcommon.ValueTypeMap:
		w.addMessage(c.role, c.value.Map())
	case pcommon.ValueTypeStr:
		w.main.load(c.value, w.limits)
		if w.main.kind(0) == nodeString {
			w.role = c.role
		}
	default:
		w.addMessage(c.role, c.attributes) // the first revisions had them there
	}
}

// addMessage appends a message whose role its event's name gives, unless it names one itself. Azure's SDKs write the
// message as JSON in one attribute.
func (w *walker) addMessage(role string, m pcommon.Map) {
	t := &w.main
	object := t.add(node{kind: nodeObject})
	for key, value := range m.All() {
		if t.full(w.limits) {
			break
		}
		if key == "gen_ai.event.content" && value.Type() == pcommon.ValueTypeStr {
			if w.nested.parse(value.Str(), w.limits) && w.nested.kind(0) == nodeObject {
				t.graft(&w.nested, w.limits)
				continue
			}
			key = "content"
		}
		t.add(node{kind: nodeString, text: key})
		t.addValue(value, w.limits, 1)
	}
	if !t.cut {
		t.add(node{kind: nodeString, text: "role"})
		t.add(node{kind: nodeString, text: role})
	}
	t.close(object)
}

// messageRole returns the role that an event such as gen_ai.user.message is about, or "".
func messageRole(event string) string {
	if rest, ok := strings.CutPrefix(event, "gen_ai."); ok {
		if role, ok := strings.CutSuffix(rest, ".message"); ok {
			return role
		}
	}
	return ""
}
