// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/clock"
)

// seenInReply is what a test of a transcript checks.
type seenInReply struct {
	Class     Class
	Chunks    int
	Finish    string
	Usage     Usage
	Reply     string
	Done      bool
	Code      string
	Tokens    []int32
	ToolCalls string
}

func look(x *Exchange) seenInReply {
	s := seenInReply{
		Chunks: len(x.At), Finish: x.FinishReason, Usage: x.Usage, Reply: x.Reply, Done: x.Done,
		Tokens: x.Tokens, ToolCalls: string(x.ToolCalls),
	}
	if x.Err != nil {
		s.Class, s.Code = x.Err.Class, x.Err.Code
	}
	return s
}

// The pieces of most transcripts.
const (
	roleOnly = `{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}`
	chunkA   = `{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"A "},"finish_reason":null}]}`
	chunkB   = `{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"B"},"finish_reason":null}]}`
	finish   = `{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usage    = `{"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":4}}}`
	done     = `[DONE]`
	badEnd   = `{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}`
)

// raw is a stream of unchanged bytes.
func raw(s string) string { return sseHead + chunked(s) + lastChunk }

func answer(status, contentType, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status, contentType, len(body), body)
}

// TestQuirks reads transcripts of our own writing in the shapes that servers send. The name of each says the rule; those with
// the same number are about the same quirk.
func TestQuirks(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			full := Usage{Prompt: 9, Completion: 2, Cached: 4, Reasoning: Unknown}
			counted := func(p, c int64) Usage { return Usage{Prompt: p, Completion: c, Cached: Unknown, Reasoning: Unknown} }
			ab := seenInReply{Chunks: 2, Finish: "stop", Usage: full, Reply: "A B", Done: true}
			with := func(s seenInReply, change func(*seenInReply)) seenInReply { change(&s); return s }
			noUsage := with(ab, func(s *seenInReply) { s.Usage = NoUsage })
			long := strings.Repeat("1,", 150_000)

			for _, c := range []struct {
				name, reply string
				want        seenInReply
				whole       bool
			}{
				{"01 role-only first chunk, content absent: no token", sse(roleOnly, chunkA, chunkB, finish, usage, done), ab, false},
				{"01 role-only first chunk, content null: no token", sse(`{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}`, chunkA, chunkB, finish, usage, done), ab, false},
				{"01 role-only first chunk, content empty: no token", sse(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, chunkA, chunkB, finish, usage, done), ab, false},
				{"02 role on every chunk: ignored", sse(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"A "}}]}`, `{"choices":[{"index":0,"delta":{"role":"assistant","content":"B"}}]}`,
					`{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}`, usage, done), ab, false},
				{"03 finish reason in an empty chunk of its own", sse(chunkA, chunkB, finish, usage, done), ab, false},
				{"04 finish reason on the chunk with the last text: the text counts", sse(chunkA, `{"choices":[{"index":0,"delta":{"content":"B"},"finish_reason":"stop"}]}`, usage, done), ab, false},
				{"05 usage chunk without choices", sse(chunkA, chunkB, finish, usage, done), ab, false},
				{"06 usage on the finish chunk", sse(`{"choices":[{"index":0,"text":"A "}]}`, `{"choices":[{"index":0,"text":"B"}]}`,
					`{"choices":[{"text":"","index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`, done), ab, false},
				{"07 usage null on every chunk", sse(`{"usage":null,"choices":[{"index":0,"delta":{"content":"A "}}]}`, `{"usage":null,"choices":[{"index":0,"delta":{"content":"B"}}]}`, finish, usage, done), ab, false},
				{
					"07 usage zero on every chunk: the last counts", sse(`{"choices":[{"text":"A ","index":0}],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, `{"choices":[{"text":"B","index":0}],"usage":{"prompt_tokens":0,"completion_tokens":0}}`,
						`{"choices":[{"text":"","index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, done),
					with(ab, func(s *seenInReply) { s.Usage = counted(9, 2) }), false,
				},
				{
					"07 usage grows: tokens of each chunk", sse(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":9,"completion_tokens":0}}`,
						`{"choices":[{"index":0,"delta":{"content":"A "}}],"usage":{"prompt_tokens":9,"completion_tokens":3}}`, `{"choices":[{"index":0,"delta":{"content":"B"}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}`,
						finish, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}`, done),
					with(ab, func(s *seenInReply) { s.Usage = counted(9, 4); s.Tokens = []int32{3, 1} }), false,
				},
				{"08 usage of a choice: a request has one choice, so it is the usage of the request", sse(chunkA, chunkB,
					`{"choices":[{"index":0,"text":"","finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, done), with(ab, func(s *seenInReply) { s.Usage = counted(9, 2) }), false},
				{"09 no usage: unknown", sse(chunkA, chunkB, finish, done), noUsage, false},
				{"10 cached tokens missing: unknown, not 0", sse(chunkA, chunkB, finish, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, done), with(ab, func(s *seenInReply) { s.Usage = counted(9, 2) }), false},
				{
					"10 cached tokens 0: 0, not unknown", sse(chunkA, chunkB, finish, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}`, done),
					with(ab, func(s *seenInReply) { s.Usage = Usage{9, 2, 0, Unknown} }), false,
				},
				{"10 details null: unknown", sse(chunkA, chunkB, finish, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":null}}`, done), with(ab, func(s *seenInReply) { s.Usage = counted(9, 2) }), false},
				{
					"11 several tokens a chunk: chunks are not tokens", sse(`{"choices":[{"index":0,"delta":{"content":"A "}}]}`, chunkB, finish, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}`, done),
					with(ab, func(s *seenInReply) { s.Usage = counted(9, 7) }), false,
				},
				{"12 token-bearing chunk with empty text: an event, no content", sse(`{"choices":[{"index":0,"delta":{"content":""},"token_ids":[5]}]}`, chunkA, chunkB, finish, done), noUsage, false},
				{
					"13 fewer chunks than tokens", sse(chunkA, finish, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":30}}`, done),
					with(ab, func(s *seenInReply) { s.Chunks, s.Reply, s.Usage = 1, "A ", counted(9, 30) }), false,
				},
				{"14 delta.reasoning counts as a token", sse(`{"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}`, chunkA, finish, done), with(noUsage, func(s *seenInReply) { s.Reply = "A " }), false},
				{
					"14 delta.reasoning_content counts as a token", sse(`{"choices":[{"index":0,"delta":{"reasoning_content":"hm","content":null}}]}`, chunkA, finish, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":1}}}`, done),
					with(ab, func(s *seenInReply) { s.Reply = "A "; s.Usage = Usage{9, 2, Unknown, 1} }), false,
				},
				{
					"15 tool-call deltas only, content null: output", sse(
						`{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"get","arguments":""}}]}}]}`,
						`{"choices":[{"index":0,"delta":{"content":null,"tool_calls":[{"index":0,"function":{"name":null,"arguments":"{\"a\":"}}]}}]}`,
						`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},"finish_reason":"tool_calls"}]}`, done),
					seenInReply{Chunks: 3, Finish: "tool_calls", Usage: NoUsage, Done: true, ToolCalls: `[{"id":"t1","type":"function","function":{"name":"get","arguments":"{\"a\":1}"}}]`},
					false,
				},
				{"16 data: null is skipped", sse(`null`, chunkA, chunkB, finish, usage, done), ab, false},
				{"17 comments are skipped", sseHead + chunked(":\n\n", ": keep-alive\n\n", "data: "+chunkA+"\n\n", ":\n\n", "data: "+chunkB+"\n\n", "data: "+finish+"\n\n", "data: "+usage+"\n\n", "data: [DONE]\n\n") + lastChunk, ab, false},
				{"18 trailing space is trimmed", sse(chunkA+" ", chunkB+" ", finish, usage, done+" "), ab, false},
				{"19 data: without a space", raw("data:" + chunkA + "\n\ndata:" + chunkB + "\n\ndata:" + finish + "\n\ndata:" + usage + "\n\ndata:[DONE]\n\n"), ab, false},
				{"19 CRLF", raw(strings.ReplaceAll("data: "+chunkA+"\n\ndata: "+chunkB+"\n\ndata: "+finish+"\n\ndata: "+usage+"\n\ndata: [DONE]\n\n", "\n", "\r\n")), ab, false},
				{"19 CR alone", raw(strings.ReplaceAll("data: "+chunkA+"\n\ndata: "+chunkB+"\n\ndata: "+finish+"\n\ndata: "+usage+"\n\ndata: [DONE]\n\n", "\n", "\r")), ab, false},
				{"19 byte order mark, id and retry lines", raw("\xef\xbb\xbfdata: " + chunkA + "\nid: 1\nretry: 10\n\nid\ndata: " + chunkB + "\n\ndata: " + finish + "\n\ndata: " + usage + "\n\ndata: [DONE]\n\n"), ab, false},
				{"19 one event in several data lines", raw("data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"A \"}}]}\n\ndata: " + chunkB + "\n\ndata: " + finish + "\n\ndata: " + usage + "\n\ndata: [DONE]\n\n"), ab, false},
				{"19 undelimited last event counts", raw("data: " + chunkA + "\n\ndata: " + chunkB + "\n\ndata: " + usage + "\n\ndata: " + finish), with(ab, func(s *seenInReply) { s.Done = false }), false},
				{
					"20 typed events, no [DONE]", sseHead + chunked(
						"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r1\",\"status\":\"in_progress\"}}\n\n",
						"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"A \"}\n\n",
						"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"B\"}\n\n",
						"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r1\",\"status\":\"completed\",\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":2}}}\n\n") + lastChunk,
					with(ab, func(s *seenInReply) { s.Done, s.Finish = false, "completed" }), false,
				},
				{
					"20 typed events that end in failure", sseHead + chunked("event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"no\"}}}\n\n") + lastChunk,
					seenInReply{Class: ClassStreamError, Code: "server_error", Usage: NoUsage},
					false,
				},
				{"21 error in the stream, no [DONE]: failed", sse(roleOnly, chunkA, badEnd), seenInReply{Class: ClassStreamError, Chunks: 1, Usage: NoUsage, Reply: "A ", Code: "server_error"}, false},
				{"22 error in the stream, then [DONE]: failed", sse(roleOnly, chunkA, badEnd, done), seenInReply{Class: ClassStreamError, Chunks: 1, Usage: NoUsage, Reply: "A ", Code: "server_error", Done: true}, false},
				{"22 finish reason, then error: failed", sse(chunkA, finish, badEnd, done), seenInReply{Class: ClassStreamError, Chunks: 1, Finish: "stop", Usage: NoUsage, Reply: "A ", Code: "server_error", Done: true}, false},
				{"23 integer code and type", answer("400 Bad Request", "application/json", `{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}`), seenInReply{Class: ClassHTTP, Usage: NoUsage, Code: "BadRequestError"}, false},
				{"23 string code", answer("429 Too Many Requests", "application/json", `{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit"}}`), seenInReply{Class: ClassRateLimited, Usage: NoUsage, Code: "rate_limit"}, false},
				{"23 numeric string code: the type says more", answer("500 Oops", "application/json", `{"error":{"message":"no","type":"internal","code":"500"}}`), seenInReply{Class: ClassHTTP, Usage: NoUsage, Code: "internal"}, false},
				{"23 code null", answer("404 Not Found", "application/json", `{"error":{"message":"no","type":"api_error","param":null,"code":null}}`), seenInReply{Class: ClassHTTP, Usage: NoUsage, Code: "api_error"}, false},
				{"23 flat error", answer("400 Bad Request", "application/json", `{"object":"error","message":"no","type":"BadRequest","code":400}`), seenInReply{Class: ClassHTTP, Usage: NoUsage, Code: "BadRequest"}, false},
				{"23 flat error in the stream", sse(chunkA, `{"object":"error","message":"no","code":400}`), seenInReply{Class: ClassStreamError, Chunks: 1, Reply: "A ", Usage: NoUsage, Code: "400"}, false},
				{"22 invalid, says the first event of a 200: rejected", sse(roleOnly, `{"error":{"message":"Token id 14095 is out of vocabulary","type":"BadRequestError","param":null,"code":400}}`, done), seenInReply{Class: ClassRejected, Usage: NoUsage, Code: "BadRequestError", Done: true}, false},
				{"22 too busy, says the first event of a 200: a stream error", sse(`{"error":{"message":"busy","code":"429"}}`, done), seenInReply{Class: ClassStreamError, Usage: NoUsage, Code: "429", Done: true}, false},
				{
					"20 a whole reply of /v1/responses: the last message, and why it ended",
					answer("200 OK", "application/json", `{"id":"r","object":"response","error":null,"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[`+
						`{"type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}]},{"type":"message","content":[{"type":"output_text","text":"A B"}]}],`+
						`"usage":{"input_tokens":9,"output_tokens":2,"input_tokens_details":{"cached_tokens":4}}}`),
					seenInReply{Chunks: 1, Finish: "max_output_tokens", Usage: full, Reply: "A B", Tokens: []int32{2}},
					true,
				},
				{"20 a whole reply that is complete", answer("200 OK", "application/json", `{"object":"response","status":"completed","output":[{"content":[{"text":"A"}]}]}`), seenInReply{Chunks: 1, Finish: "completed", Usage: NoUsage, Reply: "A"}, true},
				{"20 a whole reply that failed", answer("200 OK", "application/json", `{"object":"response","status":"failed","error":{"code":"server_error","message":"no"}}`), seenInReply{Class: ClassStreamError, Usage: NoUsage, Code: "server_error"}, true},
				{"20 a whole reply that is not finished", answer("200 OK", "application/json", `{"object":"response","status":"queued","error":null}`), seenInReply{Class: ClassIncomplete, Usage: NoUsage}, true},
				{"22 invalid, in a whole reply", answer("200 OK", "application/json", `{"error":{"message":"no","type":"BadRequestError","code":400}}`), seenInReply{Class: ClassRejected, Usage: NoUsage, Code: "BadRequestError"}, true},
				{"23 http_status_code", sse(chunkA, `{"error":{"message":"no","http_status_code":422}}`), seenInReply{Class: ClassStreamError, Chunks: 1, Reply: "A ", Usage: NoUsage, Code: "422"}, false},
				{"23 error is a string", answer("401 Unauthorized", "application/json", `{"error":"Unauthorized"}`), seenInReply{Class: ClassHTTP, Usage: NoUsage}, false},
				{"23 error is a string in the stream", sse(chunkA, `{"error":"overloaded"}`), seenInReply{Class: ClassStreamError, Chunks: 1, Reply: "A ", Usage: NoUsage}, false},
				{"23 error without a word in the stream", sse(chunkA, `{"error":{}}`, finish, usage, done), seenInReply{Class: ClassStreamError, Chunks: 1, Finish: "stop", Reply: "A ", Usage: full, Done: true}, false},
				{"23 error without a word next to a choice", sse(chunkA, strings.Replace(finish, "{", `{"error":{},`, 1), usage, done), seenInReply{Class: ClassStreamError, Chunks: 1, Reply: "A ", Usage: full, Done: true}, false},
				{"23 error without a word in a whole reply", answer("200 OK", "application/json", `{"error":{}}`), seenInReply{Class: ClassStreamError, Usage: NoUsage}, true},
				{"23 an event named error without a word", sseHead + chunked("data: "+chunkA+"\n\nevent: error\ndata: {}\n\n") + lastChunk, seenInReply{Class: ClassStreamError, Chunks: 1, Reply: "A ", Usage: NoUsage}, false},
				{"23 error null is not an error", sse(`{"error":null,"choices":[{"index":0,"delta":{"content":"A "}}]}`, chunkB, finish, usage, done), ab, false},
				{"23 event named error", sseHead + chunked("data: "+chunkA+"\n\nevent: error\ndata: {\"message\":\"no\",\"code\":\"boom\"}\n\n") + lastChunk, seenInReply{Class: ClassStreamError, Chunks: 1, Reply: "A ", Usage: NoUsage, Code: "boom"}, false},
				{"24 silent death: incomplete", sse(chunkA, `{"model":"","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`), seenInReply{Class: ClassIncomplete, Chunks: 1, Reply: "A ", Usage: NoUsage}, false},
				{"24 [DONE] without a finish reason: incomplete", sse(chunkA, chunkB, usage, done), with(ab, func(s *seenInReply) { s.Class, s.Finish = ClassIncomplete, "" }), false},
				{"24 empty stream: incomplete", sseHead + lastChunk, seenInReply{Class: ClassIncomplete, Usage: NoUsage}, false},
				{"25 cut between chunks: transport error, stamps kept", sseHead + chunked("data: "+chunkA+"\n\n", "data: "+chunkB+"\n\n"), seenInReply{Class: ClassTransport, Chunks: 2, Reply: "A B", Usage: NoUsage}, false},
				{"25 cut within a chunk: transport error", sseHead + "40\r\ndata: {\"choi", seenInReply{Class: ClassTransport, Usage: NoUsage}, false},
				{"25 cut after the finish reason, before [DONE]: transport error", sseHead + chunked("data: "+chunkA+"\n\n", "data: "+finish+"\n\n"), seenInReply{Class: ClassTransport, Chunks: 1, Reply: "A ", Finish: "stop", Usage: NoUsage}, false},
				{"25 cut after [DONE]: served", sseHead + chunked("data: "+chunkA+"\n\n", "data: "+chunkB+"\n\n", "data: "+finish+"\n\n", "data: "+usage+"\n\n", "data: [DONE]\n\n"), ab, false},
				{"25 cut before the headers: transport error", "", seenInReply{Class: ClassTransport, Usage: NoUsage}, false},
				{"25 broken chunk framing: protocol error", sseHead + "zz\r\nhello\r\n", seenInReply{Class: ClassProtocol, Usage: NoUsage}, false},
				{"25 no HTTP at all: protocol error", "SSH-2.0-OpenSSH_9.6\r\n", seenInReply{Class: ClassProtocol, Usage: NoUsage}, false},
				{"26 200 with HTML: protocol error", answer("200 OK", "text/html", "<html>login</html>"), seenInReply{Class: ClassProtocol, Usage: NoUsage}, false},
				{"26 200 with malformed JSON: protocol error", answer("200 OK", "application/json", "{malformed json: <<<"), seenInReply{Class: ClassProtocol, Usage: NoUsage}, false},
				{"26 200 with a JSON error: stream error", answer("200 OK", "application/json", `{"error":{"message":"no","type":"t"}}`), seenInReply{Class: ClassStreamError, Usage: NoUsage, Code: "t"}, false},
				{"26 no content type: protocol error", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", seenInReply{Class: ClassProtocol, Usage: NoUsage}, false},
				{"26 malformed event: protocol error", sse(chunkA, `{"choices":[{"delta":{`), seenInReply{Class: ClassProtocol, Chunks: 1, Reply: "A ", Usage: NoUsage}, false},
				{"26 event stream although a whole reply was asked for: protocol error", sse(chunkA, finish, done), seenInReply{Class: ClassProtocol, Usage: NoUsage}, true},
				{"27 first chunk without choices is skipped", sse(`{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}`, chunkA, chunkB, finish, usage, done), ab, false},
				{"28 unknown fields are ignored", sse(`{"obfuscation":"abc","service_tier":"x","timings":{"content":"no"},"choices":[{"index":0,"logprobs":{"content":[{"token":"A"}]},"delta":{"content":"A "}}]}`, chunkB, finish, usage, done), ab, false},
				{"28 long lines: 300 kB of prompt token ids", sse(`{"prompt_token_ids":[`+long+`1],"choices":[{"index":0,"delta":{"content":"A "}}]}`, chunkB, finish, usage, done), ab, false},
				{"28 a line past the bound: limit", sse(`{"prompt_token_ids":[` + strings.Repeat(long, 4) + `1]}`), seenInReply{Class: ClassLimit, Usage: NoUsage}, false},
				{"29 unknown finish reasons are finish reasons", sse(chunkA, chunkB, `{"choices":[{"index":0,"delta":{},"finish_reason":"cache_threshold"}]}`, usage, done), with(ab, func(s *seenInReply) { s.Finish = "cache_threshold" }), false},
				{"29 abort: the engine ended the request", sse(chunkA, chunkB, strings.Replace(finish, "stop", "abort", 1), usage, done), with(ab, func(s *seenInReply) { s.Class, s.Finish = ClassAbort, "abort" }), false},
				{"29 error: the engine failed", sse(chunkA, chunkB, strings.Replace(finish, "stop", "error", 1), usage, done), with(ab, func(s *seenInReply) { s.Class, s.Finish = ClassError, "error" }), false},
				{"29 abort of another choice", sse(chunkA, chunkB, `{"choices":[{"index":1,"delta":{},"finish_reason":"abort"}]}`, finish, usage, done), with(ab, func(s *seenInReply) { s.Class = ClassAbort }), false},
				{"29 error, then the error itself: that says more", sse(chunkA, strings.Replace(finish, "stop", "error", 1), badEnd, done), seenInReply{Class: ClassStreamError, Chunks: 1, Finish: "error", Usage: NoUsage, Reply: "A ", Code: "server_error", Done: true}, false},
				{"29 abort of a whole reply", answer("200 OK", "application/json", `{"choices":[{"index":0,"text":"A","finish_reason":"abort"}]}`), seenInReply{Class: ClassAbort, Chunks: 1, Finish: "abort", Usage: NoUsage, Reply: "A"}, true},
				{"29 empty finish reason does not count", sse(chunkA, `{"choices":[{"index":0,"delta":{},"finish_reason":""}]}`, done), seenInReply{Class: ClassIncomplete, Chunks: 1, Reply: "A ", Usage: NoUsage, Done: true}, false},
				{"30 model echoed", sse(chunkA, chunkB, finish, usage, done), ab, false},
				{"31 choices interleave: choice 0 is measured", sse(chunkA, `{"choices":[{"index":1,"delta":{"content":"x"}}]}`, chunkB, `{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}`, finish, usage, done), ab, false},
				{"31 choices interleave: one that does not finish is incomplete", sse(chunkA, `{"choices":[{"index":1,"delta":{"content":"x"}}]}`, chunkB, finish, usage, done), with(ab, func(s *seenInReply) { s.Class = ClassIncomplete }), false},
				{"31 choices in one chunk", sse(`{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"stop"},{"index":0,"delta":{"content":"A "}}]}`, chunkB, finish, usage, done), ab, false},
				{"31 more choices than the bound: limit", sse(`{"choices":[{"index":64,"delta":{"content":"x"}}]}`), seenInReply{Class: ClassLimit, Usage: NoUsage}, false},
				{"32 validation error as status 400", answer("400 Bad Request", "application/json", `{"detail":[{"loc":["body"],"msg":"Field required","type":"missing"}]}`), seenInReply{Class: ClassHTTP, Usage: NoUsage}, false},
				{"33 closed after the stream despite keep-alive", strings.Replace(sse(chunkA, chunkB, finish, usage, done), "\r\n\r\n", "\r\nKeep-Alive: timeout=5, max=100\r\n\r\n", 1), ab, false},
				{"34 plain-text 404", answer("404 Not Found", "text/plain", "Not Found"), seenInReply{Class: ClassHTTP, Usage: NoUsage}, false},
				{"35 ids change and repeat: nothing is keyed on them", sse(chunkA, strings.Replace(chunkB, `"id":"c1"`, `"id":""`, 1), strings.Replace(finish, "c1", "x-494", 1), usage, done), ab, false},
				{"redirect is not followed", "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n", seenInReply{Class: ClassHTTP, Usage: NoUsage}, false},
				{"escaped key", sse(`{"choices":[{"index":0,"delta":{"\u0063ontent":"A "}}]}`, chunkB, finish, usage, done), ab, false},
				{
					"whole reply", answer("200 OK", "application/json", `{"id":"c1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"A B"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}}`),
					seenInReply{Chunks: 1, Finish: "stop", Usage: full, Reply: "A B", Tokens: []int32{2}},
					true,
				},
				{"whole reply of /v1/completions", answer("200 OK", "application/json", `{"choices":[{"index":0,"text":"A B","finish_reason":"length"}]}`), seenInReply{Chunks: 1, Finish: "length", Usage: NoUsage, Reply: "A B"}, true},
				{
					"whole reply with two tool calls", answer("200 OK", "application/json", `{"choices":[{"index":0,"message":{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`),
					seenInReply{Chunks: 1, Finish: "tool_calls", Usage: NoUsage, ToolCalls: `[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`},
					true,
				},
				{"whole reply that is cut", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"choices\":[", seenInReply{Class: ClassTransport, Usage: NoUsage}, true},
				{"whole reply without a finish reason", answer("200 OK", "application/json", `{"choices":[]}`), seenInReply{Class: ClassIncomplete, Usage: NoUsage}, true},
				{"whole reply past the bound", answer("200 OK", "application/json", `{"choices":["`+strings.Repeat("x", 1<<20)+`"]}`), seenInReply{Class: ClassLimit, Usage: NoUsage}, true},
			} {
				t.Run(c.name, func(t *testing.T) {
					req := post(`{"messages":[]}`)
					req.Stream = !c.whole
					x := once(t, req, Config{way: by, MaxLine: 1 << 20}, c.reply, false)
					if diff := cmp.Diff(c.want, look(x)); diff != "" {
						t.Errorf("(-want +got):\n%s\n%v", diff, x.Err)
					}
					inOrder(t, x)
				})
			}
		})
	}
}

// TestChoices: the choices of a reply are counted, because its usage is that of all, and its times are those of the first.
func TestChoices(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			other := strings.ReplaceAll(chunkA, `"index":0`, `"index":1`)
			for want, reply := range map[int]string{1: sse(chunkA, chunkB, finish, usage, done), 2: sse(chunkA, other, chunkB, strings.ReplaceAll(finish, `"index":0`, `"index":1`), finish, usage, done)} {
				if x := once(t, post(`{"n":2}`), Config{way: by}, reply, false); x.Choices != want || x.Err != nil {
					t.Errorf("%d choices, want %d: %v", x.Choices, want, x.Err)
				}
			}
		})
	}
}

