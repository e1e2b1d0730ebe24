// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake/internal/testtrace"
)

func read(s string, opt ReaderOptions) ([]*Row, *Reader, error) {
	r := NewReader(strings.NewReader(s), opt)
	var rows []*Row
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, r, nil
		}
		if err != nil {
			return rows, r, err
		}
		rows = append(rows, row)
	}
}

func TestReadRows(t *testing.T) {
	trace, span := [16]byte{0x0a, 15: 1}, [8]byte{0x0b, 7: 2}
	for name, test := range map[string]struct {
		in   string
		want Row
	}{
		"the four fields": {
			`{"timestamp": 27482, "input_length": 955, "output_length": 52, "hash_ids": [46, 47]}`,
			Row{Timestamp: Some(27482.), InputLength: Some[int64](955), OutputLength: Some[int64](52), HashIDs: []uint64{46, 47}},
		},
		"aliases": {
			`{"created_time":1.5,"delay_ms":2,"input_tokens":3,"output_tokens":0}`,
			Row{Timestamp: Some(1.5), Delay: Some(2.), InputLength: Some[int64](3), OutputLength: Some[int64](0)},
		},
		"a class and a priority": {
			`{"input_length":3,"class":"batch","priority":-7}`,
			Row{InputLength: Some[int64](3), Class: "batch", Priority: Some[int64](-7)},
		},
		"a class as Dynamo calls it": {
			`{"input_length":3,"class":null,"policy_class":"bulk","priority":2147483647}`,
			Row{InputLength: Some[int64](3), Class: "bulk", Priority: Some[int64](math.MaxInt32)},
		},
		"a class as BLIS calls it": {`{"input_length":3,"slo_class":"critical"}`, Row{InputLength: Some[int64](3), Class: "critical"}},
		"null is absent, also next to its alias": {
			`{"timestamp":null,"created_time":7,"input_length":9,"output_length":null,"hash_ids":null,"text_input":null,"messages":null,"tools":null,"payload":null,"message_mode":null,"extra":null,"delay":null,"session_id":null,"otel":null,"priority":null,"type":null}`,
			Row{Timestamp: Some(7.), InputLength: Some[int64](9)},
		},
		"ids keep all 64 bits": {
			`{"input_length":1024,"hash_ids":[18446744073709551615, 9007199254740993]}`,
			Row{InputLength: Some[int64](1024), HashIDs: []uint64{1<<64 - 1, 1<<53 + 1}},
		},
		"an empty list is not an absent one": {
			`{"input_length":5,"hash_ids":[ ]}`,
			Row{InputLength: Some[int64](5), HashIDs: []uint64{}},
		},
		"counts written as floats": {
			`{"input_length":512.0,"output_length":1e2}`,
			Row{InputLength: Some[int64](512), OutputLength: Some[int64](100)},
		},
		"epoch time with digits below the millisecond": {
			`{"timestamp":1766000000000.125,"input_length":5}`,
			Row{Timestamp: Some(1766000000000.125), InputLength: Some[int64](5)},
		},
		"text": {
			`{"type":"mooncake_trace","text_input":"a \"b\"\nö","output_length":4,"session_id":"s","delay":10}`,
			Row{TextInput: Some("a \"b\"\nö"), OutputLength: Some[int64](4), SessionID: "s", Delay: Some(10.)},
		},
		"messages with tools": {
			`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function"}],"message_mode":"delta","extra":{"temperature":0}}`,
			Row{
				Messages: json.RawMessage(`[{"role":"user","content":"x"}]`), Tools: json.RawMessage(`[{"type":"function"}]`),
				MessageMode: "delta", Extra: json.RawMessage(`{"temperature":0}`),
			},
		},
		"payload": {
			`{"payload":{"model":"m","prompt":[1,2]}}`,
			Row{Payload: json.RawMessage(`{"model":"m","prompt":[1,2]}`)},
		},
		"what this project adds": {
			`{"input_length":5,"request_id":"r","model":"m","otel":{"trace_id":"0a000000000000000000000000000001","span_id":"0b00000000000002"},"result":{"ttft":1}}`,
			Row{InputLength: Some[int64](5), RequestID: "r", Model: "m", OTel: SpanRef{trace, span}},
		},
		"an escaped key": {
			`{"input\u005flength":5}`,
			Row{InputLength: Some[int64](5)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// Strict: none of this is odd.
			rows, r, err := read(test.in, ReaderOptions{Strict: true})
			if err != nil || len(rows) != 1 {
				t.Fatalf("%d rows, error %v", len(rows), err)
			}
			if diff := cmp.Diff(&test.want, rows[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := r.Notices(); len(n) > 0 {
				t.Errorf("notices: %v", n)
			}
		})
	}
}

func TestRefusedRows(t *testing.T) {
	const secret = "xyzzy"
	for _, test := range []struct{ name, in, want string }{
		{"a word", secret, "t:1: is not valid JSON at byte 1"},
		{"a number", "12", "t:1: a number: a row must be a JSON object"},
		{"an array", "[[]]", "t:1: an array: a row must be a JSON object"},
		{"cut off", `{"input_length":1,"text_input":"xyzzy`, "t:1: the row's JSON object does not end"},
		{"an array that is cut off", `[1,2`, "t:1: the row's JSON does not end, and it is not an object"},
		{"something after a row", `{"input_length":1} xyzzy`, "t:1: is not valid JSON at byte 20"},
		{"a number over several lines", "\n{\n \"timestamp\": 1,\n \"input_length\":\n-1.5}", "t:5: input_length: -1.5: must be an integer"},
		{"a row over several lines", "\n{\n \"timestamp\": 1,\n \"output_length\": 2}", "t:2: the row has no prompt"},
		{"a word over several lines", "\n{\n \"timestamp\": 1,\n  \"input_length\": xyzzy}", "t:4: is not valid JSON at byte 19"},
		{"dots", "{\"input_length\": 1, ...}", "t:1: is not valid JSON at byte 21: dots; an example leaves something out"},
		{"a number in an array", "[{\"input_length\":1}, {\"input_length\": -1}]", "t:1: input_length: -1: must be above 0"},
		{"a word in an array on a line", "[{\"input_length\":1}, {\"input_length\": xyzzy}]", "t:1: is not valid JSON at byte 39"},
		{"a NUL byte between rows", "{\"input_length\":1}\n\x00", "t:2: is not valid JSON at byte 1: a NUL byte"},
		{"a key twice", `{"input_length":1,"input_length":2}`, "a key occurs twice"},
		{"a name and its alias", `{"input_length":1,"input_tokens":2}`, "input_length: is given twice"},
		{"invalid UTF-8", "{\"text_input\":\"\xff xyzzy\"}", "is not valid JSON at byte"},
		{"wrong type", `{"input_length":"xyzzy"}`, "input_length: a string: must be a number"},
		{"half a token", `{"input_length":1.5}`, "input_length: 1.5: must be an integer"},
		{"no tokens", `{"input_length":0}`, "input_length: 0: must be above 0"},
		{"absurd length", `{"input_length":9223372036854775807,"hash_ids":[1]}`, "not a number of tokens"},
		{"negative output", `{"input_length":1,"output_length":-1}`, "output_length: -1: must be 0 or more"},
		{"negative time", `{"input_length":1,"timestamp":-1}`, "timestamp: -1: must be a finite number of milliseconds"},
		{"infinite delay", `{"input_length":1,"delay":1e999}`, "delay: 1e999: is not a finite number"},
		{"negative id", `{"input_length":1,"hash_ids":[0,-1]}`, "hash_ids: element 1: is negative"},
		{"id of 65 bits", `{"input_length":1,"hash_ids":[18446744073709551616]}`, "hash_ids: element 0: is above 2^64-1"},
		{"id as a float", `{"input_length":1,"hash_ids":[1.0]}`, "hash_ids: element 0: is not an integer"},
		{"id as text", `{"input_length":1,"hash_ids":["xyzzy"]}`, "hash_ids: element 0: is not an integer"},
		{"nested ids", `{"input_length":1,"hash_ids":[[1]]}`, "hash_ids: element 0: is not an integer"},
		{"no prompt", `{"timestamp":1}`, "the row has no prompt; give exactly one of"},
		{"two prompts", `{"input_length":1,"text_input":"xyzzy"}`, "text_input: the row already has its prompt from input_length"},
		{"ids without a length", `{"text_input":"xyzzy","hash_ids":[1]}`, "hash_ids: needs input_length"},
		{"tools alone", `{"input_length":1,"tools":[{}]}`, "tools: needs messages"},
		{"no tools", `{"messages":[{"role":"user"}],"tools":[]}`, "tools: must not be empty"},
		{"no messages", `{"messages":[]}`, "messages: must not be empty"},
		{"a message without a role", `{"messages":[{"role":"user"},{"content":"xyzzy"}]}`, "messages: element 1 has no role"},
		{"a message that is text", `{"messages":["xyzzy"]}`, "messages: element 0 is not an object"},
		{"an empty payload", `{"payload":{}}`, "payload: must be an object with at least one member"},
		{"delta without messages", `{"input_length":1,"message_mode":"delta"}`, "message_mode: delta: needs messages"},
		{"unknown mode", `{"messages":[{"role":"user"}],"message_mode":"some xyzzy"}`, "message_mode: a string: must be history or delta"},
		{"delta with messages in extra", `{"messages":[{"role":"user"}],"message_mode":"delta","extra":{"messages":[]}}`, "extra: must not hold messages"},
		{"extra as text", `{"input_length":1,"extra":"xyzzy"}`, "extra: a string: must be an object"},
		{"half a span", `{"input_length":1,"otel":{"trace_id":"0a000000000000000000000000000001"}}`, "otel: must have a trace_id"},
		{"another format", `{"input_length":1,"type":"text"}`, `type: "text": is not mooncake_trace`},
		{
			"a session of two kinds", "{\"payload\":{\"a\":1},\"session_id\":\"s\"}\n{\"input_length\":1,\"session_id\":\"s\"}",
			"t:2: session_id: earlier rows of the session have payload, this one has input_length or text_input",
		},
		{
			"a session of two modes",
			"{\"messages\":[{\"role\":\"user\"}],\"message_mode\":\"delta\",\"session_id\":\"s\"}\n{\"messages\":[{\"role\":\"user\"}],\"session_id\":\"s\"}",
			"t:2: session_id: earlier rows of the session have messages with message_mode delta, this one has messages",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := read(test.in, ReaderOptions{Name: "t"})
			if _, ok := errors.AsType[*RowError](err); !ok {
				t.Fatalf("error %v, want a RowError", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q\nwant it to contain %q", err, test.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error repeats what could be prompt text: %q", err)
			}
		})
	}
}

func TestOddRowsAreReadAndCounted(t *testing.T) {
	const in = `{"input_length":512,"hash_ids":[1,2,3],"osl":7}

{"input_length":1024,"hash_ids":[1],"osl":0,"strict_priority":3,"otel":{"trace_id":"0a000000000000000000000000000001","span_id":"0b00000000000002","x":1}}
{"input_length":512,"hash_ids":[9],"branches":["a"]}`
	rows, r, err := read(in, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, of := BlockCount(513, 0), BlockCount(513, BlockSize); n != of {
		t.Errorf("%d blocks of the default size, want %d", n, of)
	}
	if got := rows[0].Blocks(512); len(got) != 1 || len(rows[0].HashIDs) != 3 {
		t.Errorf("blocks %v of ids %v, want the first", got, rows[0].HashIDs)
	}
	if string(rows[1].Foreign["strict_priority"]) != "3" || string(rows[2].Foreign["branches"]) != `["a"]` {
		t.Errorf("foreign fields: %v, %v", rows[1].Foreign, rows[2].Foreign)
	}
	want := []Notice{
		{NoticeTooManyIDs, 1, 1, "1 row lists more ids than the input length has blocks of 512 tokens; the first ones are used"},
		{NoticeUnknownKey, 2, 1, `unknown key "osl" in 2 rows has no effect; --map output_length=osl reads it`},
		{NoticeForeignField, 1, 3, "field strict_priority of another tool in 1 row has no effect on a replay"},
		{NoticePrefixOnly, 1, 3, "1 row lists fewer ids than the input length has blocks of 512 tokens; the rest of the prompt is private to the row"},
		{NoticeUnknownKey, 1, 3, `unknown key "otel.x" in 1 row has no effect`},
		{NoticeForeignField, 1, 4, "field branches of another tool in 1 row has no effect on a replay"},
	}
	if diff := cmp.Diff(want, r.Notices()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLayouts: the rows do not depend on their layout, and a notice describes it.
func TestLayouts(t *testing.T) {
	want, _, err := read("{\"timestamp\":0,\"messages\":[{\"role\":\"user\",\"content\":\"a // b\"}],\"extra\":{\"n\":1.50},\"branches\":[1,2]}\n{\"timestamp\":5,\"input_length\":600,\"hash_ids\":[0,1]}", ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const first = "{\n  \"timestamp\": 0,\n  \"messages\": [\n    {\"role\": \"user\", \"content\": \"a // b\"}\n  ],\n  \"extra\": { \"n\": 1.50 },\n \"branches\": [1,\n2]}"
	const second = "{\n\"timestamp\": 5,\n\"input_length\": 600,\n\"hash_ids\": [\n0,\n1\n]\n}"
	for _, test := range []struct {
		name, in string
		notices  []string
	}{
		{"over several lines", first + "\n" + second + "\n", []string{"2 rows spread over several lines: "}},
		{"an array", "[" + first + ",\n" + second + "]", []string{"2 rows in a JSON array: "}},
		{"comments", "// a trace\n" + first + " /* the\nsecond */ " + second, []string{"2 rows with comments, which are ignored: "}},
		{"commas", strings.Replace(first, "1.50 }", "1.50, }", 1) + ",\n" + strings.Replace(second, "1\n]", "1,\n],", 1), []string{"2 rows with extra commas, which are ignored: "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			rows, r, err := read(test.in, ReaderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, rows); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			texts := ""
			for _, n := range r.Notices() {
				if n.Code == NoticeLayout {
					texts += n.Text + "\n"
				}
			}
			for _, want := range append(test.notices, "spread over several lines: read as if on a line by itself") {
				if !strings.Contains(texts, want) {
					t.Errorf("notices %q, want one that contains %q", texts, want)
				}
			}
			if _, _, err := read(test.in, ReaderOptions{Strict: true}); err == nil {
				t.Error("is not a valid trace, but was read strictly")
			}
		})
	}
}

func TestStrict(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"unknown key", `{"input_length":1,"osl":1}`, `t:1: "osl": is an unknown key`},
		{"too many ids", `{"input_length":512,"hash_ids":[1,2]}`, "t:1: hash_ids: 2 ids: input_length 512 has room for 1 blocks"},
		{"two parents", "{\"input_length\":1024,\"hash_ids\":[1,2]}\n{\"input_length\":1024,\"hash_ids\":[3,2]}", "t:2: hash_ids: the row breaks V5"},
		{"two fills", "{\"input_length\":512,\"hash_ids\":[1]}\n{\"input_length\":5,\"hash_ids\":[1]}", "t:2: hash_ids: the row breaks V6"},
		{"an id twice", `{"input_length":1536,"hash_ids":[1,2,1]}`, "t:1: hash_ids: the row breaks V4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, _, err := read(test.in, ReaderOptions{Name: "t"}); err != nil {
				t.Errorf("not strict: %v", err)
			}
			_, _, err := read(test.in, ReaderOptions{Name: "t", Strict: true})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("strict: error %v\nwant it to contain %q", err, test.want)
			}
		})
	}
}

