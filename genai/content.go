// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Content is the unread prompt of a span or log record. It refers to the telemetry and to buffers of the [Reader]: walk it before either
// changes.
type Content struct {
	source
	events ptrace.SpanEventSlice // of formEvents
	role   string                // of formMessage

	system, tools pcommon.Value // outside the messages; empty if there are none

	inputTokens Opt[int64]
	dropped     bool // the SDK dropped attributes of the span
	remote      bool // a part of the history is only at the server
	listInText  bool // the text of one user message may be a JSON list of messages
}

// Walk calls visit for the pieces of the prompt in canonical order: leading system messages, tools, other messages. It stops when visit
// returns false; the result then covers the visited pieces. A record without content has no pieces.
func (c *Content) Walk(visit func(Piece) bool) Walked {
	if !c.Present() {
		return Walked{}
	}
	w := &c.reader.walker
	w.begin(visit)
	defer w.end()
	if p, ok := c.load(w); ok {
		c.promptTools(w, p.list)
		w.prompt(p)
	}
	w.cut = w.cut || c.form == formFlat && c.dropped
	w.gaps = w.gaps || c.remote || w.implausible(c.inputTokens)
	return w.result()
}

// prompt has the positions of the parts of a prompt in the trees of a walker; messages are in the main tree.
type prompt struct {
	list         int32 // array of messages, one message, or a string
	lead         int32 // instructions in the same tree, or none
	tools        *tree
	toolList     int32
	instructions bool // there are some outside the messages
	open         bool // the document was cut: further members may be missing
	unread       bool // the document has other content that may belong to the prompt, at an unknown position
}

// load parses the content into the walker's trees.
func (c *Content) load(w *walker) (prompt, bool) {
	t := &w.main
	p := prompt{lead: none, tools: t, toolList: none}
	t.reset()
	switch c.form {
	case formFlat:
		t.loadFlat(c.attributes, c.prefix)
	case formEvents:
		c.loadEvents(w)
	case formMessage:
		c.loadBody(w)
	case formText:
		t.addPlain(c.value.Str())
	case formDocument:
		t.load(c.value)
		p.find(t)
		if c.prefix != "" && (p.unread || t.cut || c.moreSystem(t, &p)) {
			// Flattened messages, if they are whole, replace a document that cannot be understood or is incomplete.
			if t.loadFlat(c.attributes, c.prefix); t.empty() || t.cut || t.gaps {
				t.load(c.value)
			} else {
				p = prompt{lead: none, tools: t, toolList: none}
			}
		}
		if c.listInText {
			t.loadListInText(c.value, p.list)
		}
	default:
	}
	if t.empty() {
		return p, false
	}
	if p.toolList == none {
		p.tools = &w.side
		if prefix := flatTools[c.prefix]; c.tools.Type() != pcommon.ValueTypeEmpty {
			p.tools.load(c.tools)
			p.toolList = 0
		} else if prefix != "" {
			p.tools.loadFlat(c.attributes, prefix)
			p.toolList = 0
		}
	}
	if c.system.Type() != pcommon.ValueTypeEmpty {
		w.instructions.load(c.system)
		p.instructions = !t.repeats(p.list, &w.instructions)
	}
	return p, true
}

// moreSystem reports whether the flattened messages begin with a system message, and the document does not.
func (c *Content) moreSystem(t *tree, p *prompt) bool {
	v, ok := c.attributes.Get(c.prefix + "0.message.role")
	if !ok || p.lead != none {
		return false
	}
	first := p.list
	if t.kind(first) == nodeArray {
		first++
	}
	return canonicalRole(toText(v)) == system && t.role(first, "") != system
}

// find looks for the messages in a document: a list of messages, a request body with such a list, or a text.
func (p *prompt) find(t *tree) {
	if t.kind(0) != nodeObject {
		return
	}
	body := int32(0)
	for range 2 { // some producers wrap the request
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
	for _, n := range [...]int32{body, config} {
		if p.lead == none {
			p.lead = t.get(n, "instructions", system, "systemInstruction", "system_instruction")
		}
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

// load reads an attribute in any encoding, including JSON within JSON.
func (t *tree) load(v pcommon.Value) {
	t.reset()
	if v.Type() != pcommon.ValueTypeStr {
		t.addValue(v, 0)
		return
	}
	s := v.Str()
	for range 3 {
		if !jsonLike(s) || !t.parse(s) {
			break
		}
		if t.kind(0) != nodeString {
			return
		}
		s = t.raw(0)
	}
	t.reset()
	t.addPlain(s)
}

// loadListInText replaces a single user message whose text is a JSON list of messages by that list. Traceloop writes the input of the
// responses API in this way.
func (t *tree) loadListInText(v pcommon.Value, list int32) {
	message := list + 1
	if t.kind(list) != nodeArray || message >= t.nodes[list].next || t.nodes[message].next != t.nodes[list].next {
		return
	}
	part := t.get(message, "parts", "content") + 1 // none + 1 is the root: the list of messages, which has no text
	text := t.get(part, "content", "text")
	if t.role(message, "") != user || t.kind(text) != nodeString || t.cut || !jsonLike(t.raw(text)) {
		return
	}
	if !t.parse(t.raw(text)) || t.kind(0) != nodeArray || t.get(1, "role", "type") == none {
		t.load(v)
	}
}

func (c *Content) loadEvents(w *walker) {
	list := w.main.add(node{kind: nodeArray})
	for _, event := range c.events.All() {
		if role := messageRole(event.Name()); role != "" && !w.main.cut && !w.main.full() {
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
		w.main.load(c.value)
		if w.main.kind(0) == nodeString {
			w.role = c.role
		}
	default:
		w.addMessage(c.role, c.attributes) // the first revisions of the conventions had the content there
	}
}

// addMessage appends a message whose role is that of its event's name, unless it has its own. Azure's SDKs write the message as JSON in one
// attribute.
func (w *walker) addMessage(role string, m pcommon.Map) {
	t := &w.main
	object := t.add(node{kind: nodeObject})
	for key, value := range m.All() {
		if t.full() {
			break
		}
		if key == azureContent && value.Type() == pcommon.ValueTypeStr {
			if w.nested.parse(value.Str()) && w.nested.kind(0) == nodeObject {
				t.graft(&w.nested)
				continue
			}
			key = "content"
		}
		t.add(node{kind: nodeString, text: key})
		t.addValue(value, 1)
	}
	if !t.cut {
		t.add(node{kind: nodeString, text: "role"})
		t.add(node{kind: nodeString, text: role})
	}
	t.close(object)
}

// azureContent is the attribute with a message of an event as JSON.
const azureContent = "gen_ai.event.content"

// messageRole returns the role in the name of an event such as gen_ai.user.message, or "".
func messageRole(event string) string {
	rest, ours := strings.CutPrefix(event, "gen_ai.")
	if role, ok := strings.CutSuffix(rest, ".message"); ok && ours {
		return role
	}
	return ""
}
