// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import "strings"

// message visits a message of any form. The given role is for a message that has none.
func (w *walker) message(t *tree, n int32, role string) {
	if w.stopped {
		return
	}
	if k := t.kind(n); k == nodeString || k == nodeArray { // instructions may be a list of parts
		w.open(role)
		w.parts(t, n)
		w.shut(false)
		return
	}
	n = t.unwrap(n, "message")
	partial := t.partial(n)
	if name := t.get(n, "role"); partial && (t.kind(name) != nodeString || t.nodes[name].cut) {
		w.cut = true
		return
	}
	item := false
	switch kind := t.str(t.get(n, "type")); kind { // items of the responses API
	case "function_call", "reasoning":
		role, item = assistant, true
	case "function_call_output":
		role, item = "tool", true
	case "human", "ai", system:
		role = canonicalRole(kind)
	}
	w.open(t.role(n, role))
	defer w.shut(partial)
	if item {
		w.others(t, n)
		w.part(t, n)
		return
	}
	body := t.get(n, "parts", "content", "contents", "text", "prompt")
	calls, call := t.get(n, "tool_calls", "toolCalls"), t.get(n, "function_call")
	w.others(t, n, body, calls, call)
	if k := t.kind(body); k == nodeString || k == nodeArray || k == nodeObject {
		w.parts(t, body)
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

// shut ends a message. A message whose text was cut off does not count as one without text.
func (w *walker) shut(partial bool) {
	switch without := w.texts == 0 && !w.stopped; {
	case without && partial:
		w.cut = true
	case without:
		w.seen.Textless++
	}
	w.role = user
}

// parts visits a list of parts, or a single part.
func (w *walker) parts(t *tree, n int32) {
	if t.kind(n) != nodeArray {
		w.part(t, n)
		return
	}
	for i := n + 1; i < t.nodes[n].next; i = t.nodes[i].next {
		w.part(t, i)
	}
}

// part visits a part of a message's content.
func (w *walker) part(t *tree, n int32) {
	if t.kind(n) == nodeString {
		w.text(PieceText, t.nodes[n])
		return
	}
	if t.kind(n) != nodeObject {
		w.gaps = w.gaps || t.texty(n)
		return
	}
	n = t.unwrap(n, "message_content")
	kind := t.str(t.get(n, "type", "kind"))                                // pydantic-ai names it kind
	if t.partial(n) && t.kind(t.get(n, "text", "content")) != nodeString { // an incomplete call or image does not count
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

// untyped visits a text, or a part whose kind only its keys show.
func (w *walker) untyped(t *tree, n int32, kind string) {
	if text := t.get(n, "text", "content", "refusal"); t.kind(text) == nodeString {
		w.others(t, n, text)
		w.text(PieceText, t.nodes[text])
		return
	}
	if kind != "" { // content capture is off: the part exists, but not its text
		w.gaps = true
		return
	}
	if call := t.get(n, "toolRequest", "functionCall", "function_call"); call != none {
		w.call(t, call)
		return
	}
	if response := t.get(n, "toolResponse", "functionResponse", "function_response"); response != none {
		w.toolResult(t, t.get(response, "output", "response", "content"))
		return
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
		w.gaps = true // content capture is off: the call exists, but not its content
		return
	}
	w.buffer = w.appendCall(w.buffer[:0], t, name, arguments,
		t.get(n, "id", "call_id", "toolCallId", "tool_call_id", "ref"))
	w.emit(PieceToolCall, string(w.buffer))
}

// toolResult visits the result of a tool: as text if it is text, else as canonical JSON.
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
		w.text(kind, t.nodes[n])
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

// mediaPart visits a part that is neither text nor a call. Images are converted to one form. A medium that is not recorded, and has no
// unique reference either, ends the walk, because two such media may differ.
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

// appendImage appends an image in the form of the chat completions API. It returns false for any other part.
func (t *tree) appendImage(b []byte, n int32, kind string) ([]byte, bool) {
	if kind == "image_url" && t.kind(t.get(n, "image_url")) == nodeObject {
		return b, false // has that form already
	}
	mediaType, data := t.image(n, kind)
	if data == none {
		return b, false
	}
	b = append(b, `{"image_url":{"url":"`...)
	if mediaType != "" {
		b = append(b, "data:"+mediaType+";base64,"...)
	}
	b = appendEscaped(b, t.raw(data))
	return append(b, `"},"type":"image_url"}`...), true
}

// images lists where the dialects have an image, by the type of the part: the path to the image's URL or bytes, and, in some dialects, the
// path to its media type, which then must be that of an image.
var images = []struct {
	kind            string
	mediaType, data []string
}{
	{"image_url", nil, []string{"image_url"}},
	{"input_image", nil, []string{"image_url"}},
	{"image-url", nil, []string{"url"}},                                     // pydantic-ai
	{"image", []string{"source", "media_type"}, []string{"source", "data"}}, // Anthropic
	{"image", nil, []string{"source", "url"}},
	{"image", []string{"mediaType"}, []string{"image"}}, // Vercel
	{"image", nil, []string{"image"}},
	{"image", nil, []string{"image", "image", "url"}}, // OpenInference
	{"uri", []string{"modality"}, []string{"uri"}},
	{"blob", []string{"mime_type"}, []string{"content"}},
	{"binary", []string{"media_type"}, []string{"content"}},                     // pydantic-ai
	{"", []string{"media", "contentType"}, []string{"media", "url"}},            // genkit
	{"", []string{"inline_data", "mime_type"}, []string{"inline_data", "data"}}, // Gemini
	{"", []string{"inlineData", "mimeType"}, []string{"inlineData", "data"}},
}

// image returns an image's URL, or its bytes and their type.
func (t *tree) image(n int32, kind string) (mediaType string, data int32) {
	for i := range images {
		m := &images[i]
		if m.kind != kind {
			continue
		}
		if data = t.path(n, m.data...); t.kind(data) != nodeString {
			continue
		}
		if m.mediaType == nil {
			return "", data
		}
		if mediaType = t.str(t.path(n, m.mediaType...)); strings.HasPrefix(mediaType+"/", "image/") {
			if !strings.Contains(mediaType, "/") || strings.Contains(t.nodes[data].text, ":") { // a URL, which cannot be mistaken for bytes
				mediaType = ""
			}
			return mediaType, data
		}
	}
	return "", none
}
