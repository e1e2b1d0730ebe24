// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import "strings"

// message visits a message of any shape. The role is for one that names none.
func (w *walker) message(t *tree, n int32, role string) {
	if w.stopped {
		return
	}
	if t.kind(n) == nodeArray { // instructions as a list of parts
		w.open(role)
		w.parts(t, n)
		w.shut()
		return
	}
	if t.kind(n) == nodeString {
		w.open(role)
		w.text(PieceText, t, n)
		w.shut()
		return
	}
	n = t.unwrap(n, "message")
	kind := t.str(t.get(n, "type"))
	if name := t.get(n, "role"); t.partial(n) && (t.kind(name) != nodeString || t.nodes[name].cut) {
		w.cut = true
		return
	}
	switch kind { // items of the responses API
	case "function_call", "reasoning":
		role = "assistant"
	case "function_call_output":
		role = "tool"
	case "human", "ai", "system":
		role = kind
		if same, ok := roles[kind]; ok {
			role = same
		}
	}
	w.open(t.role(n, role))
	defer func() {
		if w.texts == 0 && t.partial(n) { // its text may be what is missing
			w.cut = true
			w.seen.Textless--
		}
	}()
	defer w.shut()
	if kind == "function_call" || kind == "reasoning" || kind == "function_call_output" {
		w.part(t, n)
		return
	}
	if body := t.get(n, "parts", "content", "contents", "text", "prompt"); body != none {
		switch t.kind(body) {
		case nodeString:
			w.text(PieceText, t, body)
		case nodeArray:
			w.parts(t, body)
		case nodeObject:
			w.part(t, body)
		default:
		}
	}
	if calls := t.get(n, "tool_calls", "toolCalls"); t.kind(calls) == nodeArray {
		for i := calls + 1; i < t.nodes[calls].next; i = t.nodes[i].next {
			w.call(t, t.unwrap(i, "tool_call"))
		}
	}
	if call := t.get(n, "function_call"); t.kind(call) == nodeObject {
		w.call(t, call)
	}
}

// open begins a message.
func (w *walker) open(role string) {
	if w.stopped {
		return
	}
	w.gaps = w.gaps || w.cut
	w.role = role
	w.seen.Messages++
	w.texts = 0
	w.stopped = !w.visit(Piece{Kind: PieceMessage, Role: role})
}

// shut ends a message. One that had a text only in the part that was cut off does not count as without.
func (w *walker) shut() {
	if w.texts == 0 && !w.stopped {
		w.seen.Textless++
	}
	w.role = "user"
}

func (w *walker) parts(t *tree, list int32) {
	for i := list + 1; i < t.nodes[list].next; i = t.nodes[i].next {
		w.part(t, i)
	}
}

// part visits a part of a message's content.
func (w *walker) part(t *tree, n int32) {
	if t.kind(n) == nodeString {
		w.text(PieceText, t, n)
		return
	}
	if t.kind(n) != nodeObject {
		return
	}
	n = t.unwrap(n, "message_content")
	kind := t.str(t.get(n, "type"))
	if t.partial(n) && t.kind(t.get(n, "text", "content")) != nodeString { // half a call or an image is neither
		w.cut = true
		return
	}
	switch kind {
	case "", "text", "input_text", "output_text", "refusal":
		w.untyped(t, n, kind)
	case "reasoning", "thinking":
		w.value(t, t.get(n, "content", "text", "thinking", "summary"), PieceReasoning)
	case "summary_text":
		w.value(t, t.get(n, "text"), PieceReasoning)
	case "tool_call", "tool-call", "tool_use", "function_call", "server_tool_call":
		w.call(t, n)
	case "tool_call_response", "tool-result", "tool_result", "function_call_output", "server_tool_call_response":
		w.toolResult(t, t.get(n, "response", "result", "output", "content", "server_tool_call_response"))
	default:
		w.mediaPart(t, n, kind)
	}
}

