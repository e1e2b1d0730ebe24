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
		if w.texts == 0 && !w.stopped && t.partial(n) { // its text may be what is missing
			w.cut = true
			w.seen.Textless--
		}
	}()
	defer w.shut()
	if kind == "function_call" || kind == "reasoning" || kind == "function_call_output" {
		w.others(t, n)
		w.part(t, n)
		return
	}
	body := t.get(n, "parts", "content", "contents", "text", "prompt")
	calls, call := t.get(n, "tool_calls", "toolCalls"), t.get(n, "function_call")
	w.others(t, n, body, calls, call)
	switch t.kind(body) {
	case nodeString:
		w.text(PieceText, t, body)
	case nodeArray:
		w.parts(t, body)
	case nodeObject:
		w.part(t, body)
	default:
	}
	if t.kind(calls) == nodeArray {
		for i := calls + 1; i < t.nodes[calls].next; i = t.nodes[i].next {
			w.call(t, t.unwrap(i, "tool_call"))
		}
	}
	if t.kind(call) == nodeObject {
		w.call(t, call)
	}
}

// open begins a message.
func (w *walker) open(role string) {
	if w.stopped {
		return
	}
	w.gaps = w.gaps || w.cut
	w.role, w.opened = role, role
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
		w.gaps = w.gaps || t.texty(n)
		return
	}
	n = t.unwrap(n, "message_content")
	kind := t.str(t.get(n, "type"))
	if kind == "" {
		kind = t.str(t.get(n, "kind")) // pydantic-ai
	}
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
		result := t.get(n, "response", "result", "output", "content", "server_tool_call_response")
		w.others(t, n, result)
		w.toolResult(t, result)
	default:
		w.mediaPart(t, n, kind)
	}
}

// untyped visits a text, or a part whose only key says what it is.
func (w *walker) untyped(t *tree, n int32, kind string) {
	if text := t.get(n, "text", "content", "refusal"); t.kind(text) == nodeString {
		w.others(t, n, text)
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
		w.gaps = w.gaps || t.texty(n)
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

// mediaPart visits a part that is neither text nor a call. Images are brought into one shape. A medium of which there is
// only the place ends the walk: two of them need not be the same.
func (w *walker) mediaPart(t *tree, n int32, kind string) {
	piece := PieceOther
	if t.isMedia(n, kind) {
		piece, w.media = PieceMedia, true
		if !t.substantial(n) {
			w.endHere()
			return
		}
	}
	b, ok := t.appendImage(w.buffer[:0], n, kind)
	if !ok {
		b = t.appendCanonical(b[:0], n)
	}
	w.buffer = b
	w.emit(piece, string(b))
}

// appendImage appends an image in the shape of the chat completions API. It returns false for any other part.
func (t *tree) appendImage(b []byte, n int32, kind string) ([]byte, bool) {
	if kind == "image_url" && t.kind(t.get(n, "image_url")) == nodeObject {
		return b, false // is in that shape
	}
	mime, url := t.image(n, kind)
	if t.kind(url) != nodeString {
		return b, false
	}
	b = append(b, `{"image_url":{"url":"`...)
	if mime != "" {
		b = append(append(append(b, "data:"...), mime...), ";base64,"...)
	}
	b = appendEscaped(b, t.raw(url))
	return append(b, `"},"type":"image_url"}`...), true
}

// image returns where an image is: its URL, or its bytes and their type.
func (t *tree) image(n int32, kind string) (mime string, url int32) {
	ofType := func(part int32, mimeKey, dataKey string) (string, int32) {
		if mime := t.str(t.get(part, mimeKey)); strings.HasPrefix(mime, "image/") {
			return mime, t.get(part, dataKey)
		}
		return "", none
	}
	switch kind {
	case "image_url", "input_image":
		return "", t.get(n, "image_url")
	case "image-url": // pydantic-ai
		return "", t.get(n, "url")
	case "image":
		if source := t.get(n, "source"); t.kind(source) == nodeObject { // Anthropic
			if mime, data := ofType(source, "media_type", "data"); data != none {
				return mime, data
			}
			return "", t.get(source, "url")
		}
		if data := t.get(n, "image"); t.kind(data) == nodeString { // Vercel
			if mime, data := ofType(n, "mediaType", "image"); data != none && !strings.HasPrefix(t.nodes[data].text, "data:") {
				return mime, data
			}
			return "", data
		}
		return "", t.path(n, "image", "image", "url") // OpenInference
	case "uri":
		if t.str(t.get(n, "modality")) == "image" {
			return "", t.get(n, "uri")
		}
	case "blob":
		return ofType(n, "mime_type", "content")
	case "binary": // pydantic-ai
		return ofType(n, "media_type", "content")
	case "": // genkit, Gemini
		if media := t.get(n, "media"); strings.HasPrefix(t.str(t.get(media, "contentType")), "image/") {
			return "", t.get(media, "url")
		}
		if mime, data := ofType(t.get(n, "inline_data"), "mime_type", "data"); data != none {
			return mime, data
		}
		return ofType(t.get(n, "inlineData"), "mimeType", "data")
	}
	return "", none
}