func TestWrongBlockSizeIsNamed(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"{\"input_length\":64,\"hash_ids\":[1,2,3,4]}\n{\"input_length\":32,\"hash_ids\":[5,6]}", "the block size is probably smaller"},
		{"{\"input_length\":4096,\"hash_ids\":[1,2]}\n{\"input_length\":1500,\"hash_ids\":[3]}", "the block size is probably larger, at least 2048"},
	} {
		_, r, err := read(test.in, ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n := r.Notices(); len(n) != 1 || !strings.Contains(n[0].Text, test.want) {
			t.Errorf("notices %v, want one that contains %q", n, test.want)
		}
	}
}

func TestManyUnknownKeysStayBounded(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		b.WriteString(`{"input_length":1,"key` + strings.Repeat("x", i) + "\":1}\n")
	}
	_, r, err := read(b.String(), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, rows := r.Notices(), int64(0)
	for _, notice := range n {
		rows += notice.Count
	}
	if len(n) > maxNames+1 || rows != 1000 {
		t.Errorf("%d notices for %d rows, want all 1,000 in %d", len(n), rows, maxNames+1)
	}
}

func TestLines(t *testing.T) {
	const row = `{"input_length":1}`
	for name, test := range map[string]struct {
		in         string
		rows, line int64
	}{
		"no newline at the end": {row + "\n" + row, 2, 2},
		"blank lines":           {"\n\n" + row + "\n   \n" + row + "\n\n", 2, 6},
		"carriage returns":      {row + "\r\n" + row + "\r\n", 2, 2},
		"byte order mark":       {"\xef\xbb\xbf" + row + "\n", 1, 1},
		"mark on a blank line":  {"\xef\xbb\xbf\n" + row, 1, 2},
		"nothing":               {"", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, source := range []io.Reader{strings.NewReader(test.in), iotest.OneByteReader(strings.NewReader(test.in))} {
				r := NewReader(source, ReaderOptions{})
				rows := readAll(t, r)
				if int64(len(rows)) != test.rows || r.Line() != test.line {
					t.Errorf("%d rows, line %d, want %d, %d", len(rows), r.Line(), test.rows, test.line)
				}
			}
		})
	}
}