// TestQuirkMessages: a reply that cannot be understood is described as what it is.
func TestQuirkMessages(t *testing.T) {
	zipped := func(reply string) string { return strings.Replace(reply, "\r\n", "\r\nContent-Encoding: gzip\r\n", 1) }
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				name, reply string
				whole       bool
				class       Class
				want        string
				api         API
			}{
				{"a compressed stream", zipped(sse("\x1f\x8b")), false, ClassProtocol, "the reply is compressed (gzip), although", OpenAI},
				{"a compressed reply", zipped(answer("200 OK", "application/json", "\x1f\x8b")), true, ClassProtocol, "the reply is compressed (gzip), although", OpenAI},
				{"a compressed refusal", zipped(answer("502 Bad Gateway", "application/json", "\x1f\x8b")), true, ClassHTTP, "Bad Gateway", OpenAI},
				{"an event that is no object", sse("7"), false, ClassProtocol, "an event of the stream is not a JSON object", OpenAI},
				{"a reply that is no object", answer("200 OK", "application/json", "7"), true, ClassProtocol, "the reply is not a JSON object", OpenAI},
				{"a reply that is no message", answer("200 OK", "application/json", "7"), true, ClassProtocol, "the reply is not a JSON object of the Messages API", Messages},
				{"a reply that is not TGI's", answer("200 OK", "application/json", "7"), true, ClassProtocol, "the reply is not a JSON object of TGI's API", Generate},
				{"an event that is not TGI's", sse("7"), false, ClassProtocol, "an event of the stream is not a JSON object of TGI's API", Generate},
			} {
				t.Run(c.name, func(t *testing.T) {
					req := post("{}")
					req.Stream, req.API = !c.whole, c.api
					x := once(t, req, Config{way: by}, c.reply, false)
					if x.Err == nil || x.Err.Class != c.class || !strings.Contains(x.Err.Message, c.want) {
						t.Errorf("%v, want %s with %q", x.Err, c.class, c.want)
					}
				})
			}
		})
	}
}

