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
	"github.com/moonloop/moonloop/mooncake"
)

// Format is a format of files.
type Format string

// spec describes a format of files whose records become rows one by one.
type spec struct {
	Format
	about string // description for people; one line
	table bool   // CSV, whose first record names the columns; else JSON objects in any layout
	cells bool   // for a table: a file whose records are objects has another format
	// fields are columns or members that each record has. A file has the first format all of whose fields are in its beginning; a format
	// without fields must be named.
	fields   []string
	header   string // the only member of an object with which the file may begin
	block    int    // block size, in tokens; 0 if each record states its own, or if there are no ids
	blocks   bool   // rows have block ids
	global   bool   // equal ids in two files are the same block
	dates    bool   // times are instants, not seconds from some zero
	models   bool   // requests name their models
	fails    bool   // failed requests are marked
	text     bool   // requests contain their prompts
	spans    bool   // the prompts are in attributes of spans
	verbatim bool   // there are no token counts, so that prompts can only be kept
	delta    bool   // rows of a session contain only what is new
	// decode passes the requests of a record to the decoder.
	decode func(*decoder, *record)
	// end, unless nil, passes the decoder the requests of the whole file, after the file's last record.
	end func(*decoder) *mooncake.RowError
}

// specs are the formats, in the order of detection.
var specs = []*spec{
	&azure, &burstGPT, &bailian, &weka, &satf, &vidur, &splitwise, &blis, &kvcacheSimulator, &lmcache, &vcr, &baseten, &tracelab,
	&guidellm, &aiperfProfile, &inferencePerf, &vllmBench, &sagemaker, &litellm, &gateway, &langfuse, &langfuseCSV, &evalscope, &flatSpans,
	&serveGen, &mooncakeCSV, &vllm, &aiperf, &aiperfDAG, &payloads,
}

// The formats that have names here; [Formats] has all.
const (
	// OTLP is telemetry: one ExportTraceServiceRequest or ExportLogsServiceRequest in JSON on each line; lines of metrics and profiles
	// are left out.
	OTLP Format = "otlp"
	// Dynamo is telemetry: one record of dynamo.request.trace.v1 on each line, alone or as the "event" of an envelope.
	Dynamo Format = "dynamo"
	// Bailian is JSON lines of Alibaba's qwen-bailian-usagetraces-anon: seconds, blocks of 16 tokens, chats with parents.
	Bailian Format = "bailian"
	// BurstGPT is the CSV of HPMLL/BurstGPT, with or without the columns Session ID and Elapsed time: seconds from a day 0.
	BurstGPT Format = "burstgpt"
	// Payloads are request bodies, which can only be kept: one on each line, or AIPerf's inputs.json.
	Payloads Format = "payloads"
	// Azure is the CSV of AzurePublicDataset's LLM inference traces of 2023 and 2024, and of the multimodal one of 2025: dates with
	// seven fractional digits, or with six and a UTC offset.
	Azure Format = "azure"
)

// Formats returns the names of all formats: OTLP, Dynamo and Mooncake first, then the others in alphabetical order.
func Formats() []Format {
	list := []Format{OTLP, Dynamo, Mooncake}
	for _, s := range specs {
		list = append(list, s.Format)
	}
	slices.Sort(list[3:])
	return list
}

// About describes in one line what files of the format contain.
func (f Format) About() string {
	switch s := f.spec(); {
	case s != nil:
		return s.about
	case f == OTLP:
		return "JSON lines of the Collector's file exporter, traces and logs, in one file or many"
	case f == Dynamo:
		return "JSON lines of Dynamo's request trace"
	case f == Mooncake:
		return "a Mooncake trace, to be written for another tool (--to)"
	}
	return ""
}

// Prompt describes what files of the format contain of prompts.
func (f Format) Prompt() string {
	switch s := f.spec(); {
	case f == Mooncake:
		return "whatever it has"
	case s == nil, s.text && s.spans:
		return "text, which is hashed"
	case s.verbatim:
		return "text, which is kept"
	case s.text:
		return "text, which is hashed or kept"
	case s.block > 0:
		return fmt.Sprintf("ids of blocks of %d tokens", s.block)
	case s.blocks:
		return "ids of blocks"
	}
	return "lengths"
}