func TestLongLines(t *testing.T) {
	long := `{"text_input":"` + strings.Repeat("a", 200_000) + `"}`
	rows, _, err := read(long+"\n"+long, ReaderOptions{MaxLine: len(long) + 1})
	if err != nil || len(rows) != 2 || len(rows[1].TextInput.V) != 200_000 {
		t.Fatalf("%d rows, error %v", len(rows), err)
	}
	r := NewReader(strings.NewReader(long+"\n"+long), ReaderOptions{Name: "t", MaxLine: 100_000})
	for range 2 { // the error stays
		_, err = r.Read()
		if err == nil || !strings.Contains(err.Error(), "t:1: the line is longer than 100000 bytes") {
			t.Errorf("error %v", err)
		}
	}
}

func TestDeepNesting(t *testing.T) {
	deep := `{"payload":{"a":` + strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000) + `}}`
	if _, _, err := read(deep, ReaderOptions{}); err == nil {
		t.Error("a million levels were read")
	}
}

func TestReadingGoesOnAfterABadRow(t *testing.T) {
	r := NewReader(strings.NewReader("{\"input_length\":1}\nbad\n{\"input_length\":3}\n"), ReaderOptions{})
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(); err == nil {
		t.Fatal("the bad row was read")
	}
	if row, err := r.Read(); err != nil || row.InputLength.V != 3 {
		t.Errorf("row %v, error %v", row, err)
	}
}

func TestABrokenSourceIsNotAnEnd(t *testing.T) {
	broken := errors.New("broken")
	for _, head := range []string{"", "{\"input_length\":1}\n", "{\"input_len"} {
		r := NewReader(io.MultiReader(strings.NewReader(head), iotest.ErrReader(broken)), ReaderOptions{Name: "t"})
		var err error
		for err == nil {
			_, err = r.Read()
		}
		if !errors.Is(err, broken) {
			t.Errorf("after %q: error %v, want the source's", head, err)
		}
	}
}

func BenchmarkReader(b *testing.B) {
	data := testtrace.PublicData(b, 0)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	rows := 0
	for b.Loop() {
		r := NewReader(bytes.NewReader(data), ReaderOptions{})
		for {
			if _, err := r.Read(); err != nil {
				break
			}
			rows++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows), "ns/row")
}
