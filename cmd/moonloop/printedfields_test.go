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

// This file has the fields of the rows in the trace-replay documentation of other tools, for the page docs/from-other-tools.md. Each field
// is in a file of one of the documented command lines, whose test checks its effect.

// printedField is a field of rows.
type printedField struct {
	tool, format string
	names        string // several with the same meaning, or the same effect
	ours         string
	state, note  string
	in           string // the subject of the printed command line that has it
}

var printedFields = []printedField{
	{aiperf, "mooncake_trace", "timestamp", "timestamp", yes, "milliseconds", "a trace file of one's own"},
	{aiperf, "mooncake_trace", "input_length", "input_length", yes, "exact", "a trace file of one's own"},
	{aiperf, "mooncake_trace", "output_length", "output_length", yes, "enforced if the engine supports it; AIPerf only sets a limit", "a trace file of one's own"},
	{aiperf, "mooncake_trace", "hash_ids", "hash_ids", yes, "", "a trace file of one's own"},
	{aiperf, "mooncake_trace", "session_id", "session_id", yes, "", "rows with messages"},
	{aiperf, "mooncake_trace", "delay", "delay", yes, "", "rows with new messages, after live replies"},
	{aiperf, "mooncake_trace", "messages", "messages", yes, "", "rows with messages"},
	{aiperf, "mooncake_trace", "message_mode", "message_mode", yes, "", "rows with new messages, after live replies"},
	{aiperf, "mooncake_trace", "tools", "tools", yes, "", "tools, and fields for one request"},
	{aiperf, "mooncake_trace", "extra", "extra", yes, "", "tools, and fields for one request"},
	{aiperf, "mooncake_trace", "input_text", "text_input", yes, "--map text_input=input_text: the page's own name for what AIPerf reads as text_input", "texts under another name"},
	{aiperf, "mooncake_trace", "text_input", "text_input", yes, "", "texts without times"},
	{aiperf, "mooncake_trace", "payload", "payload", yes, "", "a whole body"},
	{aiperf, "single_turn, random_pool", "text texts", "text_input", yes, "several texts become one, a line each", "single turns, again from the first"},
	{aiperf, "single_turn", "output_length extra", "output_length, extra", yes, "", "single turns, again from the first"},
	{aiperf, "single_turn", "role", "", partly, "every text is a message of the user; a system turn at the beginning is put before each of the others", "single turns, again from the first"},
	{aiperf, "random_pool", "image", "", partly, "counted as left out: put images into messages or payload, or generate some with --image-batch-size", "a pool of prompts with images"},
	{aiperf, "multi_turn", "session_id turns", "session_id", yes, "later turns follow the live reply", "conversations"},
	{aiperf, "multi_turn", "text texts output_length extra delay", "text_input, output_length, extra, delay", yes, "", "conversations"},
	{aiperf, "multi_turn", "role", "messages", yes, "system, of the first turn", "a system prompt before all turns"},
	{aiperf, "bailian_trace", "chat_id parent_chat_id turn", "session_id", yes, "", "seconds, blocks of 16 tokens, chats with parents"},
	{aiperf, "bailian_trace", "timestamp", "timestamp", yes, "seconds become milliseconds", "seconds, blocks of 16 tokens, chats with parents"},
	{aiperf, "bailian_trace", "input_length output_length", "input_length, output_length", yes, "", "seconds, blocks of 16 tokens, chats with parents"},
	{aiperf, "bailian_trace", "hash_ids", "hash_ids", yes, "blocks of 16 tokens", "seconds, blocks of 16 tokens, chats with parents"},
	{aiperf, "bailian_trace", "type", "", partly, "counted: all requests are texts", "seconds, blocks of 16 tokens, chats with parents"},
	{aiperf, "baseten_trace", "timestamp_start_unix_ms", "timestamp", yes, "from the first request on", "completions with hashes of their blocks"},
	{aiperf, "baseten_trace", "input_tokens output_tokens", "input_length, output_length", yes, "", "completions with hashes of their blocks"},
	{aiperf, "baseten_trace", "total_hashes block_size", "hash_ids", partly, "prompts are generated from them; AIPerf sends the recorded prompt, together with the hashes", "completions with hashes of their blocks"},
	{aiperf, "baseten_trace", "prompt output_text", "", partly, "text is not read, because the hashes say what prompts share", "completions with hashes of their blocks"},
	{aiperf, "baseten_trace", "provided_session_id poor_man_session_id", "session_id", yes, "", "completions with hashes of their blocks"},
	{aiperf, "baseten_trace", "duration_e2e_ms duration_ttft_ms", "observed", yes, "", "completions with hashes of their blocks"},
	{aiperf, "baseten_trace", "request_canceled", "", partly, "left out, or kept with moonloop convert --failed keep", "completions with hashes of their blocks"},
	{aiperf, "raw_payload", "messages model max_tokens temperature", "payload", yes, "all members, as they are", "bodies of requests"},
	{aiperf, "inputs_json", "data session_id payloads", "session_id, payload", yes, "", "what a run has sent"},
	{aiperf, "sagemaker_data_capture", "captureData endpointInput data observedContentType mode encoding", "payload", yes, "JSON or base64", "a folder of captures"},
	{aiperf, "sagemaker_data_capture", "endpointOutput", "output_length", yes, "the tokens of its usage", "a folder of captures"},
	{aiperf, "sagemaker_data_capture", "eventMetadata eventId inferenceTime eventVersion", "request_id, timestamp", yes, "", "a folder of captures"},
	{aiperf, "weka_trace", "id requests", "session_id", yes, "", "conversations of coding agents"},
	{aiperf, "weka_trace", "t in out", "timestamp, input_length, output_length", yes, "", "conversations of coding agents"},
	{aiperf, "weka_trace", "hash_ids block_size hash_id_scope", "hash_ids", yes, "", "conversations of coding agents"},
	{aiperf, "weka_trace", "model models", "model", yes, "", "conversations of coding agents"},
	{aiperf, "weka_trace", "stop input_types tool_tokens system_tokens type api_time", "", partly, "they describe what the tool did: not replayed, but counted", "conversations of coding agents"},
	{aiperf, "weka_trace", "think_time", "", partly, "the time between the end of a reply (from api_time) and the next request: --use-think-time-only", "a folder of conversations, by two models"},
	{aiperf, "weka_trace", "agent_id subagent_type", "session_id", partly, "conversation/agent", "a folder of conversations, by two models"},
	{aiperf, "dag_jsonl", "session_id turns", "session_id, request_id", yes, "a fork has the session of its parent", "conversations that continue another one"},
	{aiperf, "dag_jsonl", "messages model max_tokens", "messages, model, output_length", yes, "", "conversations that continue another one"},
	{aiperf, "dag_jsonl", "tools extra delay", "tools, extra, delay", yes, "", "conversations that others wait for"},
	{aiperf, "dag_jsonl", "forks child background", "wait_for", yes, "has the session of the parent, and continues its conversation", "conversations that others wait for"},
	{aiperf, "dag_jsonl", "spawns children join_at", "wait_for", yes, "", "conversations that others wait for"},
	{aiperf, "dag_jsonl", "pre_session_spawns", "wait_for", yes, "a root of its own", "conversations that others wait for"},
	{aiperf, "dag_jsonl", "context_mode", "message_mode", yes, "", "conversations that others wait for"},
	{aiperf, "dag_jsonl", "orchestrator rounds think_time_ms", "wait_for, delay", yes, "", "a conversation that starts others in rounds"},
	{aiperf, "dag_jsonl", "think_time_sigma think_time_min_ms", "", partly, "counted: each round waits think_time_ms", "a conversation that starts others in rounds"},
	{aiperf, "tracelab", "session_id round_index", "session_id", yes, "", "sessions in a closed loop, with capped pauses"},
	{aiperf, "tracelab", "input_tokens_total output_tokens", "input_length, output_length", yes, "", "sessions in a closed loop, with capped pauses"},
	{aiperf, "tracelab", "prefix_tokens newly_append_tokens", "hash_ids", yes, "blocks of 64 tokens unless --isl-block-size is given; a round shares with the previous round the blocks that its provider had in the cache", "sessions in a closed loop, with capped pauses"},
	{aiperf, "tracelab", "timing_events event_type", "timestamp, observed", yes, "from the last input to the model's last output", "sessions in a closed loop, with capped pauses"},
	{aiperf, "tracelab", "model", "model", yes, "", "sessions in a closed loop, with capped pauses"},
	{aiperf, "tracelab", "provider user project first_input_event_type reasoning_output_tokens tools", "", partly, "counted; sessions of subagents are treated as independent sessions, because the data does not say which agent they belong to", "sessions in a closed loop, with capped pauses"},
	{aiperf, "dynamo_trace", "request_received_ms input_sequence_hashes trace_block_size", "timestamp, hash_ids", yes, "", "Dynamo's request trace"},
	{aiperf, "burst_gpt_trace", "Timestamp", "timestamp", yes, "", "lengths and times"},
	{aiperf, "burst_gpt_trace", "Request Response Total", "input_length, output_length", yes, "", "lengths and times"},
	{aiperf, "burst_gpt_trace", "Model", "model", partly, "--model sends all to one", "lengths and times"},
	{aiperf, "burst_gpt_trace", "Log", "", partly, "counted", "lengths and times"},
	{vllm, "timed_trace", "timestamp", "timestamp", yes, "seconds, unless --timed-trace-sec-multiplier gives another unit; the first row is sent at once", "a timed trace as vLLM takes it, in seconds and blocks of 16"},
	{vllm, "timed_trace", "input_length output_length", "input_length, output_length", yes, "too few ids make a prompt shorter in vLLM, not here", "a timed trace as vLLM takes it, in seconds and blocks of 16"},
	{vllm, "timed_trace", "hash_ids", "hash_ids", yes, "of 16 tokens, unless --timed-trace-chunk-hash-size gives another size", "a timed trace as vLLM takes it, in seconds and blocks of 16"},
	{guidellm, "trace_synthetic", "timestamp", "timestamp", yes, "seconds", "seconds and lengths"},
	{guidellm, "trace_synthetic", "input_length output_length", "input_length, output_length", yes, "", "seconds and lengths"},
	{guidellm, "trace_synthetic", "ts isl generated_tokens", "--map", yes, "by timestamp_column, prompt_tokens_column and output_tokens_column", "a source, and columns of other names"},
	{guidellm, "mooncake", "hash_ids", "hash_ids", yes, "", "Mooncake"},
	{guidellm, "weka", "id t in out hash_ids", "session_id, timestamp, input_length, output_length, hash_ids", yes, "", "Weka"},
	{guidellm, "otel", "trace_id spans", "session_id", partly, "a session on each line; if each span is on its own line, only OTLP is read", "OpenTelemetry, a session on a line"},
	{guidellm, "otel", "start_time status attributes", "timestamp", yes, "failed spans are left out", "OpenTelemetry, a session on a line"},
	{guidellm, "otel", "gen_ai.input.messages gen_ai.usage.output_tokens gen_ai.usage.input_tokens", "hash_ids, output_length, input_length", yes, "texts are hashed", "OpenTelemetry, a session on a line"},
	{traceReplay, "Mooncake", "timestamp", "timestamp", yes, "milliseconds since 1970 or from 0", "a row over several lines, with comments"},
	{traceReplay, "Mooncake", "input_length output_length", "input_length, output_length", yes, "", "a row over several lines, with comments"},
	{traceReplay, "Mooncake", "hash_ids", "hash_ids", yes, "blocks of 512 tokens", "a row over several lines, with comments"},
}

