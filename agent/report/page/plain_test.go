// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// plainLines have every member that a page reads, and others.
var plainLines = []string{
	strings.TrimSpace(line(3, 1000.25, 20.5, 10.125, 4)),
	`{"timestamp": 12, "input_length": 512, "output_length": 1, "hash_ids": [1, 18446744073709551615], "hash_ranges": [[1,2],[7,1]], "session_id": "s 1", "model": "m-1", "class": "batch", "priority": -3, ` +
		`"observed": {"cached_tokens": 0, "ttft_ms": 12.5, "finish_reason": "stop"}, "result": {"outcome":"failed","reason":"http","message":"500 it fell","row":7,"turn":2,"request_model":"m-2",` +
		`"intended":0,"dispatched":0.001,"admitted":0.5,"start":10.05,"wire":123456789012.345,"wire_unknown":true,"first_event":20,"first":21,"last":30.999,"end":31,"lateness_ms":-0.25,"excused_ms":0.1,` +
		`"ttft_ms":1,"gaps_ms":[0.001,2,33.5],"chunk_tokens":[1,2],"whole":false,"embedding":true,"prompt_tokens_sent":500,"x":null,"phases_ms":{"blocked":0.1,"sending":1},"usage":{"prompt_tokens":9,"completion_tokens":2,"reasoning_tokens":1},"attempts":3,"resent":1,` +
		`"predicted_cached_tokens":17,"replies":["","late"],"trace_id":"0123456789abcdef0123456789abcdef","deep":[{"a":[[]],"b":{}}]}}`,
	`{"result": {"outcome":"skipped","reason":"session_failed","row":0,"turn":0,"gaps_ms":[],"usage":{}}}`,
	`{}`,
}

var sameRecord = cmp.Options{cmpopts.EquateEmpty()}

// comparePlain checks that p reads a line as the decoder of any JSON does, or leaves it to that decoder. It reports whether p has read it.
func comparePlain(t *testing.T, p *plain, text string) (taken bool) {
	t.Helper()
	got, taken := p.read([]byte(text))
	if !taken {
		return false
	}
	want, err := parseRecord([]byte(text))
	if err != nil {
		t.Errorf("%s: taken, but %v", text, err)
	} else if d := cmp.Diff(want, got, sameRecord); d != "" {
		t.Errorf("%s:\n%s", text, d)
	}
	return true
}

// puts are inserted into lines between two bytes, and in place of a byte.
var puts = []string{
	"", "0", "1", "-", ".", "e", "E5", " ", "  ", ",", ":", `"`, "{", "}", "[", "]", "n", "null", `\`, "\n", "\x00", "é", "\xff", "9999999999999999",
}

// TestPlainIsJSON: the reader of plain records says what the decoder of any JSON says, or leaves the line to it.
func TestPlainIsJSON(t *testing.T) {
	p := new(plain) // one for all, as when a file is read
	for _, text := range plainLines {
		if !comparePlain(t, p, text) {
			t.Errorf("not taken: %s", text)
		}
		taken := 0
		for i := range text {
			for _, put := range puts {
				for _, changed := range []string{text[:i] + put + text[i:], text[:i] + put + text[i+1:]} {
					if comparePlain(t, p, changed) {
						taken++
					}
				}
			}
			comparePlain(t, p, text[:i])
		}
		if taken < len(text)/2 && len(text) > 100 {
			t.Errorf("%d changed lines of %d bytes were taken: the test shows little", taken, len(text))
		}
	}
	for _, text := range []string{
		`{"result": {"outcome":"served","row":1,"start":1,"start":2,"gaps_ms":[1,2],"gaps_ms":[3],"usage":{"prompt_tokens":1},"usage":{"cached_tokens":2}}, "result": {"row":2}}`, // each name twice
		`{"result": {"outcome":"served","first":1e3,"row":1}}`,
		`{"result": {"outcome":"\u0073erved","row":1}}`,
		`{"result": {"outcome":"served","row":-1,"first":00.5}}`,
		`{"result": {"outcome":"served","first":0.1234567890123456789}}`,
		`{"result": {"outcome":"served","first":-0}}`,
		`{"x": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `, "result": {"outcome":"served"}}`,
		``, `null`, `[]`, `{"result": null}`, `{"result": {"outcome":"served","usage":null,"gaps_ms":null}}`,
	} {
		comparePlain(t, p, text)
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte(plainLines[0])
	b.ReportAllocs()
	p := new(plain)
	for b.Loop() {
		if _, ok := p.read(text); !ok {
			b.Fatal("not taken")
		}
	}
}
