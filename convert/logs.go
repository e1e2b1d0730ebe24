// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"strings"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// Logs of gateways and services, with the text of prompts.

var sagemaker = spec{
	Format: "sagemaker", about: "SageMaker's data capture of OpenAI-compatible endpoints",
	fields: []string{"captureData", "eventMetadata"}, dates: true, models: true, text: true,
	decode: func(d *decoder, r *record) {
		data, event := r.object("captureData"), r.object("eventMetadata")
		body := func(side string) *record {
			s := data.object(side)
			s.known("observedContentType", "mode")
			return s.encoded("data", s.name("encoding") == "BASE64")
		}
		q := exchange(body("endpointInput"), body("endpointOutput"))
		q.at, q.row.RequestID = event.date("inferenceTime"), event.name("eventId")
		r.known("eventVersion")
		d.add(q)
	},
}

var litellm = spec{
	Format: "litellm", about: "LiteLLM's StandardLoggingPayload, as its loggers write it",
	fields: []string{"call_type", "startTime", "prompt_tokens"}, dates: true, models: true, fails: true, text: true,
	decode: func(d *decoder, r *record) {
		if call := r.name("call_type"); !strings.Contains(call, "completion") && !strings.Contains(call, "responses") && !strings.Contains(call, "messages") && call != "" {
			d.skip(reasonOther)
			return
		}
		if r.name("status") == "failure" && d.failed(reasonFailed) {
			return
		}
		reply := r.object("response")
		q := exchange(r.only("model", "messages"), reply)
		q.prompt.body = nil // the log does not have the whole body
		row := q.row
		row.RequestID, row.SessionID = r.name("id"), r.name("session_id", "litellm_session_id")
		row.InputLength, row.OutputLength = r.count("prompt_tokens"), r.count("completion_tokens")
		r.known("total_tokens", "response_time")
		start, first, end := r.date("startTime"), r.instant("completionStartTime"), r.instant("endTime")
		cached := row.Observed.CachedTokens
		row.Observed = observedAs(observed(start, first.V, end.V), cached, row.Observed.FinishReason)
		q.at = start
		d.add(q)
	},
}

// decodeLangfuse reads observations of both revisions of the export. Its input count excludes cached tokens, so they are added, unless the
// total shows that the input includes them.
func decodeLangfuse(d *decoder, r *record) {
	if r.name("type") != "GENERATION" {
		d.skip(reasonOther)
		return
	}
	usage := r.object("usage_details", "usageDetails")
	if r.known("usage"); !usage.has("input", "output") { // older versions have only this one
		usage = r.object("usage")
		usage.known("unit")
	}
	row := &mooncake.Row{
		Model: r.name("provided_model_name", "providedModelName", "model"), SessionID: r.name("session_id", "sessionId"), RequestID: r.name("id"),
		InputLength: usage.count("input"), OutputLength: usage.count("output"),
	}
	cached, total := usage.count("input_cached_tokens"), usage.count("total")
	if all := row.InputLength.V + cached.V; !total.Set || all+row.OutputLength.V == total.V {
		row.InputLength.V = all
	}
	q := &request{row: row, prompt: new(prompt), at: r.date("start_time", "startTime")}
	switch in := r.raw("input"); {
	case len(in) == 0:
	case in[0] == '[':
		row.Messages = in
	case in[0] == '{':
		body := r.object("input")
		row.Messages, row.Tools = body.raw("messages"), body.raw("tools")
	default:
		row.TextInput = mooncake.Some(r.text("input"))
	}
	if out := r.raw("output"); len(out) > 0 && out[0] == '{' {
		q.prompt.reply = append(append([]byte{'['}, out...), ']')
	}
	end := r.instant("end_time", "endTime")
	row.Observed = observedAs(observed(q.at, r.instant("completion_start_time", "completionStartTime").V, end.V), cached, "")
	if t := r.millis(time.Second, "time_to_first_token", "timeToFirstToken"); t.Set {
		row.Observed.TTFT = t
	}
	r.known("latency")
	d.add(q)
}

var langfuse = spec{
	Format: "langfuse", about: "Langfuse's export of observations, as JSON or JSON lines",
	fields: []string{"type", "input", "output"}, dates: true, models: true, text: true, decode: decodeLangfuse,
}

var langfuseCSV = spec{
	Format: "langfuse-csv", about: "Langfuse's export of observations, as CSV", table: true,
	fields: []string{"type", "input", "start_time"}, dates: true, models: true, text: true, decode: decodeLangfuse,
}

var evalscope = spec{
	Format: "evalscope", about: "evalscope's workload_trace: bodies of requests; needs --missing-tokens estimate or --prompts keep",
	fields: []string{"body", "timestamp"}, dates: true, models: true, text: true,
	decode: func(d *decoder, r *record) {
		q := exchange(r.object("body"), &record{top: r.top})
		q.at, q.row.RequestID, q.row.OutputLength = r.date("timestamp"), r.name("request_id"), r.count("completion_tokens")
		d.add(q)
	},
}

var gateway = spec{
	Format: "gateway", about: "CSV of a gateway's log: timestamp (or ts, created_at), request_json and, if known, response_json", table: true,
	fields: []string{"request_json"}, dates: true, models: true, fails: true, text: true,
	decode: func(d *decoder, r *record) {
		q := exchange(r.object("request_json"), r.object("response_json"))
		q.at = r.date("timestamp", "ts", "created_at")
		if model := r.name("model_name"); model != "" {
			q.row.Model = model
		}
		if status := r.count("status_code"); status.V >= 400 && d.failed(reasonFailed) {
			return
		}
		d.add(q)
	},
}

var flatSpans = spec{
	Format: "spans", about: "sessions as lists of spans without parents (GuideLLM, inference-perf, Exgentic)",
	fields: []string{"spans"}, dates: true, models: true, text: true, spans: true,
	decode: func(d *decoder, r *record) {
		session := r.name("session_id", "trace_id")
		r.objects(func(s *record) {
			if s.object("status").name("code") == "ERROR" {
				d.skip(reasonFailed)
				s.discard()
				return
			}
			start, end := s.date("start_time"), s.instant("end_time")
			row := &mooncake.Row{SessionID: cmp.Or(session, s.name("trace_id"))}
			row.Observed = observed(start, 0, end.V)
			s.known("span_id", "trace_id", "name", "type")
			d.out = append(d.out, &request{at: start, row: row, prompt: &prompt{attributes: s.raw("attributes")}})
		}, "spans")
	},
}
