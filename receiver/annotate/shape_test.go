// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"encoding/binary"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// gone stands for the value of an attribute that is removed.
type gone struct{}

// TestShapes: a value stays if it has the form that its name requires, and is removed if it may be text.
func TestShapes(t *testing.T) {
	messages := `[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		reason  string
		genAI   bool
		name    string
		in, out any
	}{
		{"a query is what somebody searches for, or a key", false, "url.full", "https://shop/x?q=the+patient&key=AIza", "https://shop/x"},
		{"a fragment may be text, too", false, "http.url", "https://shop/x#the-patient", "https://shop/x"},
		{"user and password", false, "url.full", "https://me:pa@ss@shop:8080/a@b?x@y", "https://shop:8080/a@b"},
		{"a target is a path", false, "http.target", "/x//a@b?q=1", "/x//a@b"},
		{"a URL without query and password", false, "http.url", "https://shop/x", "https://shop/x"},
		{"a header is a list", false, "http.request.header.referer", []any{"https://shop/?q=1"}, []any{"https://shop/"}},
		{"the path of a request", true, "url.path", "/v1/chat?key=AIza", "/v1/chat"},
		{"within a map", false, "request", attributes{"url.full": "https://shop/?q=1"}, attributes{"url.full": "https://shop/"}},
		{"a query by itself", false, "url.query", "q=the+patient", gone{}},
		{"keys stand in headers", false, "http.request.header.authorization", []any{"Bearer sk-1"}, gone{}},
		{"keys stand in cookies, too", false, "http.response.header.set-cookie", []any{"id=1"}, gone{}},
		{"the id of a request is not a key", false, "http.request.header.x-request-id", []any{"r-1"}, []any{"r-1"}},
		{"metadata are headers", false, "rpc.grpc.response.metadata.x", []any{"r-1"}, gone{}},

		{"a type of an error", false, "error.type", "BadRequestError", "BadRequestError"},
		{"a message is not a type", false, "error.type", "Invalid prompt: the patient asked", "_OTHER"},
		{"a message is not a type on GenAI telemetry either", true, "exception.type", "Invalid prompt: the patient asked", "_OTHER"},
		{"a reason", true, "gen_ai.response.finish_reasons", []any{"stop", "the patient"}, []any{"stop", "_OTHER"}},

		{"a flag is a flag", true, "gen_ai.is_streaming", "True", "True"},
		{"a list of messages is not a flag", true, "gen_ai.is_streaming", messages, gone{}},
		{"a number is a number", true, "gen_ai.usage.details.cache_read_tokens", "12", "12"},
		{"a text is not a number", true, "gen_ai.usage.details.cache_read_tokens", "the patient", gone{}},
		{"an id is a word", true, "tool_call.id", "call_1", "call_1"},
		{"a text is not an id", true, "tool_call.id", "the patient", gone{}},
		{"a text without spaces is not an id", true, "tool_call.id", "患者は尋ねた", gone{}},
		{"a list of messages is not a type", true, "gen_ai.output.type", messages, gone{}},
		{"a name may have spaces", true, "gen_ai.agent.name", "my agent", "my agent"},
		{"a document is not a name", true, "gen_ai.agent.name", "\n " + messages, gone{}},
		{"an object is not a name", true, "gen_ai.agent.name", ` {"text":"hi"}`, gone{}},

		{"8 digits are a domain", true, semconv.HashDomain, "0123abcd", "0123abcd"},
		{"a text is not a domain", true, semconv.HashDomain, "the pat ", gone{}},
		{"a text is not a fingerprint", false, semconv.HashKey, "the patient asked", gone{}},
		{"a known identity", false, semconv.Identity, "trace", "trace"},
		{"a text is not an identity", false, semconv.Identity, "the patient asked", gone{}},
		{"an outcome is a word", true, semconv.OutcomeReason, "deadline", "deadline"},
		{"a text is not an outcome", true, semconv.OutcomeReason, "the patient asked", gone{}},
		{"a text is not cells", false, semconv.Cells, []byte(strings.Repeat("the patient asked why so", 1000)), gone{}},
		{"ids are numbers", true, semconv.HashIDs, []any{int64(1), int64(-1)}, []any{int64(1), int64(-1)}},
		{"a text is not an id of a block", true, semconv.HashIDs, []any{int64(1), "hi"}, gone{}},
		{"ranges are numbers", true, semconv.HashRanges, []any{int64(0), int64(44)}, []any{int64(0), int64(44)}},
		{"a text is not a range", true, semconv.HashRanges, []any{int64(1), "hi"}, gone{}},
		{"replies are numbers", true, semconv.Replies, []any{int64(7), int64(1034), int64(212)}, []any{int64(7), int64(1034), int64(212)}},
		{"a text is not a reply", true, semconv.Replies, []any{"hi"}, gone{}},
		{"the rows that a row waits for are numbers", true, semconv.WaitFor, []any{int64(7)}, []any{int64(7)}},
		{"a text is not a row", true, semconv.WaitFor, []any{"hi"}, gone{}},
		{"evidence is words", true, semconv.WaitEvidence, []any{"tool_call", "time"}, []any{"tool_call", "time"}},
		{"a text is not evidence", true, semconv.WaitEvidence, []any{"tool_call", "the patient asked"}, gone{}},
		{"calls of tools are numbers", true, semconv.ToolCalls, []any{int64(7), int64(-7)}, []any{int64(7), int64(-7)}},
		{"a text is not the call of a result", true, semconv.ToolResults, []any{"call_1"}, gone{}},
		{"message ends without cells are removed", true, semconv.CellsEnds, make([]byte, 12), gone{}},
	} {
		t.Run(c.reason+", "+c.name, func(t *testing.T) {
			in := attributes{c.name: c.in}
			if c.genAI {
				in["gen_ai.operation.name"] = "invoke_agent"
			}
			td, span := oneSpan(t, in)
			want := attributes{}
			maps.Copy(want, span.Attributes().AsRaw())
			changed := int64(1)
			switch {
			case c.out == gone{}:
				delete(want, c.name)
			case cmp.Equal(c.in, c.out):
				changed = 0
			default:
				want[c.name] = c.out
			}
			counts := newAnnotator(t, annotate.Config{}).Traces(td)
			if diff := cmp.Diff(want, span.Attributes().AsRaw()); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			var n int64
			for _, removed := range counts.Removed {
				n += removed
			}
			if n != changed {
				t.Errorf("%d counted as removed, want %d: %v", n, changed, counts.Removed)
			}
		})
	}
}

// TestCells: only possible cells of a prompt stay, and only on a span.
func TestCells(t *testing.T) {
	chain := chainOf(t, testKey(t, 'k'), strings.Repeat("the patient asked why so", 1000))
	long := blockhash.Chain{Cells: make([]uint64, blockhash.MaxCells), Bytes: blockhash.MaxCells * blockhash.CellSize * 3}
	longest, err := long.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	forged := append([]byte(strings.Repeat("asked why", 10)[:80]), binary.LittleEndian.AppendUint64(nil, 8*128)...)
	for _, c := range []struct {
		reason string
		cells  []byte
		stay   bool
	}{
		{"those of a prompt", chain, true},
		{"those of the longest prompt", longest, true},
		{"a text as long as the longest cells", []byte(strings.Repeat("asked so", blockhash.MaxCells+2)), false},
		{"a shorter text", []byte(strings.Repeat("asked so", 100)), false},
		{"a text followed by a length that does not fit", forged, false},
		{"more cells than there can be", append(longest, make([]byte, 8)...), false},
		{"cells without their last 8 bytes", chain[:len(chain)-8], false},
	} {
		td, span := oneSpan(t, chat(attributes{semconv.Identity: "text", semconv.Cells: c.cells}))
		event := span.Events().AppendEmpty().Attributes()
		event.PutEmptyBytes(semconv.Cells).FromRaw(c.cells)
		link := span.Links().AppendEmpty().Attributes()
		link.PutEmptyBytes(semconv.Cells).FromRaw(c.cells)
		newAnnotator(t, annotate.Config{}).Traces(td)
		if _, ok := span.Attributes().Get(semconv.Cells); ok != c.stay {
			t.Errorf("%s: cells stay: %t, want %t", c.reason, ok, c.stay)
		}
		if event.Len()+link.Len() > 0 {
			t.Errorf("%s: cells stay on an event or a link", c.reason)
		}
	}
}

// TestEnds: only possible message ends of the span's own text stay, and only on a span.
func TestEnds(t *testing.T) {
	whole := chained(t, testKey(t, 'k'), "system\nBe kind.\nuser\n"+strings.Repeat("the patient asked why so", 100)+"\n", "Because.")
	cells, ends, reply := whole[semconv.Cells].([]byte), whole[semconv.CellsEnds].([]byte), whole[semconv.CellsReply].([]byte)
	for _, c := range []struct {
		reason      string
		cells       []byte
		ends, reply []byte
		stay        [2]bool
	}{
		{"those of a prompt, and of its reply", cells, ends, reply, [2]bool{true, true}},
		{"ends without cells", nil, ends, reply, [2]bool{}},
		{"those of another prompt", chainOf(t, testKey(t, 'k'), "user\nHello\n"), ends, ends[:12], [2]bool{}},
		{"a reply among the messages", cells, append(append([]byte{}, ends...), reply...), ends[12:], [2]bool{}},
		{"a text", cells, []byte(secret), []byte(secret[:12]), [2]bool{}},
		{"a longer text", cells, []byte(longSecret), []byte(longSecret), [2]bool{}},
		{"ends of which a byte is missing", cells, ends[:11], reply[:11], [2]bool{}},
		{"more ends than there can be", cells, make([]byte, 12*blockhash.MaxEnds+12), nil, [2]bool{}},
	} {
		in := chat(attributes{semconv.Identity: "text", semconv.CellsReply: c.reply, semconv.CellsEnds: c.ends})
		if c.cells != nil {
			in[semconv.Cells] = c.cells
		}
		td, span := oneSpan(t, in)
		// Another, unannotated span has no text to which they could belong.
		other := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().AppendEmpty().Attributes()
		other.PutEmptyBytes(semconv.CellsEnds).FromRaw(c.ends)
		other.PutEmptyBytes(semconv.CellsReply).FromRaw(c.reply)
		event := span.Events().AppendEmpty().Attributes()
		event.PutEmptyBytes(semconv.Cells).FromRaw(c.cells)
		event.PutEmptyBytes(semconv.CellsEnds).FromRaw(c.ends)
		event.PutEmptyBytes(semconv.CellsReply).FromRaw(c.reply)
		newAnnotator(t, annotate.Config{}).Traces(td)
		_, hasEnds := span.Attributes().Get(semconv.CellsEnds)
		_, hasReply := span.Attributes().Get(semconv.CellsReply)
		if got := [2]bool{hasEnds, hasReply}; got != c.stay {
			t.Errorf("%s: ends and reply stay: %v, want %v", c.reason, got, c.stay)
		}
		if event.Len() > 0 || other.Len() > 0 {
			t.Errorf("%s: ends stay on an event, or on a span without a text", c.reason)
		}
	}
}

// TestLongSession: a session that is too long for an id is replaced by its keyed hash, in the same way on all spans.
func TestLongSession(t *testing.T) {
	session := strings.Repeat("s", 300)
	td, parent := oneSpan(t, chat(attributes{semconv.Row: int64(1), semconv.Identity: "trace", semconv.Session: session}))
	list := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	for range 3 {
		list.AppendEmpty().SetSpanID(parent.SpanID())
	}
	list.At(1).Attributes().PutStr(semconv.Session, session)
	list.At(2).Attributes().PutStr(semconv.Session, session)
	list.At(2).Attributes().PutStr("session.id", "another")
	list.At(3).Attributes().PutStr(semconv.Session, session)
	list.At(3).Attributes().PutStr("gen_ai.operation.name", "chat")
	newAnnotator(t, annotate.Config{}).Traces(td)
	for i, span := range list.All() {
		if v, _ := span.Attributes().Get(semconv.Session); v.AsString() != testKey(t, 'k').Session(session) {
			t.Errorf("session of span %d is %q", i, v.AsString())
		}
	}
}

// TestTextHasNames: values under names that frameworks use for texts are removed from telemetry that is not recognised as GenAI, however
// short they are.
func TestTextHasNames(t *testing.T) {
	in := attributes{}
	for _, name := range []string{
		"request_text", "response_text", "function_args", "tool_input", "arguments", "agentops.entity.input", "db.mongodb.query",
		"db.redis.args", "question", "user.message", "rag.question", "chat.user_input", "tool.result", "braintrust.input_json",
		"spring.ai.chat.client.user.text", "db.vector.query.content", "mcp.request.arguments", "document.content", "api.prompt",
	} {
		in[name] = "hi"
	}
	td, span := oneSpan(t, in)
	before := span.Attributes().Len()
	span.Attributes().PutStr("shop.note", "stays")
	span.Attributes().PutInt("llmx.input", 3)
	event := span.Events().AppendEmpty()
	event.SetName("anything")
	event.Attributes().PutStr("gen_ai.system", "openai")
	event.Attributes().PutStr("shop.note", "goes: the event is GenAI's")
	counts := newAnnotator(t, annotate.Config{}).Traces(td)
	if diff := cmp.Diff(attributes{"shop.note": "stays", "llmx.input": int64(3)}, span.Attributes().AsRaw()); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(attributes{"gen_ai.system": "openai"}, event.Attributes().AsRaw()); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	var n int64
	for _, removed := range counts.Removed {
		n += removed
	}
	if n != int64(before)+1 || counts.Removed["*.input"] != 1 {
		t.Errorf("%d removed of %d: %v", n, before+1, counts.Removed)
	}
}

// TestSessionKeys: a session key is the name of one attribute and not a pattern, so that it lets nothing else through.
func TestSessionKeys(t *testing.T) {
	for _, key := range []string{"", "*", "gen_ai.*", "a*b", strings.Repeat("x", 257)} {
		if _, err := annotate.New(annotate.Config{SessionKeys: []string{"chat.id", key}}); err == nil || !strings.Contains(err.Error(), "session_keys[1]") {
			t.Errorf("%q: error %v", key, err)
		}
	}
}

// TestClassKeys: a span has the class in its attributes, and the attribute stays if it is one word. A header's name is given in full, and
// other headers are removed as usual.
func TestClassKeys(t *testing.T) {
	for _, key := range []string{"", "*", "http.request.header.*"} {
		if _, err := annotate.New(annotate.Config{ClassKeys: []string{key}}); err == nil || !strings.Contains(err.Error(), "class_keys[0]") {
			t.Errorf("%q: error %v", key, err)
		}
	}
	a := newAnnotator(t, annotate.Config{ClassKeys: []string{"http.request.header.x-class"}})
	for _, c := range []struct {
		raw             attributes
		class, priority any
	}{
		{attributes{"http.request.header.x-class": []any{"batch"}, "http.request.header.cookie": []any{"k"}}, "batch", nil},
		{chat(attributes{"http.request.header.x-class": []any{"a long story"}}), nil, nil},
		{chat(attributes{"openai.request.service_tier": "flex", "request_prio": int64(3)}), "flex", int64(3)},
		{chat(attributes{"openai.request.service_tier": "flex", "mooncake.class": "mine", "mooncake.priority": int64(0)}), "mine", int64(0)},
		{attributes{"mooncake.class": "two words"}, nil, nil},
	} {
		td, span := oneSpan(t, c.raw)
		a.Traces(td)
		got := span.Attributes().AsRaw()
		if got["mooncake.class"] != c.class || got["mooncake.priority"] != c.priority {
			t.Errorf("%v: class %v, priority %v", c.raw, got["mooncake.class"], got["mooncake.priority"])
		}
		for name := range got {
			if name == "http.request.header.cookie" || name == "http.request.header.x-class" && c.class == nil {
				t.Errorf("%v keeps %s", c.raw, name)
			}
		}
	}
}

// TestUsageWithoutItsParts: if there are more cached tokens than input tokens, they are added to the input, and the span is counted.
func TestUsageWithoutItsParts(t *testing.T) {
	td, span := oneSpan(t, chat(attributes{"gen_ai.usage.input_tokens": int64(10), "gen_ai.usage.cache_read.input_tokens": int64(5000)}))
	counts := newAnnotator(t, annotate.Config{}).Traces(td)
	if v, _ := span.Attributes().Get("gen_ai.usage.input_tokens"); v.Int() != 5010 || counts.Completed != 1 {
		t.Errorf("input of %d tokens, %d completed", v.Int(), counts.Completed)
	}
}

// TestNoNameTakesMessages: a list of messages stays under no known name, however short it is.
func TestNoNameTakesMessages(t *testing.T) {
	for name, kind := range genai.Names() {
		in := chat(attributes{"gen_ai.operation.name": "invoke_agent"})
		name = strings.Replace(strings.TrimSuffix(name, "*"), "*.", "x.", 1)
		in[name] = `[{"role":"user","content":"` + secret + `"}]`
		td, _ := oneSpan(t, in)
		newAnnotator(t, annotate.Config{}).Traces(td)
		if strings.Contains(testproducers.TraceBytes(t, td)[0], secret) {
			t.Errorf("a list of messages stays under %s, of kind %d", name, kind)
		}
	}
}
