// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"
)

// manyRows returns rows that hardly compress, so that half of the compressed file still has the first rows.
func manyRows() string {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "{\"timestamp\":%d,\"input_length\":6,\"output_length\":1,\"request_id\":\"%x\"}\n", i, sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
	}
	return b.String()
}

func gzipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstded(t *testing.T, s string) string {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll([]byte(s), nil))
}

// bzipped returns two compressed rows without a timestamp; the standard library only reads bzip2.
func bzipped(t *testing.T) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString("QlpoOTFBWSZTWaUPXj0AABtbgAAQEAR2EAAKpuVOCiAAUKAAAMmQJVPUYmnqZAHo0c7Gi4s6rWUKaUySK3E/YsQOJ+oIMakhmcuOWLvgXckU4UJClD149A==")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func utf16le(s string) string {
	b := []byte("\xff\xfe")
	for _, u := range utf16.Encode([]rune(s)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

const rowOfSix = `{"timestamp":0,"input_length":6,"output_length":1}` + "\n"

// TestMalformedFiles: the file as a whole is wrong.
func TestMalformedFiles(t *testing.T) {
	many := manyRows()
	gz, zst := gzipped(t, many), zstded(t, many)
	flipped := []byte(gz)
	flipped[len(flipped)/2] ^= 0x55
	var cases []malformed
	for _, c := range []struct{ name, text string }{
		{"empty: refused", ""},
		{"only blank lines: refused", "\n \n\r\n\t\n"},
		{"blank lines after the first look: refused", strings.Repeat("\n", 10_000)},
		{"a JSON array: accepted with a notice", `[{"timestamp":0,"input_length":6}]`},
		{"indented JSON: accepted with a notice", "{\n  \"timestamp\": 0,\n  \"input_length\": 6\n}\n"},
		{"CSV: accepted with a notice", "timestamp,input_length\n0,6\n"},
		{"CSV with a cell too few: refused", "timestamp,input_length\n0\n"},
		{"CSV with an invalid number: refused", "timestamp,input_length\n0,six\n"},
		{"CSV of something else: refused", "arrived,words\n0,6\n"},
		{"an HTML page: refused", "<!DOCTYPE html>\n<html><body>Sign in</body></html>\n"},
		{"prose: refused", "hello, world\n"},
		{"UTF-16 with a mark: refused", utf16le(rowOfSix)},
		{"UTF-16 without a mark: refused", utf16le(rowOfSix)[2:]},
		{"big-endian UTF-16 without a mark: refused", "\x00{\x00\"\x00t\x00\""},
		{"a UTF-8 mark: accepted", "\xef\xbb\xbf" + rowOfSix},
		{"a JPEG: refused", "\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x01"},
		{"a PNG: refused", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"},
		{"an executable: refused", "\x7fELF\x02\x01\x01\x00\x00\x00"},
		{"binary junk: refused", "\x93\x01\xfe\xca\x17\x00\x80\n\xf0"},
		{"a zip archive: refused", "PK\x03\x04\x14\x00"},
		{"xz: refused", "\xfd7zXZ\x00\x00\x04"},
		{"Parquet: refused", "PAR1\x15\x04\x15"},
		{"gzip within gzip: refused", gzipped(t, gz)},
		{"gzip of nothing: refused", gzipped(t, "")},
		{"gzip under a plain name: accepted", gzipped(t, rowOfSix)},
		{"zstd under a plain name: accepted", zstded(t, rowOfSix)},
		{"cut gzip: refused", gz[:len(gz)/2]},
		{"gzip without its sum: refused", gz[:len(gz)-8]},
		{"gzip with a flipped bit: refused", string(flipped)},
		{"gzip, its first bytes only: refused", "\x1f\x8b\x08\x00"},
		{"junk after gzip: refused", gzipped(t, rowOfSix) + "xyzzy xyzzy xyzzy"},
		{"cut zstd: refused", zst[:len(zst)/2]},
		{"zstd, its first bytes only: refused", zst[:5]},
		{"cut bzip2: refused", bzipped(t)[:60]},
		{"bzip2, damaged: refused", "BZh9" + strings.Repeat("\x17", 100)},
		{"a bomb of one line: refused", gzipped(t, `{"text_input":"`+strings.Repeat("xyzzy", 14<<20))},
		{"a bomb of blank lines: refused", gzipped(t, strings.Repeat("\n", 8<<20))},
	} {
		cases = append(cases, malformed{name: c.name, files: map[string]string{"trace.jsonl": c.text}})
	}
	checkMalformed(t, "files", append(
		cases,
		malformed{
			name: "plain text under the name of gzip: accepted", files: map[string]string{"trace.jsonl.gz": rowOfSix},
			commands: []string{"BOTH trace.jsonl.gz"},
		},
		malformed{name: "no such file: refused", commands: []string{"BOTH missing.jsonl"}},
		malformed{name: "no such folder: refused", commands: []string{"BOTH missing/trace.jsonl"}},
		malformed{
			name: "a file instead of a folder: refused", files: map[string]string{"trace.jsonl": rowOfSix},
			commands: []string{"BOTH trace.jsonl/trace.jsonl"},
		},
		malformed{name: "a directory: refused", commands: []string{"BOTH ."}},
		malformed{name: "the null device: refused", commands: []string{"BOTH /dev/null"}},
		malformed{name: "the zero device: refused", commands: []string{"BOTH /dev/zero"}},
		malformed{name: "empty standard input: refused", commands: []string{"BOTH -"}},
		malformed{name: "an empty name: refused", commands: []string{"BOTH " + "␀"}},
		malformed{name: "a name that is too long: refused", commands: []string{"BOTH " + strings.Repeat("x", 300)}},
		malformed{
			name: "a file without permission: refused", files: map[string]string{"trace.jsonl": rowOfSix},
			arrange: func(t *testing.T) {
				t.Helper()
				if os.Geteuid() == 0 {
					t.Skip("nothing is forbidden to root")
				}
				if err := os.Chmod("trace.jsonl", 0); err != nil {
					t.Fatal(err)
				}
			},
		},
		malformed{
			name:     "a link that leads to itself: refused",
			commands: []string{"BOTH loop.jsonl"},
			arrange: func(t *testing.T) {
				t.Helper()
				if err := os.Symlink("loop.jsonl", "loop.jsonl"); err != nil {
					t.Fatal(err)
				}
			},
		},
		malformed{
			name: "a pipe that nobody writes to: an interrupt ends the wait",
			arrange: func(t *testing.T) {
				t.Helper()
				if err := syscall.Mkfifo("trace.jsonl", 0o600); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { // releases those that still wait
					if f, err := os.OpenFile("trace.jsonl", os.O_RDWR, 0); err == nil {
						time.Sleep(50 * time.Millisecond)
						_ = f.Close()
					}
				})
			},
			ctx: untilItOpens,
		},
	))
}
