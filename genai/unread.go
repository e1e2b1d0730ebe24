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

// parameters are members of a request that are no part of its prompt, however long they are.
var parameters = setOf(
	"model", "models", "model_name", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "n", "best_of", "seed", "stop", "stop_sequences",
	"max_tokens", "max_completion_tokens", "max_output_tokens", "max_retries", "timeout", "presence_penalty", "frequency_penalty",
	"repetition_penalty", "logit_bias", "logprobs", "top_logprobs", "echo", "user", "metadata", "store", "parallel_tool_calls", "tool_choice",
	"toolChoice", "function_call", "service_tier", "response_format", "text", "reasoning", "reasoning_effort", "modalities", "audio", "include", "truncation",
	"prompt_cache_key", "safety_identifier", "verbosity", "thinking", "extra_headers", "extra_query", "headers", "http_options", "httpOptions", "api_key", "api_base", "base_url",
	"safety_settings", "safetySettings", "labels", "tool_config", "toolConfig", "generation_config", "generationConfig",
	"response_schema", "responseSchema", "response_json_schema", "response_mime_type", "response_modalities", "speech_config",
	"thinking_config", "automatic_function_calling", "inference_config", "inferenceConfig", "anthropic_version", "modelId", "output", "config", "options",
	"id", "object", "type", "call_type", "litellm_call_id", "client", "callbacks",
)

// aspects are members of a message or of a part that are no text of it, however long they are.
var aspects = setOf(
	"role", "type", "kind", "id", "name", "toolName", "index", "status", "call_id", "tool_call_id", "toolCallId", "tool_use_id", "event.name",
	"gen_ai.message.index", semconv.GenAISystem, semconv.GenAIProviderName, "finish_reason", "finishReason", "stop_reason", "stop_sequence", "usage", "usage_metadata",
	"response_metadata", "metadata", "annotations", "citations", "logprobs", "timestamp", "created_at", "createdAt", "created", "time", "cache_control", "cacheControl",
	"providerOptions", "providerMetadata", "providerExecuted", "signature", "thought", "thought_signature", "thoughtSignature",
	"arguments", "output", "summary", "encoding", "mime_type", "media_type",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

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
	case nodeArray:
		for i := n + 1; i < t.nodes[n].next; i = t.nodes[i].next {
			if t.texty(i) {
				return true
			}
		}
		return t.nodes[n].next-n > maxOptionNodes
	case nodeObject:
		for key := n + 1; key < t.nodes[n].next; key = t.nodes[key+1].next {
			if t.texty(key + 1) {
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
	if t.kind(object) != nodeObject {
		return false
	}
	for key := object + 1; key < t.nodes[object].next; key = t.nodes[key+1].next {
		if !slices.Contains(read, key+1) && !parameters[t.nodes[key].text] && t.texty(key+1) {
			return true
		}
	}
	return false
}

// others visits the members of a message or a part that hold text and are not read. Nobody knows what they are, nor where in
// the message they stand: they come before the rest of it, so that messages that differ in them share nothing.
func (w *walker) others(t *tree, object int32, read ...int32) {
	if t.kind(object) != nodeObject {
		return
	}
	var space [8]int32
	keys := space[:0]
	for key := object + 1; key < t.nodes[object].next; key = t.nodes[key+1].next {
		if slices.Contains(read, key+1) || aspects[t.nodes[key].text] || !t.texty(key+1) {
			continue
		}
		if t.partial(key + 1) {
			w.endHere()
			return
		}
		keys = append(keys, key)
	}
	slices.SortStableFunc(keys, func(x, y int32) int { return strings.Compare(t.nodes[x].text, t.nodes[y].text) })
	for _, key := range keys {
		b := t.appendString(append(w.buffer[:0], '{'), key)
		b = t.appendCanonical(append(b, ':'), key+1)
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

// labels are members of a medium that say what it is called, and not what it is.
var labels = setOf(
	"type", "kind", "modality", "mime_type", "mimeType", "media_type", "mediaType", "contentType", "content_type", "detail", "format", "name",
	"filename", "file_name", "display_name", "displayName", "title", "encoding", "size", "width", "height", "role", "status",
)

// substantial reports whether a medium is there, or a reference that says which one it is: bytes, a URL, an id. What took the
// place of one does not.
func (t *tree) substantial(n int32) bool {
	found := false
	for key := n + 1; key < t.nodes[n].next; key = t.nodes[key+1].next {
		value := key + 1
		if labels[t.nodes[key].text] {
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
var redactions = setOf("__REDACTED__", "[REDACTED]", "<REDACTED>", "[redacted]", "<redacted>", "REDACTED", "***", "[Filtered]")

func redacted(s string) bool {
	const longest = 16
	return len(s) <= longest && redactions[s]
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
