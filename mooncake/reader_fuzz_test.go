// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// FuzzReader: the reader and encoding/json find the same row in a text. The row, written and read again, is the same. The result does not
// depend on how the bytes arrive. An error names a line of the text. Tests of jsonrows check that no part of a file is skipped.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}`,
		`{"created_time":1.5,"delay_ms":2e3,"input_tokens":3,"output_tokens":0,"session_id":"s\u00e9"}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"tools":[{}],"message_mode":"delta","extra":{"a":1}}`,
		`{"payload":{"a":{"b":[1,null,true]}},"request_id":"r","model":"m","priority":-1,"wait_for":["a"]}`,
		`{"text_input":"","otel":{"trace_id":"0a000000000000000000000000000001","span_id":"0b00000000000002"},"x":{}}`,
		`{"input_length":1024.0,"hash_ids":[18446744073709551615 , 1]}`,
		"\xef\xbb\xbf\r\n{}\n[1]\n",
		"{\"timestamp\": 3000, \"input_length\": 12000, \"output_length\": 1, \"hash_ids\": [0, 5]}\n{\"timestamp\": 2999.5, \"input_length\": 513, \"hash_ids\": [0, 5]}\n",
		"{\"session_id\":\"a\",\"input_length\":600,\"hash_ids\":[1,2]}\n{\"session_id\":\"a\",\"delay\":100,\"input_length\":1700,\"hash_ids\":[1,2,3,4]}",
		`{"input_length":-1}` + "\n" + `{"input_length":9007199254740993,"input_length":1}` + "\n" + `{"\u0069nput_length":7,"hash_ids":[null]}`,
		`{"input_length": 1030, "hash_ids": [0, 1, 2], "hash_ranges": [[0, 65]]}` + "\n" +
			`{"input_length": 1030, "hash_ids": [0, 3, 4], "hash_ranges": [[0, 40], [65, 25]], "replies": [[1, 600, 100], [1, 701, 1]]}`,
		`{"input_length": 600, "hash_ids": [7, 9], "hash_ranges": [[18446744073709551600, 16], [5, 22]]}` + "\n\n{}\n" +
			`{"input_length": 600, "hash_ids": [7, 8], "hash_ranges": [[18446744073709551600, 15], [4, 23]], "replies": [[1, 1, 1], [2, 2, 597]]}`,
		`{"input_length": 1099511627776, "hash_ids": [], "hash_ranges": [[0, 1099511627776]], "observed": {"finish_reason": "stop"}}`,
		`{"input_length": 1030, "hash_ids": [0, 1, 2], "hash_ranges": [[0, 65]]}` + "\n" +
			`{"input_length": 1100, "hash_ids": [0, 1, 3], "continues": 64, "hash_ranges": [[70, 5]], "replies": [[1, 1030, 9]]}` + "\n{}\n" +
			`{"input_length": 1200, "hash_ids": [0, 1, 4], "continues": 68, "hash_ranges": [[75, 7]], "replies": [[2, 1100, 9]]}`,
		"// x\n[\n {\n  \"input_length\": 5, /* y */\n  \"payload\": {\"a\":\n1,}\n },{\"text_input\": \"//\",}\n]", "{\"input_length\":1}{\"input_length\":2},\n...",
		"[\n0", "{\"extra\":{\n\"a\": 1},\n{\"input_length\":1}\n{\"hash_ids\":[1,\n{\"input_length\":2}\n", "[{\"text_input\":\"x\ny\"},\n[1]\n/* ",
		`{"input_length": 33, "hash_ids": [1], "hash_ranges": [[2, 1], [1, 1], [0, 1]]}` + "\n" + `{"input_length": 33, "hash_ids": [1], "hash_ranges": [[0, 3]]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		lines := 1 + int64(strings.Count(in, "\n"))
		r := NewReader(strings.NewReader(in), ReaderOptions{MaxLine: 1 << 20, FineBlockSize: 16})
		torn := NewReader(iotest.HalfReader(iotest.DataErrReader(strings.NewReader(in))), ReaderOptions{MaxLine: 1 << 20, FineBlockSize: 16})
		d := NewDigester(CheckOptions{FineBlockSize: 16})
		last := int64(0)
		for {
			row, err := r.Read()
			again, errAgain := torn.Read()
			if diff := cmp.Diff(row, again); diff != "" || (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() || r.Line() != torn.Line() {
				t.Fatalf("in pieces: errors %v and %v, rows (-whole +pieces):\n%s", err, errAgain, diff)
			}
			fault, refused := errors.AsType[*RowError](err)
			if err == nil || refused {
				if r.Line() < last || r.Line() > lines {
					t.Fatalf("line %d of %d lines, after line %d", r.Line(), lines, last)
				}
				last = r.Line()
			}
			if refused {
				if fault.Line < last || fault.Line > lines || len(fault.Error()) > 1000 {
					t.Fatalf("line %d: an error of line %d and %d bytes", last, fault.Line, len(fault.Error()))
				}
				continue
			}
			if err != nil {
				if _, unfinished := errors.AsType[*unfinishedError](err); !unfinished && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				break
			}
			line := string(r.src.Text)
			checkFields(t, row, line)
			if err := row.Validate(); err != nil {
				t.Fatalf("was read and is not valid: %v", err)
			}
			d.Add(row, r.Line())
			// A row that was read, written and read again must be the same.
			var b bytes.Buffer
			if err := NewWriter(&b).Write(row); err != nil {
				t.Fatalf("cannot be written: %v", err)
			}
			if again, err = ParseRow(b.Bytes()); err != nil {
				t.Fatalf("cannot be read again: %v\n%s", err, b.Bytes())
			}
			if diff := cmp.Diff(row, again); diff != "" {
				t.Fatalf("(-first +second):\n%s", diff)
			}
		}
		_, _, _ = r.Notices(), d.Digests(), d.Checker().Violations()
	})
}

// checkFields compares the common fields of a row with those that encoding/json finds.
func checkFields(t *testing.T, row *Row, line string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	var m map[string]any
	if !json.Valid([]byte(line)) || d.Decode(&m) != nil || m == nil {
		t.Fatalf("%q is not a JSON object, and was read", line)
	}
	either := func(a, b string) any {
		if m[a] != nil {
			return m[a]
		}
		return m[b]
	}
	number := func(name string, v any, set bool, got float64) {
		n, ok := v.(json.Number)
		if want, err := strconv.ParseFloat(string(n), 64); ok != set || ok && (err != nil || want != got) {
			t.Fatalf("%s is %v (%t), in the line it is %v", name, got, set, v)
		}
	}
	number("timestamp", either("timestamp", "created_time"), row.Timestamp.Set, row.Timestamp.V)
	number("delay", either("delay", "delay_ms"), row.Delay.Set, row.Delay.V)
	number("input_length", either("input_length", "input_tokens"), row.InputLength.Set, float64(row.InputLength.V))
	number("output_length", either("output_length", "output_tokens"), row.OutputLength.Set, float64(row.OutputLength.V))
	if s, _ := m["session_id"].(string); s != row.SessionID {
		t.Fatalf("session_id is %q, in the line it is %v", row.SessionID, m["session_id"])
	}
	ids, isList := m["hash_ids"].([]any)
	if isList != (row.HashIDs != nil) || len(ids) != len(row.HashIDs) {
		t.Fatalf("hash_ids are %v, in the line they are %v", row.HashIDs, m["hash_ids"])
	}
	for i, id := range ids {
		n, _ := id.(json.Number)
		if u, err := strconv.ParseUint(string(n), 10, 64); err == nil && u != row.HashIDs[i] {
			t.Fatalf("hash id %d is %d, in the line it is %s", i, row.HashIDs[i], n)
		}
	}
}

// FuzzPacked: unpacking returns what was packed. If packed bytes were cut or changed, it returns the same or an error, at the end of the
// data at the latest. It never returns more than the limit, for any input.
func FuzzPacked(f *testing.F) {
	rows := "{\"timestamp\": 0, \"input_length\": 700, \"output_length\": 9, \"hash_ids\": [0, 1]}\n{\"timestamp\": 3000, \"input_length\": 40}\n"
	f.Add(rows, uint16(0xffff), uint16(0), byte(0))
	f.Add(rows+rows, uint16(40), uint16(0), byte(0))
	f.Add(rows, uint16(0xffff), uint16(30), byte(4))
	f.Add("\x1f\x8b\x08 neither", uint16(3), uint16(2), byte(1))
	f.Fuzz(func(t *testing.T, in string, cut, flip uint16, with byte) {
		if len(in) > 1<<16 {
			return
		}
		unpacked := func(b []byte) (string, error) {
			var trace Trace
			plain, err := trace.unpack(bytes.NewReader(b), OpenOptions{MaxDecompressed: 1 << 20})
			if err != nil {
				return "", errors.Join(err, trace.Close())
			}
			out, err := io.ReadAll(plain)
			return string(out), errors.Join(err, trace.Close())
		}
		// Anything at all: no panic, and no more than the limit.
		if out, _ := unpacked([]byte(in)); len(out) > max(1<<20, len(in)) {
			t.Fatalf("%d bytes became %d", len(in), len(out))
		}
		for suffix, packed := range map[string][]byte{".gz": gzipped(t, in), ".zst": zstded(t, in)} {
			if got, err := unpacked(packed); err != nil || got != in {
				t.Fatalf("%s: %q and %v of %q", suffix, got, err, in)
			}
			b := slices.Clone(packed[:min(int(cut), len(packed))])
			if len(b) == 0 {
				continue
			}
			at := int(flip) % len(b)
			b[at] ^= with
			if bytes.Equal(b, packed) || at < 6 {
				continue // unchanged, or no longer recognised as compressed
			}
			if got, err := unpacked(b); err == nil && got != in {
				t.Errorf("%s: %d of %d bytes, that at %d changed by %x, became %q without an error, was %q", suffix, len(b), len(packed), at, with, got, in)
			}
		}
	})
}

// FuzzMeta: a sidecar that was read, written and read again is the same.
func FuzzMeta(f *testing.F) {
	for _, seed := range []string{
		`{"schema":1}`, `{"schema":2}`, `{"schema":1,"time_base":"2026-01-02T03:04:05.678901234Z","identity":{"text":3,"engine":1},"rows":4,"block_size":512}`,
		`{"schema":1,"session_mode":"delta","time_unit":"us","hash_domains":["0a1b2c3d"],"hash_keys":["00000001"],"dropped":[{"what":"rows","reason":"no_usage","count":4}]}`,
		`{"schema":1,"transformations":[{"name":"rename","parameters":{"seed":1e300,"list":[null,{"a":"b"}]},"effect":"ids renamed"}],"unheard of":[]}`,
		`{"schema":1,"digests":{"seq_digest":"00"}}`, "\xef\xbb\xbf{}", `{"schema":1,"time_base":"12026-01-02T03:04:05Z"}`, `{"schema":1,"rows":-1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := ReadMeta(bytes.NewReader(in))
		if err != nil {
			if m != nil || len(err.Error()) > 1000 {
				t.Fatalf("a sidecar %v with an error of %d bytes", m, len(err.Error()))
			}
			return
		}
		var b bytes.Buffer
		if err := m.Write(&b); err != nil {
			t.Fatalf("was read and cannot be written: %v", err)
		}
		again, err := ReadMeta(&b)
		if err != nil {
			t.Fatalf("cannot be read again: %v", err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
	})
}
