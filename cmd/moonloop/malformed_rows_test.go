// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"strings"
	"testing"
)

// TestMalformedRows: each row comes after a good one, so the message must name line 2. It must not repeat anything that could be a prompt:
// the word xyzzy.
func TestMalformedRows(t *testing.T) {
	alone(t)
	const good = `{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}` + "\n"
	var cases []malformed
	for _, c := range []struct{ name, row string }{
		// Types.
		{"length as text: refused", `{"timestamp":1,"input_length":"xyzzy"}`},
		{"length as an array: refused", `{"timestamp":1,"input_length":[600]}`},
		{"length as a boolean: refused", `{"timestamp":1,"input_length":true}`},
		{"timestamp as text: refused", `{"timestamp":"2026-01-01T00:00:00Z","input_length":600}`},
		{"timestamp as an object: refused", `{"timestamp":{},"input_length":600}`},
		{"ids as a number: refused", `{"timestamp":1,"input_length":600,"hash_ids":7}`},
		{"ids as an object: refused", `{"timestamp":1,"input_length":600,"hash_ids":{"0":1}}`},
		{"an id as text: refused", `{"timestamp":1,"input_length":600,"hash_ids":["xyzzy"]}`},
		{"an id that is null: refused", `{"timestamp":1,"input_length":600,"hash_ids":[0,null]}`},
		{"ids within ids: refused", `{"timestamp":1,"input_length":600,"hash_ids":[[0],[1]]}`},
		{"session as a number: refused", `{"timestamp":1,"input_length":600,"session_id":7}`},
		{"messages as text: refused", `{"timestamp":1,"messages":"xyzzy"}`},
		{"payload as an array: refused", `{"timestamp":1,"payload":[]}`},
		{"a payload that caps its reply below 0: refused", `{"timestamp":1,"payload":{"model":"m","max_tokens":-1,"prompt":"xyzzy"}}`},
		{"an extra that caps its reply below 0: refused", `{"timestamp":1,"input_length":600,"extra":{"max_completion_tokens":-1.5}}`},
		{"extra as text: refused", `{"timestamp":1,"input_length":600,"extra":"xyzzy"}`},
		{"span as text: refused", `{"timestamp":1,"input_length":600,"otel":"xyzzy"}`},
		{"span of zeros: refused", `{"timestamp":1,"input_length":600,"otel":{"trace_id":"00000000000000000000000000000000","span_id":"0000000000000000"}}`},

		// Signs, overflow, floats.
		{"length 0: refused", `{"timestamp":1,"input_length":0}`},
		{"length -1: refused", `{"timestamp":1,"input_length":-1}`},
		{"length 2^63: refused", `{"timestamp":1,"input_length":9223372036854775808}`},
		{"length 2^63-1: refused", `{"timestamp":1,"input_length":9223372036854775807}`},
		{"length 2^64: refused", `{"timestamp":1,"input_length":18446744073709551616}`},
		{"length 600.5: refused", `{"timestamp":1,"input_length":600.5}`},
		{"length 600.0: accepted", `{"timestamp":1,"input_length":600.0,"output_length":1e0}`},
		{"length 1e400: refused", `{"timestamp":1,"input_length":1e400}`},
		{"output -1: refused", `{"timestamp":1,"input_length":600,"output_length":-1}`},
		{"output 2^62: refused", `{"timestamp":1,"input_length":600,"output_length":4611686018427387904}`},
		{"id -1: refused", `{"timestamp":1,"input_length":600,"hash_ids":[0,-1]}`},
		{"id 2^63: accepted", `{"timestamp":1,"input_length":600,"output_length":1,"hash_ids":[0,9223372036854775808]}`},
		{"id 2^64: refused", `{"timestamp":1,"input_length":600,"hash_ids":[0,18446744073709551616]}`},
		{"id 1.0: refused", `{"timestamp":1,"input_length":600,"hash_ids":[0,1.0]}`},
		{"id 1e3: refused", `{"timestamp":1,"input_length":600,"hash_ids":[0,1e3]}`},
		{"NaN: refused", `{"timestamp":NaN,"input_length":600}`},
		{"Infinity: refused", `{"timestamp":Infinity,"input_length":600}`},
		{"-Infinity: refused", `{"timestamp":-Infinity,"input_length":600}`},
		{"timestamp 1e400: refused", `{"timestamp":1e400,"input_length":600}`},
		{"timestamp 1e300: refused", `{"timestamp":1e300,"input_length":600,"output_length":1}`},
		{"timestamp 1e15: a replay refuses", `{"timestamp":1e15,"input_length":600,"output_length":1}`},
		{"timestamp -1: refused", `{"timestamp":-1,"input_length":600}`},
		{"delay -1: refused", `{"timestamp":1,"delay":-1,"input_length":600,"session_id":"s"}`},
		{"delay 1e14: a replay refuses", `{"timestamp":1,"delay":1e14,"input_length":600,"output_length":1,"session_id":"s"}`},
		{"delay 1e18: refused", `{"timestamp":1,"delay":1e18,"input_length":600,"output_length":1,"session_id":"s"}`},
		{"a number with a leading zero: refused", `{"timestamp":01,"input_length":600}`},
		{"a number with a plus: refused", `{"timestamp":+1,"input_length":600}`},
		{"a hexadecimal number: refused", `{"timestamp":1,"input_length":0x10}`},

		// Shapes.
		{"an array as row: refused", `[1,600,1]`},
		{"a string as row: refused", `"xyzzy"`},
		{"a number as row: refused", `42`},
		{"null as row: refused", `null`},
		{"an empty object: refused", `{}`},
		{"two objects on a line: accepted with a notice", `{"timestamp":1,"input_length":600}{"timestamp":2,"input_length":600}`},
		{"text after the object: refused", `{"timestamp":1,"input_length":600} xyzzy`},
		{"a trailing comma: accepted with a notice", `{"timestamp":1,"input_length":600,}`},
		{"a comma between lines: accepted", `{"timestamp":1,"input_length":600},`},
		{"a comment that does not end: refused", `/* xyzzy`},
		{"an array that does not end: refused", `[{"timestamp":1,"input_length":600},`},
		{"a comment with a number sign: accepted with a notice", "# xyzzy\n{\"timestamp\":1,\"input_length\":600}"},
		{"dots for what is left out: refused", `{"timestamp":1,"input_length":600,...}`},
		{"an error on the third line of a row: refused", "{\n  \"timestamp\": 1,\n  \"input_length\": -600.5\n}"},
		{"a row cut in a list: refused", "{\"timestamp\":1,\"hash_ids\":[0,\n{\"timestamp\":2,\"input_length\":600}"},
		{"seconds after milliseconds: refused", `{"timestamp":1795273445000,"input_length":600}`},
		{"names of another tool: refused", `{"arrival_time":1,"prompt_tokens":600,"completion_tokens":1}`},
		{"single quotes: refused", `{'timestamp':1,'input_length':600}`},
		{"a comment: accepted with a notice", `// xyzzy`},
		{"an object over two lines: accepted with a notice", "{\"timestamp\":1,\n\"input_length\":600}"},
		{"cut in the middle: refused", `{"timestamp":1,"input_len`},
		{"cut in a string: refused", `{"timestamp":1,"text_input":"xyzzy`},
		{"a key twice: refused", `{"timestamp":1,"input_length":600,"input_length":700}`},
		{"a key and its alias: refused", `{"timestamp":1,"input_length":600,"input_tokens":600}`},
		{"deep JSON: refused", `{"timestamp":1,"payload":{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}}`},

		// Encodings within a row.
		{"latin-1 text: refused", "{\"timestamp\":1,\"text_input\":\"caf\xe9 xyzzy\"}"},
		{"a NUL byte in a string: refused", "{\"timestamp\":1,\"text_input\":\"\x00xyzzy\"}"},
		{"a NUL byte between: refused", "{\"timestamp\":1,\x00\"input_length\":600}"},
		{"half a surrogate: refused", `{"timestamp":1,"text_input":"\ud800"}`},
		{"a byte order mark in the middle: refused", "\xef\xbb\xbf{\"timestamp\":1,\"input_length\":600}"},
		{"CRLF: accepted", "{\"timestamp\":1,\"input_length\":600,\"output_length\":1}\r\n"},
		{"a lone CR between rows: accepted with a notice", "{\"timestamp\":1,\"input_length\":600}\r{\"timestamp\":2,\"input_length\":600}"},

		// What a row means.
		{"no prompt: refused", `{"timestamp":1,"output_length":1}`},
		{"two prompts: refused", `{"timestamp":1,"input_length":600,"text_input":"xyzzy"}`},
		{"ids without a length: refused", `{"timestamp":1,"text_input":"xyzzy","hash_ids":[0,1]}`},
		{"more ids than blocks: accepted with a notice", `{"timestamp":1,"input_length":600,"output_length":1,"hash_ids":[0,1,2,3]}`},
		{"no ids: accepted", `{"timestamp":1,"input_length":600,"output_length":1,"hash_ids":[]}`},
		{"null in place of ids: accepted", `{"timestamp":1,"input_length":600,"output_length":1,"hash_ids":null}`},
		{"an unknown key: accepted with a notice", `{"timestamp":1,"input_length":600,"output_length":1,"osl":1}`},
		{"no messages: refused", `{"timestamp":1,"messages":[]}`},
		{"a message without a role: refused", `{"timestamp":1,"messages":[{"content":"xyzzy"}]}`},
		{"tools without messages: refused", `{"timestamp":1,"input_length":600,"tools":[{}]}`},
		{"an unknown message mode: refused", `{"timestamp":1,"messages":[{"role":"user"}],"message_mode":"append"}`},
		{"delta without messages: refused", `{"timestamp":1,"input_length":600,"message_mode":"delta"}`},
		{"an empty payload: refused", `{"timestamp":1,"payload":{}}`},
		{"another format: refused", `{"timestamp":1,"input_length":600,"type":"burst_gpt"}`},

		// The meaning of a row among others.
		{"no timestamp after a row with one: a replay refuses", `{"input_length":600,"output_length":1}`},
		{"a session that begins without a timestamp: a replay refuses", `{"input_length":600,"output_length":1,"session_id":"s","delay":5}`},
		{"reversed times: accepted", "{\"timestamp\":3,\"input_length\":600,\"output_length\":1}\n{\"timestamp\":2,\"input_length\":600,\"output_length\":1}"},
		{"a session with two kinds of prompts: refused", "{\"timestamp\":1,\"payload\":{\"a\":1},\"session_id\":\"s\"}\n{\"timestamp\":2,\"input_length\":600,\"session_id\":\"s\"}"},
		{"a session that may be either: a replay refuses", "{\"timestamp\":1,\"input_length\":600,\"output_length\":1,\"session_id\":\"s\"}\n{\"timestamp\":2,\"input_length\":600,\"output_length\":1,\"session_id\":\"s\"}"},
	} {
		cases = append(cases, malformed{name: c.name, files: map[string]string{"trace.jsonl": good + c.row}})
	}
	cases = append(
		cases,
		malformed{
			name: "times reversed by more than the look-ahead: a replay refuses",
			files: map[string]string{"trace.jsonl": strings.Repeat(`{"timestamp":5000,"input_length":6,"output_length":1}`+"\n", 3) +
				`{"timestamp":1,"input_length":6,"output_length":1}` + "\n"},
			commands: []string{"replay trace.jsonl --url ENGINE --lookahead 2 --speedup 1000"},
		},
		malformed{
			name:     "a line longer than allowed: refused",
			files:    map[string]string{"trace.jsonl": good + `{"timestamp":1,"text_input":"` + strings.Repeat("xyzzy", 1000) + `"}`},
			commands: []string{"inspect trace.jsonl --max-line 1000"},
		},
	)
	checkMalformed(t, "rows", cases)
}
