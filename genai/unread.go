// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"slices"
	"strings"

	"github.com/moonloop/moonloop/semconv"
)

// What is in a prompt and cannot be read must not pass for equal: two prompts would be taken for one. A document may hold
// members that nobody has seen yet, a message parts without their content, a text the mark of whoever cut it.

// Members of a request, of a message or a part, and of a medium that are no text, however long they are.
var (
	parameters = vocabularySet("parameters")
	aspects    = vocabularySet("aspects", semconv.GenAISystem, semconv.GenAIProviderName)
	labels     = vocabularySet("labels")
)

// Bounds below which a value that is not known is taken for an option, and not for a text.
const (
	maxOption      = 64 // bytes of a word
	maxOptionNodes = 64 // of a list or an object of words and numbers
)

// texty reports whether a value may hold text of a prompt.
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

// moreText reports whether a request has members beyond those that were read that may be of the prompt.
func (t *tree) moreText(object int32, read ...int32) bool {
	for value := range t.values(object) {
		if !slices.Contains(read, value) && !parameters[t.nodes[value-1].text] && t.texty(value) {
			return true
		}
	}
	return false
}

// others visits the members of a message or a part that hold text and are not read. Nobody knows what they are, nor where in
// the message they stand: they come before the rest of it, so that messages that differ in them share nothing.
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

// What makes a part an image, a sound or a file: words in its type, or members of it.
var (
	mediaTypes   = []string{"image", "audio", "video", "file", "document", "media", "blob", "uri", "binary", "pdf"}
	mediaMembers = []string{"inline_data", "inlineData", "file_data", "fileData", "media", "image_url", "image", "audio", "video", "mime_type", "media_type"}
)

// isMedia reports whether a part is an image, a sound or a file.
func (t *tree) isMedia(n int32, kind string) bool {
	kind = strings.ToLower(kind)
	return slices.ContainsFunc(mediaTypes, func(word string) bool { return strings.Contains(kind, word) }) ||
		t.get(n, mediaMembers...) != none
}

// substantial reports whether a medium is there, or a reference that says which one it is: bytes, a URL, an id. What took the
// place of one does not.
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

// placeholder reports whether a text stands for a medium that is not there, or only for its beginning.
func (t *tree) placeholder(n int32) bool {
	s := t.nodes[n].text
	if strings.HasPrefix(s, "data:") && strings.Contains(s, ",") {
		s = s[strings.LastIndexByte(s, ',')+1:]
	}
	const longest = 256 // of what stands for a medium
	tail := s[max(0, len(s)-longest):]
	return s == "" || t.nodes[n].cut || redacted(s) || len(withoutMark(s)) < len(s) ||
		strings.HasSuffix(tail, "...") || strings.HasSuffix(tail, "…") || len(s) <= longest && !strings.Contains(s, "/") && strings.ContainsAny(s, " <[{")
}

// redactions take the place of texts.
var redactions = []string{"__REDACTED__", "[REDACTED]", "<REDACTED>", "[redacted]", "<redacted>", "REDACTED", "***", "[Filtered]"}

func redacted(s string) bool {
	const longest = 16
	return len(s) <= longest && slices.Contains(redactions, s)
}

// cutMarks are what whoever cuts a text puts at its end.
var cutMarks = []string{"[truncated]", "[TRUNCATED]", "(truncated)", "<truncated>", "[Truncated]"}

// withoutMark returns a text without the mark of a cut at its end, and the dots before that.
func withoutMark(s string) string {
	if s == "" || s[len(s)-1] != ']' && s[len(s)-1] != ')' && s[len(s)-1] != '>' {
		return s
	}
	for _, mark := range cutMarks {
		if rest, ok := strings.CutSuffix(s, mark); ok {
			rest = strings.TrimRight(rest, " ")
			return strings.TrimSuffix(strings.TrimSuffix(rest, "..."), "…")
		}
	}
	return s
}