// TestQuirkNames: the first model and the first id that a reply names are recorded, whatever comes after.
func TestQuirkNames(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct{ name, reply, model, id string }{
				{"30 a different model than the one that was asked for", sse(strings.ReplaceAll(chunkA, `"model":"m"`, `"model":"alias"`), finish, done), "alias", "c1"},
				{"30 empty model when the engine's runner dies", sse(chunkA, `{"model":"","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`), "m", "c1"},
				{"30 no model", sse(`{"choices":[{"index":0,"delta":{"content":"A "},"finish_reason":"stop"}]}`, done), "", ""},
				{"35 the id changes and ends empty", sse(chunkA, strings.Replace(chunkB, `"c1"`, `"c2"`, 1), strings.Replace(finish, `"c1"`, `""`, 1), done), "m", "c1"},
				{"35 a long id is cut", sse(strings.Replace(chunkA, `"c1"`, `"`+strings.Repeat("x", 1000)+`"`, 1), finish, done), "m", strings.Repeat("x", maxName)},
			} {
				t.Run(c.name, func(t *testing.T) {
					x := once(t, post(`{"model":"m","messages":[]}`), Config{way: by}, c.reply, false)
					if x.Model != c.model || x.ResponseID != c.id {
						t.Errorf("model %q and id %q, want %q and %q", x.Model, x.ResponseID, c.model, c.id)
					}
				})
			}
		})
	}
}

