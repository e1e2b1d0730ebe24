// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"bytes"
	"cmp"
	"strings"
)

// walker visits the pieces of one prompt. Its buffers are reused.
type walker struct {
	main, side, instructions tree // messages; tools outside them; instructions outside them
	nested                   tree // JSON within strings
	buffer                   []byte
	walk
}

// walk is the state of one walk.
type walk struct {
	visit   func(Piece) bool
	role    string // of a message without one
	stopped bool
	cut     bool // the end of what was visited last is missing
	gaps    bool
	media   bool
	hole    bool   // the walk ended at something unreadable
	texts   int    // pieces of the current message, empty text included
	kinds   uint   // bits of the kinds of pieces that were visited
	opened  string // role of the last message
	seen    Walked
}

func (w *walker) trees() [4]*tree { return [...]*tree{&w.main, &w.side, &w.instructions, &w.nested} }

func (w *walker) begin(visit func(Piece) bool) {
	w.walk = walk{visit: visit, role: user}
	w.side.reset()
	w.instructions.reset()
}

// end releases the telemetry, and buffers that one huge span has left behind.
func (w *walker) end() {
	const most = 1 << 16
	w.visit = nil
	for _, t := range w.trees() {
		if cap(t.nodes) > most {
			t.nodes = nil
		}
		clear(t.entries[:cap(t.entries)])
	}
	if cap(w.buffer) > most {
		w.buffer = nil
	}
}

// forget releases all text.
func (w *walker) forget() {
	for _, t := range w.trees() {
		t.forget()
	}
	clear(w.buffer[:cap(w.buffer)])
	w.walk = walk{}
}

func (w *walker) result() Walked {
	switch {
	case w.seen.Messages == w.seen.Textless && !w.hole:
		w.seen.Extent = ExtentNone
	case w.gaps || w.seen.Textless > 0:
		w.seen.Extent = ExtentGaps
	case w.cut:
		w.seen.Extent = ExtentCut
	default:
		w.seen.Extent = ExtentComplete
	}
	return w.seen
}

// implausible reports whether the server counted more tokens than the text has bytes. A token has at least one byte; the tokens of chat
// templates are taken into account.
func (w *walker) implausible(tokens Opt[int64]) bool {
	const templateTokens, messageTokens = 512, 16
	return tokens.Set && !w.media && !w.hole && tokens.V > w.seen.Bytes+templateTokens+messageTokens*int64(w.seen.Messages)
}

// prompt visits a prompt in canonical order.
func (w *walker) prompt(p prompt) {
	t := &w.main
	w.gaps = w.gaps || t.gaps || p.tools.gaps || p.unread
	if p.instructions {
		w.message(&w.instructions, 0, system)
		w.cut = w.cut || w.instructions.cut
	}
	if p.lead != none {
		w.message(t, p.lead, system)
	}
	i, end := p.list, p.list+1
	if t.kind(p.list) == nodeArray {
		i, end = p.list+1, t.nodes[p.list].next
	}
	if p.open && p.lead == none && !p.instructions && (i == end || t.role(i, "") != system) {
		w.gaps = true // the missing instructions may have followed the messages
	}
	for ; i < end && t.role(i, "") == system; i = t.nodes[i].next {
		w.message(t, i, "")
	}
	if p.open && p.toolList == none {
		w.endHere() // tools may be missing here
	}
	w.tools(p.tools, p.toolList)
	for ; i < end && !w.stopped; i = t.nodes[i].next {
		if t.str(t.get(i, "event.name")) != eventChoice { // else it is the reply
			w.message(t, i, w.role)
		}
	}
	w.cut = w.cut || t.cut
}

func (w *walker) tools(t *tree, list int32) {
	if list == none || t.empty() {
		return
	}
	i, end := list, t.nodes[list].next
	if t.kind(list) == nodeArray {
		i++
	}
	for ; i < end && !w.stopped; i = t.nodes[i].next {
		if declarations := t.get(i, "function_declarations", "functionDeclarations"); t.kind(declarations) == nodeArray {
			w.tools(t, declarations)
			continue
		}
		definition, n := t, i
		if schema := t.path(i, "tool", "json_schema"); schema != none {
			n = schema
		}
		if t.kind(n) == nodeString && jsonLike(t.raw(n)) && w.nested.parse(t.raw(n)) {
			definition, n = &w.nested, 0
		}
		if definition.partial(n) {
			w.cut = true
			break
		}
		w.buffer = definition.appendTool(w.buffer[:0], n)
		w.emit(PieceTool, string(w.buffer))
	}
	w.cut = w.cut || t != &w.main && t.cut
}

