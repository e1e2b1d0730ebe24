// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// This file has the command lines in the trace-replay documentation of other tools, with the files that they read. The page
// docs/from-other-tools.md lists them. Times and lengths are a fraction of the documented ones, texts are our own.

// printedLine is a command line of a document.
type printedLine struct {
	tool, page string // the page, or the help text, that prints it
	about      string
	line       string            // what follows the program's name there; "!" before it: refused
	files      map[string]string // that it reads, by name
	sees       string            // for aliasEngine.see; for a refused one, a part of the error
	note       string            // what differs
}

// Files that several lines read.
const (
	threeRows = `{"timestamp": 0, "input_length": 1200, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 105, "input_length": 1800, "output_length": 6, "hash_ids": [0, 3, 4, 5]}
{"timestamp": 274, "input_length": 1300, "output_length": 7, "hash_ids": [1, 4, 6]}
`
	scheduleRows = `{"timestamp": 0, "input_length": 100, "hash_ids": [3001]}
{"timestamp": 50, "input_length": 200, "hash_ids": [3002]}
{"timestamp": 200, "input_length": 400, "hash_ids": [3006]}
{"timestamp": 300, "input_length": 350, "hash_ids": [3008]}
{"timestamp": 400, "input_length": 500, "hash_ids": [3009]}
{"timestamp": 500, "input_length": 600, "hash_ids": [3010, 3050]}
`
	secondsRows = `{"timestamp": 1234500.0, "input_length": 256, "output_length": 8}
{"timestamp": 1234502.0, "input_length": 512, "output_length": 6}
`
	bodies = `{"messages": [{"role": "user", "content": "Name a river."}], "model": "sim", "max_tokens": 5}
{"messages": [{"role": "user", "content": "Name a hill."}], "model": "sim", "max_tokens": 6}
{"messages": [{"role": "user", "content": "Name a lake."}], "model": "sim", "temperature": 0.7}
`
	firstTurns = `{"messages": [{"role": "user", "content": "Good day"}], "model": "sim", "max_tokens": 5}
{"messages": [{"role": "user", "content": "Good day"}, {"role": "assistant", "content": "To you"}, {"role": "user", "content": "And now?"}], "model": "sim", "max_tokens": 5}
`
	captures = `{"captureData":{"endpointInput":{"observedContentType":"application/json","mode":"INPUT","data":"{\"messages\":[{\"role\":\"user\",\"content\":\"What is a tide?\"}],\"max_tokens\":5}","encoding":"JSON"},"endpointOutput":{"observedContentType":"application/json","mode":"OUTPUT","data":"{\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"total_tokens\":15}}","encoding":"JSON"}},"eventMetadata":{"eventId":"e1","inferenceTime":"2026-04-29T00:03:18Z"},"eventVersion":"0"}
`
	conversations = `{"id": "c1", "models": ["sim"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 10, "system_tokens": 20, "requests": [
  {"t": 0.0, "type": "s", "model": "sim", "in": 130, "out": 4, "hash_ids": [1, 2], "stop": "tool_use", "api_time": 0.1},
  {"t": 0.2, "type": "n", "model": "sim", "in": 200, "out": 3, "hash_ids": [1, 2, 3], "input_types": ["tool_result"]}]}
`
	spansOfTools = `{"session_id": "s1", "trace_id": "t", "spans": [
 {"span_id": "01", "trace_id": "t", "name": "chat", "start_time": "2026-01-01T00:00:01Z", "end_time": "2026-01-01T00:00:01.5Z", "status": {"code": "OK"}, "attributes": {
  "gen_ai.operation.name": "chat", "gen_ai.request.model": "sim", "gen_ai.usage.input_tokens": 80, "gen_ai.usage.output_tokens": 4,
  "gen_ai.input.messages": "[{\"role\": \"user\", \"parts\": [{\"type\": \"text\", \"content\": \"What is a delta?\"}]}]"}}]}
`
	singles = `{"text": "Where do rivers rise?", "output_length": 5}
{"text": "Where do they end?", "output_length": 6}
{"texts": ["Who maps them?", "And who names them?"], "output_length": 7, "extra": {"temperature": 1.2, "seed": 42}}
{"text": "Who fishes there?", "output_length": 8}
{"text": "And why?", "role": "user", "output_length": 4}
`
	// two conversations, the first of which has a subagent of another model
	agentTalk = `{"id": "c1", "models": ["claude-opus", "claude-haiku"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 0, "system_tokens": 0, "requests": [
  {"t": 0.0, "type": "s", "model": "claude-opus", "in": 130, "out": 4, "hash_ids": [1, 2], "stop": "tool_use", "api_time": 0.1},
  {"t": 0.1, "type": "subagent", "agent_id": "a1", "subagent_type": "explore", "duration_ms": 100, "status": "done", "requests": [
    {"t": 0.1, "type": "n", "model": "claude-haiku", "in": 140, "out": 5, "hash_ids": [1, 9]}]},
  {"t": 0.3, "type": "n", "model": "claude-opus", "in": 200, "out": 3, "hash_ids": [1, 2, 3], "input_types": ["tool_result"], "think_time": 0.2}]}
`
	otherTalk = `{"id": "c2", "models": ["claude-haiku"], "block_size": 64, "hash_id_scope": "local", "requests": [
  {"t": 0.0, "type": "s", "model": "claude-haiku", "in": 90, "out": 6, "hash_ids": [1]}, {"t": 400, "type": "s", "model": "claude-haiku", "in": 150, "out": 7, "hash_ids": [1, 2]}]}
`
	rounds = `{"session_id": "claude:1", "round_index": 0, "input_tokens_total": 300, "prefix_tokens": 0, "newly_append_tokens": 300, "output_tokens": 8, "model": "opus", "provider": "claude", "user": "u1", "project": "p1", "first_input_event_type": "user_message", "timing_events": [{"event_type": "user_message", "timestamp": "2026-01-01T00:00:00Z"}, {"event_type": "tool_call", "timestamp": "2026-01-01T00:00:00.1Z"}], "tools": [{"tool_name": "Read", "emitted_at": "2026-01-01T00:00:00.1Z", "result_at": "2026-01-01T00:00:00.2Z", "tool_wall_latency_ms": 100}]}
{"session_id": "codex:2", "round_index": 0, "input_tokens_total": 200, "prefix_tokens": 0, "newly_append_tokens": 200, "output_tokens": 5, "model": "gpt", "provider": "codex", "user": "u2", "project": "p1", "first_input_event_type": "user_message", "timing_events": [{"event_type": "user_message", "timestamp": "2026-01-01T00:00:00.1Z"}]}
{"session_id": "claude:1", "round_index": 1, "input_tokens_total": 420, "prefix_tokens": 300, "newly_append_tokens": 120, "output_tokens": 6, "reasoning_output_tokens": 2, "model": "opus", "provider": "claude", "user": "u1", "project": "p1", "first_input_event_type": "tool_result", "timing_events": [{"event_type": "tool_result", "timestamp": "2026-01-01T00:00:00.2Z"}]}
{"session_id": "claude:1", "round_index": 2, "input_tokens_total": 500, "prefix_tokens": 420, "newly_append_tokens": 80, "output_tokens": 7, "model": "opus", "provider": "claude", "user": "u1", "project": "p1", "first_input_event_type": "user_message", "timing_events": [{"event_type": "user_message", "timestamp": "2026-01-01T00:20:00Z"}]}
`
	dynamoRecords = `{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1767225600500, "agent_context": {"session_id": "s1"}, "request": {"request_id": "r1", "model": "m", "input_tokens": 40, "output_tokens": 8, "request_received_ms": 1767225600000, "total_time_ms": 100, "replay": {"trace_block_size": 16, "input_length": 40, "input_sequence_hashes": [11, 12, 13]}}}
{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1767225600900, "agent_context": {"session_id": "s1"}, "request": {"request_id": "r2", "model": "m", "input_tokens": 60, "output_tokens": 6, "request_received_ms": 1767225600200, "total_time_ms": 100, "replay": {"trace_block_size": 16, "input_length": 60, "input_sequence_hashes": [11, 12, 14, 15]}}}
`
	// the beginning of the command lines in AIPerf's documentation
	aiperfStart = "profile --model sim --endpoint-type chat --streaming --url HOST:PORT "
	guideStart  = "run --backend kind=openai_http,target=ENGINE "
)

