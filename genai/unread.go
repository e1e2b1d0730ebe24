// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"slices"
	"strings"

	"github.com/moonloop/moonloop/semconv"
)

// Unreadable parts of a prompt must not count as equal, because two prompts would be mistaken for one. Such parts are unknown members of a
// document, parts of a message without their content, and a text with the mark of a program that cut it.

// Members of a request, of a message or a part, and of a medium that are not text, however long they are.
var (
	parameters = vocabularySet("parameters")
	aspects    = vocabularySet("aspects", semconv.GenAISystem, semconv.GenAIProviderName)
	labels     = vocabularySet("labels")
)

// Limits below which an unknown value counts as an option, not as a text.
const (
	maxOption      = 64 // bytes of a word
	maxOptionNodes = 64 // of a list or an object of words and numbers
)

// texty reports whether a value may contain text of a prompt.
func (t *tree) texty(n int32) bool {
	switch t.kind(n) {
	case nodeString:
		s := t.nodes[n].text
		return s != "" && (len(s) > maxOption || !IsWord(s))
	case nodeArray, nodeObject:
		for i := range t.values(n) {
			if t.texty(i) {
				return true
			}
		}
		return t.nodes[n].next-n > maxOptionNodes
	default:
		return false
	}
}

// moreText reports whether a request has unread members that may belong to the prompt.
func (t *tree) moreText(object int32, read ...int32) bool {
	for value := range t.values(object) {
		if !slices.Contains(read, value) && !parameters[t.nodes[value-1].text] && t.texty(value) {
			return true
		}
	}
	return false
}

// others visits the unread members of a message or a part that contain text. Their meaning and their position in the message are unknown.
// They come first, so that messages that differ in them share nothing.
func (w *walker) others(t *tree, object int32, read ...int32) {
	var space [8]int32
	values := space[:0]
	for value := range t.values(object) {
		if slices.Contains(read, value) || aspects[t.nodes[value-1].text] || !t.texty(value) {
			continue
		}
		if t.partial(value) {
			w.endHere()
			return
		}
		values = append(values, value)
	}
	t.sortByKey(values)
	for _, value := range values {
		b := t.appendString(append(w.buffer[:0], '{'), value-1)
		b = t.appendCanonical(append(b, ':'), value)
		w.buffer = append(b, '}')
		w.emit(PieceOther, string(w.buffer))
	}
}

// What identifies an image, audio or a file: words in its type, or names of its members.
var (
	mediaTypes   = []string{"image", "audio", "video", "file", "document", "media", "blob", "uri", "binary", "pdf"}
	mediaMembers = []string{"inline_data", "inlineData", "file_data", "fileData", "media", "image_url", "image", "audio", "video", "mime_type", "media_type"}
)

// isMedia reports whether a part is an image, audio or a file.
func (t *tree) isMedia(n int32, kind string) bool {
	kind = strings.ToLower(kind)
	return slices.ContainsFunc(mediaTypes, func(word string) bool { return strings.Contains(kind, word) }) ||
		t.get(n, mediaMembers...) != none
}

// substantial reports whether a medium, or a unique reference to it, exists: bytes, a URL, an id. A placeholder does not count.
func (t *tree) substantial(n int32) bool {
	found := false
	for value := range t.values(n) {
		if labels[t.nodes[value-1].text] {
			continue
		}
		switch t.kind(value) {
		case nodeString:
			if t.placeholder(value) {
				return false
			}
			found = true
		case nodeObject:
			found = t.substantial(value) || found
		case nodeArray:
			found = found || t.nodes[value].next > value+1
		default:
		}
	}
	return found
}

// placeholder reports whether a text replaces a medium, or is only its beginning.
func (t *tree) placeholder(n int32) bool {
	s := t.nodes[n].text
	if strings.HasPrefix(s, "data:") && strings.Contains(s, ",") {
		s = s[strings.LastIndexByte(s, ',')+1:]
	}
	const longest = 256 // bytes of a text that stands for a medium
	tail := s[max(0, len(s)-longest):]
	return s == "" || t.nodes[n].cut || redacted(s) || len(withoutMarks(s)) < len(s) ||
		strings.HasSuffix(tail, "...") || strings.HasSuffix(tail, "…") || len(s) <= longest && !strings.Contains(s, "/") && strings.ContainsAny(s, " <[{")
}

// redactions are texts that replace others.
var redactions = []string{"__REDACTED__", "[REDACTED]", "<REDACTED>", "[redacted]", "<redacted>", "REDACTED", "***", "[Filtered]"}

func redacted(s string) bool {
	const longest = 16
	return len(s) <= longest && slices.Contains(redactions, s)
}

// cutMarks are the marks at the end of texts that were cut.
var cutMarks = []string{"[truncated]", "[TRUNCATED]", "(truncated)", "<truncated>", "[Truncated]"}

// withoutMarks returns a text without the marks of cuts at its end, and the dots before them. There may be several, from one program after
// another.
func withoutMarks(s string) string {
	for {
		rest, marked := withoutMark(s)
		if !marked {
			return s
		}
		s = rest
	}
}

// withoutMark removes one mark.
func withoutMark(s string) (rest string, marked bool) {
	if s == "" || s[len(s)-1] != ']' && s[len(s)-1] != ')' && s[len(s)-1] != '>' {
		return s, false
	}
	for _, mark := range cutMarks {
		if rest, ok := strings.CutSuffix(s, mark); ok {
			rest = strings.TrimRight(rest, " ")
			return strings.TrimSuffix(strings.TrimSuffix(rest, "..."), "…"), true
		}
	}
	return s, false
}