func (f Format) spec() *spec {
	if i := slices.IndexFunc(specs, func(s *spec) bool { return s.Format == f }); i >= 0 {
		return specs[i]
	}
	return nil
}

// Detected reports whether [Detect] recognises the format's files.
func (f Format) Detected() bool {
	s := f.spec()
	return s == nil || len(s.fields) > 0
}

// Telemetry reports whether files of the format are telemetry, and not a public trace.
//
// Formats with prompts count as telemetry, too: their requests are processed as spans, unless the prompts are kept.
func (f Format) Telemetry() bool {
	s := f.spec()
	return f == OTLP || f == Dynamo || s != nil && s.text
}

// Keeps reports whether the format has prompts that can be kept, see [PromptsKeep].
func (f Format) Keeps() bool {
	s := f.spec()
	return s != nil && s.text && !s.spans
}

// ParseFormat reads the name of a format.
func ParseFormat(name string) (Format, error) {
	if f := Format(name); f == Mooncake || f.Telemetry() || f.spec() != nil {
		return f, nil
	}
	var names []string
	for _, f := range Formats() {
		names = append(names, string(f))
	}
	return "", fmt.Errorf("format %.40q: want %s", name, strings.Join(names, ", "))
}

// ErrUnknownFormat is the error for a file of an unknown format.
var ErrUnknownFormat = errors.New("its format is not known")

// Detect detects the format of a file from its first few KiB. The name is used in errors only. The error wraps [ErrUnknownFormat], unless
// the file is empty or has nothing but white space.
func Detect(name string, head []byte) (Format, error) {
	empty := "is empty"
	if len(head) > 0 {
		empty = "has nothing but white space"
	}
	head = bytes.TrimLeft(bytes.TrimPrefix(head, utf8BOM), " \t\r\n")
	object := firstObject(head)
	switch first := firstKey(object); {
	case first == keySpans, first == keyLogs, first == keyMetrics, first == keyProfiles:
		return OTLP, nil
	case bytes.Contains(object, []byte(`"`+dynamoSchema+`"`)) && slices.Contains([]string{"schema", "timestamp", "event", "event_type"}, first):
		return Dynamo, nil // a bare record begins with its schema; an envelope may begin with a timestamp or the event
	}
	line, _, _ := bytes.Cut(head, newline)
	columns, members := columnNames(line), map[string]bool{}
	for key := range keys(object) {
		members[key] = true
	}
	for _, s := range specs {
		has := func(name string) bool { return members[name] }
		if s.table {
			has = func(name string) bool { return columns[columnName(name)] }
		}
		if s.header != "" && len(members) == 1 && members[s.header] {
			return s.Format, nil
		}
		if len(s.fields) > 0 && !slices.ContainsFunc(s.fields, func(name string) bool { return !has(name) }) {
			return s.Format, nil
		}
	}
	for _, s := range specs { // tables whose records come as objects, as those of a Parquet file do
		if s.table && !s.cells && !slices.ContainsFunc(s.fields, func(name string) bool { return !members[name] }) {
			return s.Format, nil
		}
	}
	switch {
	case members["input_length"] || members["hash_ids"]:
		return Mooncake, nil
	case len(head) == 0:
		return "", fmt.Errorf("%s %s: what should fill it wrote nothing, or has not begun; name a file that has requests", name, empty)
	}
	return "", fmt.Errorf("%s: %w", name, ErrUnknownFormat)
}

// keys yields the keys of the JSON object at the beginning of a file or a line, as far as the object is complete.
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

// firstObject returns the JSON object at the beginning of a file, on one line or several, as far as it is complete.
func firstObject(head []byte) []byte {
	r := jsonrows.NewReader(bufio.NewReader(bytes.NewReader(head)), len(head), false)
	if err := r.Next(); err == nil && valid(r.Text) != nil {
		_, _ = r.Extend() // a part of it is enough for detection
	}
	return r.Text
}

// firstKey returns the first key of an object, "" if there is none.
func firstKey(line []byte) string {
	for name := range keys(line) {
		return name
	}
	return ""
}
