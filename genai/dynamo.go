// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strconv"

	"go.opentelemetry.io/collector/pdata/plog"
)

// Names of Dynamo's request trace.
const (
	dynamoScope  = "dynamo.request_trace"
	dynamoSchema = "dynamo.request.trace.v1"
)

// dynamo reads one record of Dynamo's request trace, the payload of a log record.
func (r *Reader) dynamo(log plog.LogRecord) {
	rec, t := &r.record, &r.doc
	if !t.parse(textOf(log.Attributes(), "payload")) || t.kind(0) != nodeObject {
		return
	}
	switch t.str(t.get(0, "event_type")) {
	case "request_end", "": // a record without a type is a request
	case "tool_start", "tool_end", "tool_error":
		rec.Kind = KindTool
	default: // request_payload has the text of a request that has a record of its own
		rec.Kind = KindContent
	}
	rec.Session = t.str(t.path(0, "agent_context", "session_id"))
	request := t.get(0, "request")
	if t.kind(request) != nodeObject || rec.Kind != KindOther {
		return
	}
	rec.Kind = KindInference
	rec.RequestModel = t.str(t.get(request, "model"))
	rec.ResponseID = t.str(t.get(request, "request_id"))
	replay := t.get(request, "replay")
	rec.InputTokens = t.int(t.get(replay, "input_length")).or(t.int(t.get(request, "input_tokens")))
	rec.OutputTokens = t.int(t.get(request, "output_tokens"))
	rec.CachedTokens = t.int(t.get(request, "cached_tokens"))
	if ttft := t.float(t.get(request, "ttft_ms")); ttft.Set && ttft.V < 1e3*maxSeconds {
		rec.TimeToFirstToken = Some(ttft.V / 1e3)
	}
	rec.addReason(t.str(t.get(request, "finish_reason")))
	r.dynamoTimes(request, uint64(log.Timestamp()))
	r.dynamoHashes(replay)
}

// dynamoTimes reads when the request arrived and ended. eventNano is the time of the log record, 0 if it has none. The record is written at
// the request's end, so a missing arrival is computed from this time.
func (r *Reader) dynamoTimes(request int32, eventNano uint64) {
	rec, t := &r.record, &r.doc
	var total uint64
	if ms := t.float(t.get(request, "total_time_ms")); ms.Set && ms.V < 1e3*maxSeconds {
		total = uint64(ms.V * 1e6)
	}
	const maxMillis = 1 << 43 // beyond the year 2200
	if ms := t.float(t.get(request, "request_received_ms")); ms.Set && ms.V > 0 && ms.V < maxMillis {
		whole := uint64(ms.V) // the fraction is added separately: as nanoseconds in a double it would be rounded
		rec.StartUnixNano = whole*1e6 + uint64((ms.V-float64(whole))*1e6)
		if total > 0 {
			rec.EndUnixNano = rec.StartUnixNano + total
		}
		return
	}
	if ms := t.float(t.get(0, "event_time_unix_ms")); eventNano == 0 && ms.Set && ms.V < maxMillis {
		eventNano = uint64(ms.V) * 1e6
	}
	if eventNano > total && total > 0 {
		rec.StartUnixNano, rec.EndUnixNano = eventNano-total, eventNano
	}
}

// dynamoHashes reads the rolling hashes as the 64 bits that they are: a double would round half of them.
func (r *Reader) dynamoHashes(replay int32) {
	engine, t := &r.record.Engine, &r.doc
	size := t.int(t.get(replay, "trace_block_size"))
	list := t.get(replay, "input_sequence_hashes")
	const maxBlock = 1 << 20
	if !size.Set || size.V == 0 || size.V > maxBlock || t.kind(list) != nodeArray {
		return
	}
	engine.BlockSize, engine.Complete = int(size.V), !t.partial(list)
	for i := range t.values(list) {
		hash, err := strconv.ParseUint(t.nodes[i].text, 10, 64)
		if err != nil {
			engine.Complete = false
			return
		}
		engine.Hashes = append(engine.Hashes, hash)
	}
}