// inOrder checks what holds for every exchange.
func inOrder(t *testing.T, x *Exchange) {
	t.Helper()
	last := x.Start
	for i, at := range []time.Duration{x.Wire, x.FirstByte, x.Headers, x.FirstEvent, x.FirstAnswer, x.End} {
		if at == clock.Never {
			continue
		}
		if at < last {
			t.Errorf("instant %d of wire, first byte, headers, first event, first answer, end is %v, before %v", i, at, last)
		}
		last = at
	}
	for i := 1; i < len(x.At); i++ {
		if x.At[i] < x.At[i-1] || x.Read[i] < x.Read[i-1] {
			t.Errorf("chunk %d goes back in time: %v %v", i, x.At, x.Read)
		}
	}
	if len(x.At) > 0 && (x.At[0] < int64(x.Wire) || int64(x.End) < x.At[len(x.At)-1]) {
		t.Errorf("chunks from %d to %d lie outside of %d to %d", x.At[0], x.At[len(x.At)-1], x.Wire, x.End)
	}
	if len(x.At) != len(x.Read) || x.Tokens != nil && len(x.Tokens) != len(x.At) {
		t.Errorf("%d stamps, %d read numbers, %d token counts", len(x.At), len(x.Read), len(x.Tokens))
	}
	if x.Attempts != 1 || x.Err == nil && x.Status != http.StatusOK {
		t.Errorf("attempts %d, status %d", x.Attempts, x.Status)
	}
}
