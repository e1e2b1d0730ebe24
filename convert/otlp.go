// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/mooncake"
)

// Each OTLP request has one of these keys.
const (
	keySpans    = "resourceSpans"
	keyLogs     = "resourceLogs"
	keyMetrics  = "resourceMetrics"
	keyProfiles = "resourceProfiles"
)

// otlpLine reads a batch of spans or of log records.
func (t *telemetry) otlpLine(line []byte) error {
	if fault := valid(line); fault != nil {
		return fault
	}
	switch firstKey(line) {
	case keySpans:
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
		if err != nil {
			return &mooncake.RowError{Field: keySpans, Rule: "is not an OTLP request of spans"} // err may quote its content
		}
		return t.traces(td)
	case keyLogs:
		ld, err := new(plog.JSONUnmarshaler).UnmarshalLogs(line)
		if err != nil {
			return &mooncake.RowError{Field: keyLogs, Rule: "is not an OTLP request of log records"}
		}
		return t.logs(ld)
	case keyMetrics:
		t.lost.add("lines", "metrics", 1)
	case keyProfiles:
		t.lost.add("lines", "profiles", 1)
	case "":
		t.lost.add("lines", "empty", 1)
	default:
		return &mooncake.RowError{
			Rule:   "the line is not an OTLP request: " + keySpans + " or " + keyLogs + " must be its first key",
			Advice: "want what the file exporter of the Collector writes in its format json",
		}
	}
	return nil
}

// valid returns an error if a line is not exactly one JSON object.
func valid(line []byte) *mooncake.RowError {
	dec := jsontext.NewDecoder(bytes.NewReader(line), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	switch err := dec.SkipValue(); {
	case err != nil:
		return jsonFault(err)
	case line[0] != '{':
		return noObject()
	case len(bytes.TrimSpace(line[dec.InputOffset():])) > 0:
		return &mooncake.RowError{Rule: "there is something after the line's object", Advice: "write one object on each line", Err: errNoJSON}
	}
	return nil
}