var printedLines = slices.Concat(printedTraces, printedLoads, printedTalks, printedBenches)

var printedTraces = []printedLine{
	{
		aiperf, "Trace Replay with Mooncake Traces", "a trace file of one's own", aiperfStart + "--input-file DIR/custom_trace.jsonl --custom-dataset-type mooncake_trace --fixed-schedule",
		map[string]string{"custom_trace.jsonl": threeRows},
		"requests 3; over 274ms; model sim; path /v1/chat/completions; body stream=true; some max_completion_tokens=7", "",
	},
	{
		aiperf, "Trace Replay with Mooncake Traces", "without the schedule", "profile --model sim --endpoint-type chat --url HOST:PORT --input-file DIR/custom_trace.jsonl --custom-dataset-type mooncake_trace --no-fixed-schedule --concurrency 4 --request-count 100",
		map[string]string{"custom_trace.jsonl": threeRows},
		"requests 100; all of max_completion_tokens=" + strings.Repeat("5 ", 34) + strings.Repeat("6 ", 33) + strings.TrimSpace(strings.Repeat("7 ", 33)), "",
	},
	{
		aiperf, "Trace Replay with Mooncake Traces", "the schedule, detected", aiperfStart + "--input-file DIR/custom_trace.jsonl --custom-dataset-type mooncake_trace",
		map[string]string{"custom_trace.jsonl": threeRows},
		"requests 3; over 274ms", "",
	},
	{
		aiperf, "Command Line Options", "a schedule, whatever the file is", "profile --model sim --url HOST:PORT --input-file DIR/trace.jsonl --fixed-schedule",
		map[string]string{"trace.jsonl": threeRows},
		"requests 3; over 274ms; path /v1/chat/completions", "",
	},
	{
		aiperf, "Load Generator Options Reference", "a window of a schedule", "profile --url HOST:PORT --model sim --input-file DIR/trace.jsonl --custom-dataset-type mooncake_trace --fixed-schedule --fixed-schedule-start-offset 100 --fixed-schedule-end-offset 280",
		map[string]string{"trace.jsonl": threeRows},
		"requests 2; over 169ms; none max_completion_tokens=5", "the page says 60000 and 120000",
	},
	{
		aiperf, "Load Generator Options Reference", "a window of a schedule that begins later", "profile --url HOST:PORT --model sim --input-file DIR/trace.jsonl --custom-dataset-type mooncake_trace --fixed-schedule --fixed-schedule-start-offset 60100 --fixed-schedule-end-offset 60280",
		map[string]string{"trace.jsonl": strings.NewReplacer(`"timestamp": 0,`, `"timestamp": 60000,`, ": 105,", ": 60105,", ": 274,", ": 60274,").Replace(threeRows)},
		"requests 2; over 169ms; none max_completion_tokens=5", "",
	},
	{
		aiperf, "Anonymize Trace", "rows without times, at a rate", "profile --model sim --url ENGINE --endpoint-type chat --streaming --input-file DIR/anonymized_trace.jsonl --custom-dataset-type mooncake_trace --request-rate 10 --concurrency 50",
		map[string]string{"anonymized_trace.jsonl": `{"input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
{"input_length": 700, "output_length": 6, "hash_ids": [0, 2], "session_id": "user_42"}
`},
		"requests 2; all of max_completion_tokens=5 6", "",
	},
	{
		aiperf, "Custom Dataset Guide", "single turns, again from the first", "profile --model sim --endpoint-type chat --input-file DIR/prompts.jsonl --custom-dataset-type single_turn --streaming --url HOST:PORT --concurrency 2 --request-count 10",
		map[string]string{"prompts.jsonl": singles},
		"requests 10; turns 1 1 1 1 1 1 1 1 1 1; all of max_completion_tokens=4 4 5 5 6 6 7 7 8 8; some temperature=1.2; some seed=42", "",
	},
	{
		aiperf, "Custom Dataset Guide", "lengths of turns, and a default for turns without one", "profile --model sim --endpoint-type chat --input-file DIR/prompts_with_osl.jsonl --custom-dataset-type single_turn --streaming --url HOST:PORT --osl 9 --request-count 4",
		map[string]string{"prompts_with_osl.jsonl": strings.Replace(singles, `, "output_length": 8`, "", 1)},
		"requests 4; all of max_completion_tokens=5 6 7 9", "the page says --osl 200",
	},
	{
		aiperf, "Custom Dataset Guide", "conversations", "profile --model sim --endpoint-type chat --input-file DIR/conversations.jsonl --custom-dataset-type multi_turn --streaming --url HOST:PORT --concurrency 2 --request-count 10",
		map[string]string{"conversations.jsonl": `{"session_id": "chat_1", "turns": [{"text": "Where do rivers rise?", "output_length": 4}, {"text": "Name one of them.", "output_length": 4}]}
{"session_id": "chat_2", "turns": [{"text": "Who maps them?", "output_length": 4}, {"text": "For how long?", "output_length": 4, "delay": 20}, {"texts": ["And", "at what cost?"], "output_length": 4, "extra": {"top_p": 0.9}}]}
`},
		"requests 10; turns 1 1 1 1 3 3 3 3 5 5; some top_p=0.9", "",
	},
	{
		aiperf, "Custom Dataset Guide", "a system prompt before all turns", "profile --model sim --endpoint-type chat --input-file DIR/system_prompt.jsonl --custom-dataset-type multi_turn --streaming --url HOST:PORT --concurrency 2 --request-count 10",
		map[string]string{"system_prompt.jsonl": `{"session_id": "chat_1", "turns": [{"role": "system", "text": "Be terse."}, {"text": "Where do rivers rise?", "output_length": 4}, {"text": "Name one.", "output_length": 4}]}
`},
		"requests 10; turns 2 2 2 2 2 4 4 4 4 4; first system Be terse.", "",
	},
	{
		aiperf, "Custom Dataset Guide", "a pool of prompts", "profile --model sim --endpoint-type chat --input-file DIR/pool.jsonl --custom-dataset-type random_pool --num-conversations 50 --streaming --concurrency 4 --random-seed 42 --url HOST:PORT",
		map[string]string{"pool.jsonl": singles},
		"requests 50; all of max_completion_tokens=" + strings.TrimSpace(strings.Repeat("4 ", 10)+strings.Repeat("5 ", 10)+strings.Repeat("6 ", 10)+strings.Repeat("7 ", 10)+strings.Repeat("8 ", 10)), "the prompts are used in turn, not at random, so each is used equally often",
	},
	{
		aiperf, "Custom Dataset Guide", "a pool of prompts with images", "profile --model sim --endpoint-type chat --input-file DIR/multimodal_pool.jsonl --custom-dataset-type random_pool --image-batch-size 2 --num-conversations 5 --streaming --concurrency 4 --url HOST:PORT",
		map[string]string{"multimodal_pool.jsonl": `{"text": "What is on this map?", "image": "https://example.org/a.png", "output_length": 4}
{"text": "Which river is that?", "image": "https://example.org/b.png", "output_length": 4}
`},
		"requests 5; images 2 of 512x512 png", "images are generated, and those of the file are counted as left out; the page says 50",
	},
	{
		aiperf, "Custom Dataset Guide", "a system prompt for all", "!profile -m sim --url ENGINE --input-file DIR/data.jsonl --system-prompt terse",
		map[string]string{"data.jsonl": threeRows},
		"the trace determines what prompts share", "the rows determine what prompts share",
	},
	{
		aiperf, "Custom Dataset Guide", "a system prompt from a file", "!profile -m sim --url ENGINE --input-file DIR/data.jsonl --system-prompt-file DIR/system.txt",
		map[string]string{"data.jsonl": threeRows, "system.txt": "Be terse."},
		"the trace determines what prompts share", "likewise",
	},
	{
		aiperf, "Profile Embedding Models", "texts of one's own", "profile --model sim --endpoint-type embeddings --endpoint /v1/embeddings --input-file DIR/inputs.jsonl --custom-dataset-type single_turn --url HOST:PORT --request-count 3",
		map[string]string{"inputs.jsonl": `{"texts": ["Where do rivers rise?"]}
{"texts": ["Where do they end?"]}
{"texts": ["Who maps them?"]}
`},
		"requests 3; path /v1/embeddings; model sim; some input=Who maps them?; body stream=", "",
	},
	{
		aiperf, "Profile Hugging Face TGI Models", "texts of one's own", "profile --model sim --endpoint-type huggingface_generate --streaming --input-file DIR/inputs.jsonl --custom-dataset-type single_turn --url HOST:PORT --request-count 2",
		map[string]string{"inputs.jsonl": `{"text": "Where do rivers rise?"}
{"text": "Where do they end?"}
`},
		"requests 2; path /generate_stream; some inputs=Where do they end?; body parameters=map[details:true]", "",
	},
	{
		aiperf, "Profile the OpenAI Responses API", "texts of one's own", "profile --model sim --endpoint-type responses --endpoint /v1/responses --streaming --input-file DIR/inputs.jsonl --custom-dataset-type single_turn --url HOST:PORT --request-count 4",
		map[string]string{"inputs.jsonl": `{"texts": ["Where do rivers rise?"]}
{"texts": ["Where do they end?"]}
`},
		"requests 4; path /v1/responses; model sim; some input=[map[content:Where do they end? role:user]]; body stream=true; body messages=", "",
	},
	{
		aiperf, "Trace Replay with Mooncake Traces", "rows with messages", aiperfStart + "--input-file DIR/chats.jsonl --custom-dataset-type mooncake_trace --fixed-schedule",
		map[string]string{"chats.jsonl": `{"session_id": "a", "messages": [{"role": "user", "content": "Good day"}], "output_length": 5, "timestamp": 0}
{"session_id": "a", "messages": [{"role": "user", "content": "Good day"}, {"role": "assistant", "content": "To you"}, {"role": "user", "content": "And now?"}], "output_length": 5, "timestamp": 200}
`},
		"requests 2; over 200ms; turns 1 3; body max_completion_tokens=5", "",
	},
	{
		aiperf, "Trace Replay with Mooncake Traces", "rows with new messages, after live replies", aiperfStart + "--input-file DIR/deltas.jsonl --custom-dataset-type mooncake_trace --fixed-schedule",
		map[string]string{"deltas.jsonl": `{"session_id": "a", "message_mode": "delta", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Good day"}], "output_length": 5, "timestamp": 0}
{"session_id": "a", "message_mode": "delta", "messages": [{"role": "user", "content": "And now?"}], "output_length": 5, "delay": 50}
`},
		"requests 2; turns 2 4", "",
	},
	{
		aiperf, "Trace Replay with Mooncake Traces", "tools, and fields for one request", aiperfStart + "--input-file DIR/tools.jsonl --custom-dataset-type mooncake_trace --extra-inputs user:me",
		map[string]string{"tools.jsonl": `{"messages": [{"role": "user", "content": "Is it raining?"}], "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}}}], "output_length": 5, "timestamp": 0, "extra": {"nvext": {"priority": 9}}}
{"messages": [{"role": "user", "content": "Good day"}], "output_length": 6, "timestamp": 50, "extra": {"user": "you"}}
`},
		"requests 2; some nvext=map[priority:9]; some user=me; some user=you", "",
	},
	{
		aiperf, "Fixed Schedule Benchmarking", "a schedule from its first row on", aiperfStart + "--endpoint /v1/chat/completions --input-file DIR/schedule.jsonl --custom-dataset-type mooncake_trace --fixed-schedule --fixed-schedule-auto-offset",
		map[string]string{"schedule.jsonl": scheduleRows},
		"requests 6; over 500ms", "",
	},
	{
		aiperf, "Fixed Schedule Benchmarking", "a window of the schedule, by offsets", aiperfStart + "--endpoint /v1/chat/completions --input-file DIR/schedule.jsonl --custom-dataset-type mooncake_trace --fixed-schedule --fixed-schedule-start-offset 200 --fixed-schedule-end-offset 400",
		map[string]string{"schedule.jsonl": scheduleRows},
		"requests 3; over 200ms", "",
	},
	{
		aiperf, "Prefix Data Synthesis Tutorial", "a synthetic trace", "profile --input-file DIR/synthetic.jsonl --custom-dataset-type mooncake_trace --model sim --endpoint-type chat --workers-max 4 --concurrency 32 --url HOST:PORT",
		map[string]string{"synthetic.jsonl": `{
  "input_length": 612, "output_length": 8, "timestamp": 0,
  "hash_ids": [1, 2], "session_id": "session-1", "delay": 0
}`},
		"requests 1; body max_completion_tokens=8", "",
	},
	{
		aiperf, "Bailian Traces", "seconds, blocks of 16 tokens, chats with parents", aiperfStart + "--input-file DIR/bailian_short.jsonl --custom-dataset-type bailian_trace --fixed-schedule",
		map[string]string{"bailian_short.jsonl": `{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 521, "output_length": 13, "type": "text", "turn": 1, "hash_ids": [7, 8]}
{"chat_id": 160, "parent_chat_id": 159, "timestamp": 61.5, "input_length": 676, "output_length": 8, "type": "text", "turn": 2, "hash_ids": [7, 8, 9]}
`},
		"requests 2; over 386ms; some max_completion_tokens=13; some max_completion_tokens=8", "",
	},
	{
		aiperf, "Baseten Trace Replay", "completions with hashes of their blocks", "profile --model sim --url ENGINE --endpoint-type completions --input-file DIR/trace.jsonl --custom-dataset-type baseten_trace --fixed-schedule",
		map[string]string{"trace.jsonl": `{"timestamp_start_unix_ms": 1767225600250, "prompt": "a text of its own", "output_text": "this", "input_tokens": 40, "output_tokens": 8, "total_hashes": [17, 18, 19], "block_size": 16, "provided_session_id": null, "poor_man_session_id": "p1", "duration_e2e_ms": 9.5, "duration_ttft_ms": 1, "request_canceled": false}
{"timestamp_start_unix_ms": 1767225600450, "input_tokens": 64, "output_tokens": 4, "total_hashes": [17, 18, 20, 21], "block_size": 16, "poor_man_session_id": "p1"}
`},
		"requests 2; over 200ms; path /v1/completions; some max_tokens=8; some max_tokens=4", "prompts are generated from the hashes; the recorded prompts are not sent",
	},
	{
		aiperf, "Raw Payload Replay", "bodies of requests", "profile --input-file DIR/payloads.jsonl --model sim --custom-dataset-type raw_payload --streaming --url HOST:PORT --concurrency 2",
		map[string]string{"payloads.jsonl": bodies},
		"requests 3; turns 1 1 1; some max_tokens=5; some max_tokens=6; some temperature=0.7", "",
	},
	{
		aiperf, "Raw Payload Replay", "bodies of requests, with the format detected", "profile --input-file DIR/payloads.jsonl --model sim --streaming --url HOST:PORT --concurrency 2",
		map[string]string{"payloads.jsonl": bodies},
		"requests 3; some max_tokens=5; some temperature=0.7", "",
	},
	{
		aiperf, "Raw Payload Replay", "a folder of conversations", "profile --input-file DIR/conversations/ --model sim --custom-dataset-type raw_payload --streaming --url HOST:PORT --concurrency 2",
		map[string]string{"conversations/session_001.jsonl": firstTurns, "conversations/session_002.jsonl": bodies},
		"requests 5; turns 1 1 1 1 3; waits 15ms", "",
	},
	{
		aiperf, "Inputs JSON Replay", "what a run has sent", "profile --input-file DIR/inputs.json --model sim --custom-dataset-type inputs_json --streaming --url HOST:PORT --concurrency 4",
		map[string]string{"inputs.json": `{
  "data": [
    {"session_id": "s1", "payloads": [
      {"messages": [{"role": "user", "content": "Good day"}], "model": "sim", "max_tokens": 5},
      {"messages": [{"role": "user", "content": "Good day"}, {"role": "assistant", "content": "To you"}, {"role": "user", "content": "And now?"}], "model": "sim", "max_tokens": 5}
    ]}
  ]
}`},
		"requests 2; turns 1 3; body max_tokens=5; some model=sim; waits 15ms; header X-Session-Id=s1", "",
	},
	{
		aiperf, "Replay SageMaker Data Capture Traces", "a folder of captures", "profile --model sim --endpoint-type chat --url HOST:PORT --input-file DIR/captured/ --custom-dataset-type sagemaker_data_capture --fixed-schedule --fixed-schedule-auto-offset",
		map[string]string{"captured/2026/04/29/00/a.jsonl": captures},
		"requests 1; turns 1; body max_tokens=5", "",
	},
	{
		aiperf, "Replay SageMaker Data Capture Traces", "captures in one file", "profile --model sim --endpoint-type chat --url HOST:PORT --input-file DIR/all_captures.jsonl --custom-dataset-type sagemaker_data_capture --fixed-schedule --fixed-schedule-auto-offset",
		map[string]string{"all_captures.jsonl": captures + strings.Replace(captures, "00:03:18", "00:03:19", 1)},
		"requests 2; over 1s; turns 1 1", "",
	},
	{
		aiperf, "Replay SageMaker Data Capture Traces", "the first five minutes of a folder", "profile --model sim --endpoint-type chat --url HOST:PORT --input-file DIR/captured/ --custom-dataset-type sagemaker_data_capture --fixed-schedule --fixed-schedule-auto-offset --fixed-schedule-end-offset 300000",
		map[string]string{"captured/00/a.jsonl": captures, "captured/01/b.jsonl": strings.Replace(captures, "00:03:18", "00:13:18", 1)},
		"requests 1; turns 1", "",
	},
	{
		aiperf, "Weka traces", "conversations of coding agents", aiperfStart + "--input-file DIR/weka.json --custom-dataset-type weka_trace",
		map[string]string{"weka.json": conversations},
		"requests 2; some max_completion_tokens=4; some max_completion_tokens=3", "tool calls are requests like others",
	},
	{
		aiperf, "Replaying Agentic Coding Sessions with Weka Traces", "a folder of conversations, by two models", "profile --url HOST:PORT --model sim --model other --endpoint-type chat --streaming --input-file DIR/traces/ --fixed-schedule",
		map[string]string{"traces/trace_0001.json": agentTalk, "traces/trace_0002.json": strings.Replace(otherTalk, "400", "0.4", 1)},
		"requests 5; over 400ms; all of max_completion_tokens=3 4 5 6 7; sim has max_completion_tokens=3 4 6 7; other has max_completion_tokens=5", "subagents are sessions of their own, at their recorded times: the parent's next turn is sent at its own time, not when they end",
	},
	{
		aiperf, "Replaying Agentic Coding Sessions with Weka Traces", "one conversation", "profile --url HOST:PORT --model sim --endpoint-type chat --streaming --fixed-schedule --input-file DIR/traces/trace_0001.json",
		map[string]string{"traces/trace_0001.json": agentTalk},
		"requests 3; over 300ms; model sim", "",
	},
	{
		aiperf, "Replaying Agentic Coding Sessions with Weka Traces", "a data set of the hub, downloaded before", "profile --url HOST:PORT --model sim --model other --endpoint-type chat --streaming --public-dataset semianalysis_cc_traces_weka_with_subagents --fixed-schedule --input-file DIR/traces/",
		map[string]string{"traces/trace_0001.json": agentTalk},
		"requests 3; sim has max_completion_tokens=3 4; other has max_completion_tokens=5", "--input-file is added to the printed line",
	},
	{
		aiperf, "Replaying Agentic Coding Sessions with Weka Traces", "a data set of the hub", "!profile --url HOST:PORT --model sim --model other --endpoint-type chat --streaming --public-dataset semianalysis_cc_traces_weka_with_subagents --fixed-schedule",
		nil, `download it yourself, such as with "hf download semianalysisai/cc-traces-weka-062126 --repo-type dataset --local-dir traces", and add --input-file traces`, "nothing is downloaded; with --input-file FOLDER added, the line runs",
	},
	{
		aiperf, "Replaying Agentic Coding Sessions with Weka Traces", "a data set by its name on the hub", "!profile --model sim --endpoint-type chat --public-dataset weka_hf --hf-weka-dataset semianalysisai/cc-traces-weka-061326 --streaming --url HOST:PORT",
		nil, `download it yourself, such as with "hf download semianalysisai/cc-traces-weka-061326 --repo-type dataset`, "likewise",
	},
	{
		aiperf, "Replaying Agentic Coding Sessions with Weka Traces", "the scenario", "profile --scenario inferencex-agentx-mvp --input-file DIR/traces/ --concurrency 50 --benchmark-duration 1.5 --url HOST:PORT --endpoint-type chat --model sim",
		map[string]string{"traces/trace_0001.json": agentTalk},
		"requests more than 4; model sim; body stream=true; body ignore_eos=true", "the page says 900 seconds",
	},
	{
		aiperf, "Replaying Agentic Coding Sessions with Weka Traces", "think time only, capped", "profile --url HOST:PORT --model sim --endpoint-type chat --streaming --input-file DIR/traces/ --no-fixed-schedule --use-think-time-only --inter-turn-delay-cap-seconds 0.2 --concurrency 8",
		map[string]string{"traces/a.json": otherTalk},
		"requests 2; over 200ms; model sim", "400 s of the recording become 0.2",
	},
	{
		aiperf, "InferenceX AgentX MVP", "the whole command line", "profile --scenario inferencex-agentx-mvp --url HOST:PORT --model sim --max-context-length 199 --endpoint-type chat --public-dataset semianalysis_cc_traces_weka_with_subagents --concurrency 32 --use-server-token-count --streaming --extra-inputs ignore_eos:true --use-end-to-start-delays --cache-bust first_turn_prefix --trace-idle-gap-cap-seconds 10 --trajectory-start-min-ratio 0.0 --trajectory-start-max-ratio 1.0 --benchmark-duration 1.5 --random-seed 20260707 --ui simple --input-file DIR/traces",
		map[string]string{"traces/a.json": agentTalk},
		"requests more than 4; model sim; body ignore_eos=true; some max_completion_tokens=4; some max_completion_tokens=5; none max_completion_tokens=3", "--input-file is added; the page says 128000 tokens and 1800 seconds",
	},
	{
		aiperf, "InferenceX AgentX MVP", "a short try", "profile --scenario inferencex-agentx-mvp --unsafe-override --benchmark-duration 1.5 --url HOST:PORT --endpoint-type chat --model sim --input-file DIR/traces",
		map[string]string{"traces/a.json": agentTalk},
		"requests more than 4; model sim", "",
	},
	{
		aiperf, "Agentic Workloads", "Dynamo's request trace", "profile --model sim --endpoint-type chat --url ENGINE --input-file DIR/captures/trace.jsonl.gz --graph-format dynamo_trace --streaming",
		map[string]string{"captures/trace.jsonl.gz": packed(dynamoRecords)},
		"requests 2; over 200ms; some max_completion_tokens=8; some max_completion_tokens=6", "compressed or not",
	},
	{
		aiperf, "Agentic Workloads", "Weka, by its graph format", "profile --model sim --endpoint-type chat --url ENGINE --input-file DIR/t.json --graph-format weka_trace --streaming",
		map[string]string{"t.json": agentTalk},
		"requests 3; over 300ms", "",
	},
	{
		aiperf, "Agentic Workloads", "a graph of one's own", "!profile --model sim --endpoint-type chat --url ENGINE --input-file DIR/hello.graph.yaml --graph-format native",
		map[string]string{"hello.graph.yaml": "graph:\n  version: \"2.0\"\n"},
		"capture a run with moonloop capture", "a native graph describes how requests are made from replies, and contains no requests",
	},
	{
		aiperf, "Profile with TraceLab Agentic Coding Traces", "sessions in a closed loop, with capped pauses", "profile --model sim --tokenizer Qwen/Qwen3-0.6B --url HOST:PORT --endpoint-type chat --custom-dataset-type tracelab --input-file DIR/tracelab_slice.jsonl.gz --num-dataset-entries 50 --concurrency 4 --no-fixed-schedule --inter-turn-delay-cap-seconds 0.2",
		map[string]string{"tracelab_slice.jsonl.gz": packed(rounds)},
		"requests 4; over 400ms; model sim; all of max_completion_tokens=5 6 7 8", "--concurrency counts requests, not sessions",
	},
	{
		aiperf, "Profile with TraceLab Agentic Coding Traces", "the first session", "profile --model sim --url HOST:PORT --endpoint-type chat --custom-dataset-type tracelab --input-file DIR/t.jsonl --num-dataset-entries 1 --ignore-trace-delays",
		map[string]string{"t.jsonl": rounds},
		"requests 3; all of max_completion_tokens=6 7 8", "",
	},
	{
		aiperf, "Profile with TraceLab Agentic Coding Traces", "a window of the schedule", "profile --url HOST:PORT --endpoint-type chat --model sim --input-file DIR/t.jsonl --custom-dataset-type tracelab --fixed-schedule --fixed-schedule-end-offset 300000",
		map[string]string{"t.jsonl": rounds},
		"requests 3; over 200ms", "",
	},
	{
		aiperf, "Profile with TraceLab Agentic Coding Traces", "blocks of another size", "profile --url HOST:PORT --endpoint-type chat --model sim --input-file DIR/t.jsonl --custom-dataset-type tracelab --isl-block-size 128 --fixed-schedule --fixed-schedule-end-offset 300000",
		map[string]string{"t.jsonl": rounds},
		"requests 3", "",
	},
	{
		aiperf, "Baseten Trace Replay", "turns after the previous reply", "profile --model sim --url ENGINE --endpoint-type completions --input-file DIR/trace.jsonl --custom-dataset-type baseten_trace --fixed-schedule --no-open-loop-replay --inter-turn-delay-cap-seconds 0.2 --replay-speedup 2",
		map[string]string{"trace.jsonl": `{"timestamp_start_unix_ms": 1767225600250, "input_tokens": 40, "output_tokens": 8, "total_hashes": [17, 18, 19], "block_size": 16, "poor_man_session_id": "p1", "duration_e2e_ms": 50}
{"timestamp_start_unix_ms": 1767225690450, "input_tokens": 64, "output_tokens": 4, "total_hashes": [17, 18, 20, 21], "block_size": 16, "poor_man_session_id": "p1"}
`},
		"requests 2; over 100ms; some max_tokens=8; some max_tokens=4", "the cap applies to recorded time, before --replay-speedup divides it",
	},
	{
		aiperf, "BurstGPT traces", "lengths and times", aiperfStart + "--input-file DIR/burst.csv --custom-dataset-type burst_gpt_trace --fixed-schedule",
		map[string]string{"burst.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n6.5,ChatGPT,108,9,117,API log\n"},
		"requests 2; over 1500ms; model sim; some max_completion_tokens=18", "",
	},
	{
		vllm, "Benchmark CLI", "a timed trace, as the page prints it", "bench serve --model sim --dataset-name=timed_trace --num-prompts 2 --host HOST --port PORT --dataset-path DIR/conversation_trace.jsonl --ignore-eos --self-timed --timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001",
		map[string]string{"conversation_trace.jsonl": threeRows},
		"requests 2; over 105ms; path /v1/completions; all of max_tokens=5 6; body ignore_eos=true", "the page says 100 rows",
	},
	{
		vllm, "Benchmark CLI", "a timed trace, all at once", "bench serve --model sim --dataset-name=timed_trace --num-prompts 100 --host HOST --port PORT --dataset-path DIR/conversation_trace.jsonl --no-self-timed --timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001",
		map[string]string{"conversation_trace.jsonl": threeRows},
		"requests 3; at once; path /v1/completions", "",
	},
	{
		vllm, "help of vllm bench serve", "a timed trace, in milliseconds and blocks of 512", "bench serve --backend vllm --model sim --tokenizer path/of/weights --base-url ENGINE --endpoint /v1/completions --dataset-name timed_trace --dataset-path DIR/t.jsonl --timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001 --self-timed --num-prompts 3 --max-concurrency 128 --request-id-prefix run- --ignore-eos --save-result --save-detailed --result-dir DIR/res --result-filename benchmark.json",
		map[string]string{"t.jsonl": threeRows},
		"requests 3; over 274ms; path /v1/completions; body ignore_eos=true; header X-Request-Id=run-*; file res/benchmark/summary.json", "",
	},
	{
		vllm, "help of vllm bench serve", "a timed trace as vLLM takes it, in seconds and blocks of 16", "bench serve --backend vllm --model sim --host HOST --port PORT --dataset-name timed_trace --dataset-path DIR/t.jsonl --self-timed --temperature 0 --num-warmups 0 --ready-check-timeout-sec 0",
		map[string]string{"t.jsonl": `{"timestamp": 0, "input_length": 32, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 0.25, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}
`},
		"requests 2; over 250ms; body temperature=0; body max_tokens=5", "",
	},
	{
		vllm, "help of vllm bench serve", "other names of fields", "bench serve --backend openai-chat --endpoint /v1/chat/completions --model sim --base-url ENGINE --dataset-name timed_trace --dataset-path DIR/t.jsonl --timed-trace-label-timestamp at --timed-trace-label-input-length isl --timed-trace-label-output-length osl --timed-trace-label-hash-ids blocks",
		map[string]string{"t.jsonl": `{"at": 0, "isl": 32, "osl": 5, "blocks": [1, 2]}
{"at": 0.25, "isl": 40, "osl": 6, "blocks": [1, 2, 3]}
`},
		"requests 2; over 250ms; some max_completion_tokens=6", "",
	},
	{
		guidellm, "Trace Replay Benchmarking", "seconds and lengths", guideStart + "--data kind=trace_synthetic,path=DIR/t.jsonl --profile kind=replay,time_scale=1.0",
		map[string]string{"t.jsonl": secondsRows},
		"requests 2; over 2000ms; some max_completion_tokens=8", "",
	},
	{
		guidellm, "Trace Replay Benchmarking", "half of the time, from other columns, one row", guideStart + "--data kind=trace_synthetic,path=DIR/t.jsonl,timestamp_column=timestamp,prompt_tokens_column=input_length,output_tokens_column=output_length --profile kind=replay,time_scale=0.5 --data-loader kind=pytorch,samples=1000 --constraint kind=max_requests,count=1",
		map[string]string{"t.jsonl": secondsRows},
		"requests 1", "",
	},
	{
		guidellm, "Trace Replay Benchmarking", "as JSON objects, with a key and fields of bodies", "run --backend {\"kind\":\"openai_http\",\"target\":\"ENGINE/v1\",\"model\":\"sim\",\"api_key\":\"sk-key\",\"extras\":{\"body\":{\"temperature\":0.6,\"ignore_eos\":false}}} --data {\"kind\":\"trace_synthetic\",\"path\":\"DIR/t.jsonl\"} --profile {\"kind\":\"replay\",\"time_scale\":0.1} --tokenizer {\"kind\":\"huggingface_auto\",\"model\":\"gpt2\"} --constraint {\"kind\":\"max_duration\",\"seconds\":60}",
		map[string]string{"t.jsonl": secondsRows},
		"requests 2; over 200ms; model sim; body temperature=0.6; body ignore_eos=false; header Authorization=Bearer sk-key", "",
	},
	{
		guidellm, "Datasets", "a table", guideStart + "--profile kind=replay,time_scale=0.1 --data kind=trace_synthetic,path=DIR/t.csv",
		map[string]string{"t.csv": "timestamp,input_length,output_length\n1234500.0,256,8\n1234502.0,512,6\n"},
		"requests 2; over 200ms; all of max_completion_tokens=6 8", "",
	},
	{
		guidellm, "Datasets", "an array", guideStart + "--profile kind=replay,time_scale=0.1 --data kind=trace_synthetic,path=DIR/t.json",
		map[string]string{"t.json": "[" + strings.Replace(strings.TrimSpace(secondsRows), "\n", ",\n", 1) + "]"},
		"requests 2; over 200ms; all of max_completion_tokens=6 8", "",
	},
	{
		guidellm, "Trace File Formats", "columns of other names, out of order", guideStart + "--profile kind=replay --data kind=trace_synthetic,path=DIR/replay.jsonl,timestamp_column=ts,prompt_tokens_column=input_tokens,output_tokens_column=generated_tokens",
		map[string]string{"replay.jsonl": `{"ts": 5.2, "input_tokens": 300, "generated_tokens": 6}
{"ts": 5, "input_tokens": 256, "generated_tokens": 8}
`},
		"requests 2; over 200ms; all of max_completion_tokens=6 8", "",
	},
	{
		guidellm, "Trace File Formats", "a source, and columns of other names", guideStart + "--profile kind=replay --data kind=trace_synthetic,source.kind=json_file,source.path=DIR/t.jsonl,timestamp_column=ts,prompt_tokens_column=isl,output_tokens_column=generated_tokens,time_scale=1.0,max_session_wait=1.5",
		map[string]string{"t.jsonl": `{"ts": 7, "isl": 256, "generated_tokens": 8}
{"ts": 70, "isl": 300, "generated_tokens": 6}
`},
		"requests 2; over 1500ms; some max_completion_tokens=6", "",
	},
	{
		guidellm, "Trace File Formats", "Mooncake", guideStart + "--profile kind=replay --data kind=mooncake,path=DIR/t.jsonl,hash_ids_column=hash_ids,hash_id_block_size=512,time_scale=0.001",
		map[string]string{"t.jsonl": threeRows},
		"requests 3; over 274ms", "",
	},
	{
		guidellm, "Trace File Formats", "Weka", guideStart + "--profile kind=replay --data kind=weka,source.kind=json_file,source.path=DIR/t.json,conversation_id_column=id",
		map[string]string{"t.json": conversations},
		"requests 2; some max_completion_tokens=4", "",
	},
	{
		guidellm, "Trace File Formats", "OpenTelemetry, a session on a line", guideStart + "--profile kind=replay --data kind=otel,source.kind=json_file,source.path=DIR/t.jsonl,history=trace --data-loader kind=pytorch,samples=2",
		map[string]string{"t.jsonl": spansOfTools},
		"requests 1; some max_completion_tokens=4", "prompts are generated from hashes of the recorded ones, with the same lengths",
	},
	{
		guidellm, "Trace File Formats", "a data set of a hub", "!" + guideStart + "--profile kind=replay --data kind=weka,source.kind=huggingface,source.source=owner/traces,load_kwargs.split=train",
		nil, "download the data set, and name its file", "nothing is downloaded",
	},
	{
		traceReplay, "TraceReplay Benchmark Tool", "a row over several lines, with comments", "--model /models/m --served-model-name sim --backend vllm --trace-path DIR/conversation_trace.jsonl --trace-mode trace --host HOST --port PORT --save-result --result-dir DIR/out --save-prompts",
		map[string]string{"conversation_trace.jsonl": `{
  "timestamp": 1696000000123,   // since 1970
  "input_length": 1312,         // tokens
  "output_length": 8,           // expected
  "hash_ids": [123, 456, 789]   // of the prompt
}
{
  "timestamp": 1696000001623,
  "input_length": 812,
  "output_length": 6,
  "hash_ids": [123, 457]
}
`},
		"requests 2; over 1500ms; path /v1/completions; some max_tokens=8; file out/summary.json; file out/prompts.jsonl", "if only --model is given, it is requested unchanged; TraceReplay does the same",
	},
	{
		traceReplay, "TraceReplay Benchmark Tool", "prompts of its default dataset", "--model sim --trace-path DIR/trace.jsonl --trace-mode benchmark --dataset-path DIR/talk.json --host HOST --port PORT",
		map[string]string{"talk.json": talk()},
		"requests 4; rows of the trace; path /v1/completions; text lighthouse", "",
	},
	{
		traceReplay, "TraceReplay Benchmark Tool", "prompts of a dataset", "--model /models/m --served-model-name sim --backend vllm --trace-path DIR/trace.jsonl --trace-mode benchmark --dataset-name sharegpt --dataset-path DIR/talk.json --host HOST --port PORT --save-result --result-dir DIR/out --save-prompts",
		map[string]string{"talk.json": talk()},
		"requests 4; rows of the trace; path /v1/completions; text lighthouse; output prompt as asked 0, different 4; file out/summary.json; file out/prompts.jsonl",
		"prompts have the lengths of the rows and share prefixes as hash_ids say; TraceReplay sends texts with the dataset's own lengths and without the shared prefixes of the trace",
	},
}