// endHere ends the walk at something unreadable: the visited pieces are a beginning of the prompt.
func (w *walker) endHere() {
	if !w.stopped {
		w.gaps = w.gaps || w.cut
		w.cut, w.hole, w.stopped = true, true, true
	}
}

// emit visits a piece. Pieces after a cut come after a gap.
func (w *walker) emit(kind PieceKind, text string) {
	if w.stopped {
		return
	}
	w.gaps = w.gaps || w.cut
	w.seen.Bytes += int64(len(text))
	w.texts++
	w.kinds |= 1 << kind
	w.stopped = !w.visit(Piece{Kind: kind, Role: w.role, Text: text})
}

// Sizes in bytes of the pieces of an escaped text: runs without an escape of at least longRun are emitted directly; the rest is joined up
// to about pieceSize. Code and JSON have an escape every few bytes, and some producers escape everything that is not ASCII.
const (
	longRun   = 128
	pieceSize = 4096
)

// text visits a string node.
func (w *walker) text(kind PieceKind, n node) {
	whole := withoutMarks(n.text)
	marked := len(whole) < len(n.text)
	cut := n.cut && !marked
	switch {
	case redacted(whole):
		w.gaps, cut = true, false
	case n.escaped:
		w.escapedText(kind, whole, cut)
	default:
		w.emit(kind, whole)
	}
	if w.cut = w.cut || cut; marked {
		w.endHere()
	}
}

// escapedText visits a text without its JSON escapes.
func (w *walker) escapedText(kind PieceKind, s string, cut bool) {
	b := w.buffer[:0]
	for s != "" && !w.stopped {
		run := strings.IndexByte(s, '\\')
		if run < 0 {
			run = len(s)
		}
		long := run >= longRun
		if len(b) > 0 && (long || len(b) >= pieceSize) {
			w.emit(kind, string(b))
			b = b[:0]
		}
		if long {
			w.emit(kind, s[:run])
		} else {
			b = append(b, s[:run]...)
		}
		s = s[run:]
		for s != "" && s[0] == '\\' && len(b) < pieceSize {
			if cut && halfPair(s) {
				s = ""
				break
			}
			var size int
			b, size = appendEscape(b, s)
			s = s[size:]
		}
	}
	if len(b) > 0 || w.texts == 0 {
		w.emit(kind, string(b))
	}
	w.buffer = b
}

// The canonical names of roles.
const (
	system    = "system"
	user      = "user"
	assistant = "assistant"
)

// Names of roles with the same meaning.
var roles = map[string]string{
	"developer": system,
	"human":     user,
	"ai":        assistant, "model": assistant, "AIMessage": assistant,
	"function": "tool",
}

func canonicalRole(role string) string { return cmp.Or(roles[role], role) }

// role returns a message's role in canonical form, or other.
func (t *tree) role(n int32, other string) string {
	return cmp.Or(canonicalRole(t.str(t.get(t.unwrap(n, "message"), "role"))), other)
}

// repeats reports whether the system messages repeat the instructions outside them, which some producers write twice: one of the messages,
// or all of them together.
func (t *tree) repeats(list int32, instructions *tree) bool {
	if t.kind(list) != nodeArray {
		return false
	}
	var all []byte
	want := instructions.appendWords(nil, 0)
	for i := list + 1; i < t.nodes[list].next; i = t.nodes[i].next {
		if t.role(i, "") == system {
			from := len(all)
			all = t.appendWords(all, t.unwrap(i, "message"))
			if bytes.Equal(all[from:], want) {
				return true
			}
		}
	}
	return len(want) > 0 && bytes.Equal(all, want)
}

// appendWords appends the texts of a message or of instructions without space.
func (t *tree) appendWords(b []byte, n int32) []byte {
	switch t.kind(n) {
	case nodeString:
		for word := range strings.FieldsSeq(t.raw(n)) {
			b = append(b, word...)
		}
	case nodeArray:
		for i := n + 1; i < t.nodes[n].next; i = t.nodes[i].next {
			b = t.appendWords(b, i)
		}
	case nodeObject:
		b = t.appendWords(b, t.get(n, "parts", "content", "contents", "text"))
	default:
	}
	return b
}

// unwrap descends into an object that only wraps another.
func (t *tree) unwrap(n int32, name string) int32 {
	if inner := t.get(n, name); t.kind(inner) == nodeObject {
		return inner
	}
	return n
}
