// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// Format is a format of telemetry in files.
type Format string

// The formats.
const (
	// OTLP is one ExportTraceServiceRequest or ExportLogsServiceRequest in JSON on each line; lines of metrics and profiles are left
	// out.
	OTLP Format = "otlp"
	// Dynamo is one record of dynamo.request.trace.v1 on each line, by itself or as the "event" of an envelope.
	Dynamo Format = "dynamo"
)

// ParseFormat reads the name of a format.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case OTLP, Dynamo:
		return f, nil
	}
	return "", fmt.Errorf("format %.40q: want %s or %s", name, OTLP, Dynamo)
}

// Detect tells the format from the beginning of a file. ok is false when it is none of them.
func Detect(head []byte) (f Format, ok bool) {
	key := firstKey(head)
	switch {
	case slices.Contains([]string{keySpans, keyLogs, keyMetrics, keyProfiles}, key):
		return OTLP, true
	case bytes.Contains(head, []byte(`"`+dynamoSchema+`"`)):
		// A record's schema is its first member; an envelope has its time before it.
		return Dynamo, key == "schema" || key == "timestamp" || key == "event" || key == "event_type"
	}
	return "", false
}

// The keys of OTLP's requests, one of which each has.
const (
	keySpans    = "resourceSpans"
	keyLogs     = "resourceLogs"
	keyMetrics  = "resourceMetrics"
	keyProfiles = "resourceProfiles"
)

// firstKey returns the first key of an object, "" where there is none.
func firstKey(line []byte) string {
	dec := jsontext.NewDecoder(bytes.NewReader(bytes.TrimPrefix(line, utf8BOM)))
	if dec.PeekKind() != '{' {
		return ""
	}
	if _, err := dec.ReadToken(); err != nil || dec.PeekKind() != '"' {
		return ""
	}
	name, err := dec.ReadToken()
	if err != nil {
		return ""
	}
	return name.String()
}

var utf8BOM = []byte("\xef\xbb\xbf")

// Options says what to convert and how. Only Format must be given.
type Options struct {
	Format Format
	// Annotate is how the telemetry is read. Content has no effect, since no text is kept.
	Annotate annotate.Config
	// Compile is how the trace is made. BlockSize is that of Annotate.
	Compile capture.Options
	// MaxLine is the longest line, in bytes; 0 is [mooncake.DefaultMaxLine].
	MaxLine int
}