// untyped visits a text, or a part whose only key says what it is.
func (w *walker) untyped(t *tree, n int32, kind string) {
	if text := t.get(n, "text", "content", "refusal"); t.kind(text) == nodeString {
		w.text(PieceText, t, text)
		return
	}
	if kind != "" { // content capture is off: the part is there, its text is not
		w.gaps = true
		return
	}
	for _, name := range []string{"toolRequest", "functionCall", "function_call"} {
		if call := t.get(n, name); call != none {
			w.call(t, call)
			return
		}
	}
	for _, name := range []string{"toolResponse", "functionResponse", "function_response"} {
		if response := t.get(n, name); response != none {
			w.toolResult(t, t.get(response, "output", "response", "content"))
			return
		}
	}
	w.mediaPart(t, n, kind)
}

func (w *walker) call(t *tree, n int32) {
	if t.kind(n) != nodeObject {
		return
	}
	if t.partial(n) {
		w.cut = true
		return
	}
	f := t.unwrap(n, "function")
	name, arguments := t.get(f, "name", "toolName"), t.get(f, "arguments", "args", "input", "server_tool_call")
	if name == none || f != n && arguments == none {
		w.gaps = true // content capture is off: the call is there, what it says is not
		return
	}
	w.buffer = w.appendCall(w.buffer[:0], t, name, arguments,
		t.get(n, "id", "call_id", "toolCallId", "tool_call_id", "ref"))
	w.emit(PieceToolCall, string(w.buffer))
}

// toolResult visits what a tool returned: text where it is text, else canonical JSON.
func (w *walker) toolResult(t *tree, n int32) {
	if inner := t.get(n, "value"); inner != none { // {type, value}
		n = inner
	}
	w.value(t, n, PieceText)
}

// value visits a text, a list of parts, or a value as canonical JSON.
func (w *walker) value(t *tree, n int32, kind PieceKind) {
	switch t.kind(n) {
	case nodeNull:
		w.gaps = true
	case nodeString:
		w.text(kind, t, n)
	case nodeArray:
		if first := n + 1; first < t.nodes[n].next && t.get(first, "type") != none {
			w.parts(t, n)
			return
		}
		fallthrough
	default:
		w.buffer = t.appendCanonical(w.buffer[:0], n)
		w.emit(PieceToolResult, string(w.buffer))
	}
}

// mediaPart visits a part that is neither text nor a call. Images are brought into one shape.
func (w *walker) mediaPart(t *tree, n int32, kind string) {
	w.media = true
	b, ok := t.appendImage(w.buffer[:0], n, kind)
	if !ok {
		b = t.appendCanonical(b[:0], n)
	}
	w.buffer = b
	w.emit(PieceMedia, string(b))
}

// appendImage appends an image in the shape of the chat completions API. It returns false for any other part.
func (t *tree) appendImage(b []byte, n int32, kind string) ([]byte, bool) {
	if kind == "image_url" && t.kind(t.get(n, "image_url")) == nodeObject {
		return b, false // is in that shape
	}
	var prefix string
	url := none
	switch kind {
	case "image_url", "input_image":
		url = t.get(n, "image_url")
	case "image": // OpenInference
		url = t.path(n, "image", "image", "url")
	case "uri":
		if t.str(t.get(n, "modality")) == "image" {
			url = t.get(n, "uri")
		}
	case "blob":
		if mime := t.str(t.get(n, "mime_type")); strings.HasPrefix(mime, "image/") {
			url, prefix = t.get(n, "content"), "data:"+mime+";base64,"
		}
	case "": // genkit
		if strings.HasPrefix(t.str(t.path(n, "media", "contentType")), "image/") {
			url = t.path(n, "media", "url")
		}
	}
	if t.kind(url) != nodeString {
		return b, false
	}
	b = append(b, `{"image_url":{"url":"`...)
	b = appendEscaped(append(b, prefix...), t.raw(url))
	return append(b, `"},"type":"image_url"}`...), true
}