// TestPrintedFields: each field is in a file of the command line that it names, or in the rows of that name.
func TestPrintedFields(t *testing.T) {
	for _, f := range printedFields {
		var files []string
		for _, line := range printedLines {
			if line.tool == f.tool && line.about == f.in {
				for name, content := range line.files {
					if strings.HasSuffix(name, ".gz") {
						content = unpacked(t, content)
					}
					files = append(files, content)
				}
			}
		}
		for _, rows := range printedRows {
			if rows.name == f.in {
				files = append(files, rows.rows)
			}
		}
		for name := range strings.FieldsSeq(f.names) {
			if !slices.ContainsFunc(files, func(content string) bool { return strings.Contains(content, name) }) {
				t.Errorf("%s, %s: %s is in no file of %q", f.tool, f.format, name, f.in)
			}
		}
	}
}

func unpacked(t *testing.T, content string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// writeFields writes a tool's fields for the page.
func writeFields(b *strings.Builder, tool string) {
	b.WriteString("\n### Fields of its rows\n\n| format | theirs | ours | status | note |\n|---|---|---|---|---|\n")
	for _, f := range printedFields {
		if f.tool == tool {
			ours := strings.ReplaceAll(f.ours, ", ", "`, `")
			if ours != "" {
				ours = "`" + ours + "`"
			}
			fmt.Fprintf(b, "| `%s` | `%s` | %s | %s | %s |\n", f.format, strings.Join(strings.Fields(f.names), "` `"), ours, f.state, f.note)
		}
	}
}
