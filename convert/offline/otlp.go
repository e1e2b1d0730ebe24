// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/mooncake"
)

// otlpLine reads a batch of spans or of log records.
func (c *converter) otlpLine(line []byte) error {
	if fault := valid(line); fault != nil {
		return fault
	}
	switch firstKey(line) {
	case keySpans:
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
		if err != nil {
			return &mooncake.RowError{Field: keySpans, Rule: "is not an OTLP request of spans"} // err may repeat what is in them
		}
		return c.traces(td)
	case keyLogs:
		ld, err := new(plog.JSONUnmarshaler).UnmarshalLogs(line)
		if err != nil {
			return &mooncake.RowError{Field: keyLogs, Rule: "is not an OTLP request of log records"}
		}
		return c.logs(ld)
	case keyMetrics:
		c.lose("lines", "metrics", 1)
	case keyProfiles:
		c.lose("lines", "profiles", 1)
	case "":
		c.lose("lines", "empty", 1)
	default:
		return &mooncake.RowError{
			Rule:   "the line is no OTLP request: " + keySpans + " or " + keyLogs + " must be its first key",
			Advice: "want what the file exporter of the Collector writes in its format json",
		}
	}
	return nil
}

// valid reports what is wrong with a line that is not one JSON object.
func valid(line []byte) *mooncake.RowError {
	dec := jsontext.NewDecoder(bytes.NewReader(line), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	err := dec.SkipValue()
	switch e, syntax := errors.AsType[*jsontext.SyntacticError](err); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &mooncake.RowError{
			Rule: "the JSON object does not end on its line", Advice: "the file may be cut off, or an object may be spread over several lines",
			Err: io.ErrUnexpectedEOF,
		}
	case syntax:
		return &mooncake.RowError{Rule: "is not valid JSON at byte " + strconv.FormatInt(e.ByteOffset+1, 10)}
	case err != nil:
		return &mooncake.RowError{Rule: "is not valid JSON"}
	case line[0] != '{':
		return &mooncake.RowError{Rule: "the line must be a JSON object", Advice: "write one object on each line"}
	case len(bytes.TrimSpace(line[dec.InputOffset():])) > 0:
		return &mooncake.RowError{Rule: "there is something after the line's object", Advice: "write one object on each line"}
	}
	return nil
}
