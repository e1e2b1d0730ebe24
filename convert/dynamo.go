// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

const (
	dynamoSchema = "dynamo.request.trace.v1"
	dynamoScope  = "dynamo.request_trace" // name of the scope of Dynamo's log records
)

// dynamoEvents are the known types of events that are not requests, and what their lines are counted as. Unknown types belong to a later
// revision.
var dynamoEvents = map[string]string{
	"request_payload": "payloads of requests", // text of requests that have a record of their own
	"tool_start":      "tool calls", "tool_end": "tool calls", "tool_error": "tool calls",
}

// dynamoLine reads a record. The record is passed to the annotator in the form of Dynamo's log record.
func (t *telemetry) dynamoLine(line []byte) error {
	if fault := valid(line); fault != nil {
		return fault
	}
	var record struct {
		Schema string         `json:"schema"`
		Type   string         `json:"event_type"`
		Event  jsontext.Value `json:"event"` // an envelope contains the record
	}
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	err := json.Unmarshal(line, &record, lenient)
	if err == nil && record.Schema == "" && record.Event.Kind() == '{' {
		line = record.Event
		err = json.Unmarshal(line, &record, lenient)
	}
	if err != nil || record.Schema != dynamoSchema {
		return &mooncake.RowError{Field: "schema", Rule: "must be " + dynamoSchema, Advice: "want a file of Dynamo's request trace"}
	}
	if record.Type != "request_end" && record.Type != "" { // as in [genai.Reader.Dynamo]
		t.lost.add("lines", cmp.Or(dynamoEvents[record.Type], "events of an unknown type"), 1)
		return nil
	}
	ld := plog.NewLogs()
	resource := ld.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr(semconv.ServiceName, "dynamo")
	scope := resource.ScopeLogs().AppendEmpty()
	scope.Scope().SetName(dynamoScope)
	log := scope.LogRecords().AppendEmpty()
	log.Body().SetStr(record.Type)
	log.Attributes().PutStr("schema", record.Schema)
	log.Attributes().PutStr("event_type", record.Type)
	log.Attributes().PutStr("payload", string(line))
	return t.logs(ld)
}
