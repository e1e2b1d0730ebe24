// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/internal/jsonrows"
)

// Format is a format of files.
type Format string

// The formats.
const (
	// OTLP is telemetry: one ExportTraceServiceRequest or ExportLogsServiceRequest in JSON on each line; lines of metrics and profiles
	// are left out.
	OTLP Format = "otlp"
	// Dynamo is telemetry: one record of dynamo.request.trace.v1 on each line, by itself or as the "event" of an envelope.
	Dynamo Format = "dynamo"
	// Bailian is JSON lines of Alibaba's qwen-bailian-usagetraces-anon: seconds, blocks of 16 tokens, chats with parents.
	Bailian Format = "bailian"
	// BurstGPT is the CSV of HPMLL/BurstGPT, with or without the columns Session ID and Elapsed time: seconds from a day 0.
	BurstGPT Format = "burstgpt"
	// Azure is the CSV of AzurePublicDataset's LLM inference traces of 2023 and 2024, and the multimodal one of 2025: dates with
	// a fraction of seven digits, or six and an offset.
	Azure Format = "azure"
)

// Telemetry reports whether files of the format are telemetry, and not a public trace.
func (f Format) Telemetry() bool { return f == OTLP || f == Dynamo }

// ParseFormat reads the name of a format.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case OTLP, Dynamo, Bailian, BurstGPT, Azure:
		return f, nil
	}
	return "", fmt.Errorf("format %.40q: want %s, %s, %s, %s or %s", name, OTLP, Dynamo, Bailian, BurstGPT, Azure)
}

// ErrUnknownFormat is a file of none of the formats.
var ErrUnknownFormat = errors.New("its format is not known")

// Detect tells the format of a file from its beginning, some KiB of it. The name is for the error, which is [ErrUnknownFormat], or says
// what the file is instead.
func Detect(name string, head []byte) (Format, error) {
	empty := len(head) == 0
	head = bytes.TrimLeft(bytes.TrimPrefix(head, utf8BOM), " \t\r\n")
	object := firstObject(head)
	switch first := firstKey(object); {
	case first == keySpans, first == keyLogs, first == keyMetrics, first == keyProfiles:
		return OTLP, nil
	case bytes.Contains(object, []byte(`"`+dynamoSchema+`"`)) && slices.Contains([]string{"schema", "timestamp", "event", "event_type"}, first):
		return Dynamo, nil // a record's schema is its first member; an envelope has its time before it
	}
	has := map[string]bool{}
	for key := range keys(object) {
		has[key] = true
	}
	line, _, _ := bytes.Cut(head, []byte{'\n'})
	switch columns := columnNames(line); {
	case has["chat_id"] && has["parent_chat_id"]:
		return Bailian, nil
	case columns["contexttokens"] && columns["generatedtokens"]:
		return Azure, nil
	case columns["request tokens"] && columns["response tokens"]:
		return BurstGPT, nil
	case has["input_length"] || has["hash_ids"]:
		return "", fmt.Errorf("%s is a Mooncake trace already: replay and inspect read it as it is", name)
	case empty:
		return "", fmt.Errorf("%s is empty: name another file", name)
	}
	return "", fmt.Errorf("%s: %w", name, ErrUnknownFormat)
}

// maxHeader is the length of the longest line of column names, in bytes.
const maxHeader = 4096

// columnName is a column's name as it is compared.
func columnName(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// columnNames are the names in the first line of a CSV file; none where it is no such line.
func columnNames(line []byte) map[string]bool {
	names := map[string]bool{}
	if len(line) > maxHeader {
		return names
	}
	fields, _ := splitCSV(string(bytes.TrimRight(line, "\r")), nil)
	for _, name := range fields {
		names[columnName(name)] = true
	}
	return names
}

// keys yields the keys of the JSON object that a file or a line begins with, as far as the object is there.
func keys(head []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		dec := jsontext.NewDecoder(bytes.NewReader(head))
		if dec.PeekKind() != '{' {
			return
		}
		_, err := dec.ReadToken()
		for err == nil && dec.PeekKind() == '"' {
			var name jsontext.Token
			if name, err = dec.ReadToken(); err != nil || !yield(name.String()) {
				return
			}
			err = dec.SkipValue()
		}
	}
}

// firstObject returns the JSON object that a file begins with, on a line by itself or not, as far as it is there.
func firstObject(head []byte) []byte {
	r := jsonrows.NewReader(bufio.NewReader(bytes.NewReader(head)), len(head), false)
	if err := r.Next(); err == nil && valid(r.Text) != nil {
		_, _ = r.Extend() // what is there is what it can be told by
	}
	return r.Text
}

// firstKey returns the first key of an object, "" where there is none.
func firstKey(line []byte) string {
	for name := range keys(line) {
		return name
	}
	return ""
}
