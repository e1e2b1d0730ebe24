// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// picture returns a request with a question about an image.
func picture(before string, image []byte, after string) attributes {
	return chat(attributes{"gen_ai.input.messages": []any{attributes{"role": "user", "parts": []any{
		attributes{"type": "text", "content": before},
		attributes{"type": "blob", "modality": "image", "mime_type": "image/png", "content": base64.StdEncoding.EncodeToString(image)},
		attributes{"type": "text", "content": after},
	}}}})
}

// seen returns a receiver's chain of a prompt, where its last image, audio or file ends, and whether the prompt's end is missing.
func seen(t *testing.T, raw attributes) (chain blockhash.Chain, media int64, prefix bool) {
	t.Helper()
	td, span := oneSpan(t, raw)
	newAnnotator(t, annotate.Config{}).Traces(td)
	if cells, ok := span.Attributes().Get(semconv.Cells); ok {
		if err := chain.UnmarshalBinary(cells.Bytes().AsRaw()); err != nil {
			t.Fatal(err)
		}
	}
	if v, ok := span.Attributes().Get(semconv.CellsMedia); ok {
		media = v.Int()
	}
	_, prefix = span.Attributes().Get(semconv.CellsPrefix)
	for name, v := range span.Attributes().All() {
		if len(v.AsString()) > 2000 && name != semconv.Cells {
			t.Errorf("%s is left, with %d bytes", name, len(v.AsString()))
		}
	}
	return chain, media, prefix
}

// TestPictures: an image is identified by its content, and adds little to the length of a prompt, however large it is.
func TestPictures(t *testing.T) {
	before, after := strings.Repeat("What do you see? ", 40), strings.Repeat("Be brief. ", 40)
	small, large := make([]byte, 30_000), make([]byte, 300_000)
	other := slices.Clone(large)
	other[len(other)-1] = 1 // the last byte of many
	textCells := (len("user\n") + len(before)) / blockhash.CellSize

	one, end, _ := seen(t, picture(before, large, after))
	if end%blockhash.CellSize != 0 || end < int64(len(before)) || end > int64(len(before)+300) {
		t.Errorf("the image ends at byte %d", end)
	}
	if one.Bytes > 2000 {
		t.Errorf("an image of %d bytes makes a prompt of %d", len(large), one.Bytes)
	}
	for name, c := range map[string]struct {
		raw   attributes
		cells int // that are the same
	}{
		"the same request":          {picture(before, large, after), len(one.Cells)},
		"the same image, other end": {picture(before, large, strings.ToUpper(after)), int(end / blockhash.CellSize)},
		"an image of another size":  {picture(before, small, after), textCells},
		"another last byte of many": {picture(before, other, after), textCells},
	} {
		two, _, _ := seen(t, c.raw)
		same := 0
		for same < min(len(one.Cells), len(two.Cells)) && one.Cells[same] == two.Cells[same] {
			same++
		}
		if same != c.cells || (same == len(one.Cells)) != (one.Tail == two.Tail) {
			t.Errorf("%s: %d cells are the same, want %d", name, same, c.cells)
		}
	}

	none := picture(before, nil, after) // the position of the image is recorded, but the image is not
	cut, end, prefix := seen(t, none)
	if !prefix || end != 0 || len(cut.Cells) != textCells || !slices.Equal(cut.Cells, one.Cells[:textCells]) {
		t.Errorf("an image that is not recorded: %d cells, prefix %v, image at %d", len(cut.Cells), prefix, end)
	}
}

// TestNoTextOfShapes sends text in fields where some producers have it, and finds none of it afterwards.
func TestNoTextOfShapes(t *testing.T) {
	const secret = "the patient asked whether it would rain"
	document := func(s string) string {
		return `[{"event.name":"gen_ai.user.message","role":"user","content":"` + s + `"}]`
	}
	for _, raw := range []attributes{
		{"gen_ai.operation.name": "chat", "events": document(secret)},
		{"agent_name": "a", "gen_ai.usage.input_tokens": int64(3), "all_messages_events": document(secret), "final_result": secret},
		{"gen_ai.operation.name": "chat", "gcp.vertex.agent.llm_request": `{"contents":"hi","config":{"system_instruction":"` + secret + `"}}`},
		{"gen_ai.operation.name": "chat", "gen_ai.conversation.id": strings.Repeat(secret, 9)},
		{"gen_ai.operation.name": "framework", "spring.ai.chat.client.conversation.id": strings.Repeat(secret, 9)},
		{"gen_ai.operation.name": "chat", "spring.ai.chat.client.user.text": secret},
		picture(secret, []byte(secret), secret),
	} {
		td, span := oneSpan(t, raw)
		event := span.Events().AppendEmpty()
		event.SetName("gen_ai.user.message")
		event.Attributes().PutStr("gen_ai.event.content", `{"content":"`+secret+`"}`)
		newAnnotator(t, annotate.Config{}).Traces(td)
		out, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []string{secret, "rain", base64.StdEncoding.EncodeToString([]byte(secret))} {
			if strings.Contains(string(out), piece) {
				t.Errorf("%v: %q is left:\n%s", raw, piece, out)
			}
		}
	}
}

// TestRemotePrompts: a span is marked if part of its prompt is only on the server.
func TestRemotePrompts(t *testing.T) {
	td, span := oneSpan(t, chat(attributes{"gen_ai.request.previous_response.id": "r1"}))
	newAnnotator(t, annotate.Config{}).Traces(td)
	if v, ok := span.Attributes().Get(semconv.PromptRemote); !ok || !v.Bool() {
		t.Error("a prompt whose history is at the server is not marked as such")
	}
}

// TestLongSessions: the length of a session's id does not matter, and two ids that begin alike stay two sessions.
func TestLongSessions(t *testing.T) {
	twins := map[string]bool{}
	for _, id := range []string{strings.Repeat("x", 256), strings.Repeat("x", 257), strings.Repeat("x", 1<<16), strings.Repeat("x", 1<<16-1) + "y"} {
		td, span := oneSpan(t, chat(attributes{"gen_ai.conversation.id": id}))
		counts := newAnnotator(t, annotate.Config{}).Traces(td)
		twin, ok := span.Attributes().Get(semconv.Session)
		if !ok || twin.Type() != pcommon.ValueTypeStr || len(twin.Str()) != 16 || counts.Sessions != 1 {
			t.Errorf("a session of %d bytes: %d sessions, twin %q", len(id), counts.Sessions, twin.AsString())
		}
		twins[twin.Str()] = true
	}
	if len(twins) != 4 {
		t.Errorf("four sessions have %d twins", len(twins))
	}
}
