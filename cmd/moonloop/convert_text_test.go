// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"
)

// encoded returns a text in UTF-16.
func encoded(text string, order binary.AppendByteOrder) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// TestConvertSaysWhatAFileIs: if a file is not text, convert says what it is, as inspect does, whether the format is given or detected, and
// also if the file is not the first input. It writes nothing.
func TestConvertSaysWhatAFileIs(t *testing.T) {
	folder := t.TempDir()
	good := filepath.Join(folder, "good.csv")
	write := func(name, content string) {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(good, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
	for name, tc := range map[string]struct{ content, want string }{
		"page":      {"\n<!DOCTYPE html><html><body>sign in</body></html>", "is a page of HTML or XML: the address may need a login"},
		"image":     {"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "is not text but a PNG image: name another file"},
		"marked":    {"\ufeff", "is not text but UTF-16: convert it to UTF-8"},
		"unmarked":  {"", "is not text but UTF-16 without a byte order mark: convert it to UTF-8"},
		"archive":   {"PK\x03\x04\x14\x00", "is not text but a zip archive: unpack it"},
		"table":     {"PAR1\x15\x04", "the Parquet file is damaged or cut off"},
		"protobufs": {"\x00\x00\x01\x2c\x0a\x90\x02", "is not text but binary data: name another file"},
	} {
		switch name {
		case "marked":
			tc.content = encoded(tc.content+`{"resourceSpans":[]}`, binary.LittleEndian)
		case "unmarked":
			tc.content = encoded("TIMESTAMP,ContextTokens,GeneratedTokens\n", binary.BigEndian)
		}
		file := filepath.Join(folder, name)
		write(file, tc.content)
		for _, args := range [][]string{{file}, {"--from", "otlp", file}, {"--from", "azure", good, file}, {"--from", "bailian", file}} {
			out := filepath.Join(t.TempDir(), "out.jsonl")
			var stdout, stderr strings.Builder
			status := run(t.Context(), append([]string{"convert", "--out", out}, args...), strings.NewReader(""), &stdout, &stderr)
			if status != exitUsage || !strings.Contains(strings.ReplaceAll(stderr.String(), name+": the Parquet", name+" the Parquet"), name+" "+tc.want) {
				t.Errorf("%s %q: exit status %d, %s; want %d and %q", name, args[:len(args)-1], status, &stderr, exitUsage, tc.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("%s: something was written", name)
			}
		}
	}
}

// TestTimestampsOfText: dates with a time are read; for other texts, or numbers in quotes, the error says what is expected.
func TestTimestampsOfText(t *testing.T) {
	for stamp, want := range map[string]string{
		`"2024-01-01T00:00:00Z"`:      "",
		`"2024-01-01 00:00:00+02:00"`: "",
		`"123.5"`:                     "timestamp: a string: must be a number, or a date with a time; write it without quotes",
		`"yesterday"`:                 "timestamp: a string: must be a number, or a date with a time; write it as 2026-11-21T15:04:05.123Z",
		`""`:                          "timestamp: a string: must be a number, or a date with a time",
	} {
		_, _, err := command(t, newInspectCommand(), `{"timestamp": `+stamp+`, "input_length": 5, "output_length": 1, "hash_ids": [0]}`, "-")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", stamp, err, want)
		}
	}
	_, _, err := command(t, newInspectCommand(), `{"timestamp": 1, "input_length": "many", "output_length": 1}`, "-")
	if err == nil || !strings.Contains(err.Error(), "input_length: a string: must be a number; correct the row, or leave the key out") {
		t.Errorf("%v", err)
	}
}