// packed returns a text compressed by gzip.
func packed(text string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

// TestPrintedLines runs the printed lines, and checks what the engine got.
func TestPrintedLines(t *testing.T) {
	t.Parallel()
	lines := some(printedLines)
	ends := make([]func() replayed, len(lines))
	for i, p := range lines {
		ends[i] = beginMany(p.sees, func() func() replayed {
			line, _ := strings.CutPrefix(p.line, "!")
			args := recorded(strings.Fields("replay --overhead 1 "+line), p.sees)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "␣", " ")
			}
			return begin(t, aliasTrace, args, p.files)
		})
	}
	for i, p := range lines {
		t.Run(p.tool+"/"+p.about, func(t *testing.T) {
			r := ends[i]()
			if strings.HasPrefix(p.line, "!") {
				if r.status != exitUsage || !strings.Contains(r.said, p.sees) || len(r.seen) > 0 {
					t.Errorf("status %d, %d requests, said:\n%s", r.status, len(r.seen), r.said)
				}
				return
			}
			r.good(t)
			r.see(t, p.sees, r.out)
			if t.Failed() {
				t.Log(r.said)
			}
		})
	}
}

// writePrinted writes a tool's lines for the page.
func writePrinted(b *strings.Builder, tool string) {
	b.WriteString("\n### Command lines in its documentation\n\n| page | what | moonloop replay … | what differs |\n|---|---|---|---|\n")
	for _, p := range printedLines {
		if p.tool == tool {
			line, no := strings.CutPrefix(p.line, "!")
			line = strings.NewReplacer("ENGINE", "http://localhost:8000", "HOST:PORT", "localhost:8000", "HOST", "localhost", "PORT", "8000", "DIR/", "", "␣", " ").Replace(line)
			note := p.note
			if no {
				note = "refused: " + note
			}
			fmt.Fprintf(b, "| %s | %s | `%s` | %s |\n", p.page, p.about, line, note)
		}
	}
}
