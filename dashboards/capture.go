// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/moonloop/moonloop/semconv"
)

// The metrics of the capture's components. The names and units of our components' metrics come from the components' metadata.yaml, those
// of the last four from the Collector. The tests compare the former with metadata.yaml, and test/collector finds all of them in a scrape
// of the distribution.
var (
	requestSpans   = own("exporter_mooncake_request_spans", "{span}")
	requestTokens  = own("exporter_mooncake_tokens", "{token}")
	requestAge     = own("exporter_mooncake_last_request_age", "s")
	journalLag     = own("exporter_mooncake_lag", "s")
	journalSize    = own("exporter_mooncake_journal_size", "By")
	journalWritten = own("exporter_mooncake_written", "By")
	journalLost    = own("exporter_mooncake_lost", "By")
	journalSync    = own("exporter_mooncake_sync_duration", "s")
	segments       = own("exporter_mooncake_segments", "{segment}")
	diskFree       = own("exporter_mooncake_disk_free", "By")
	failedWrites   = own("exporter_mooncake_failed_writes", "{attempt}")
	spansNoRecord  = own("exporter_mooncake_dropped_spans", "{span}")
	compilations   = own("exporter_mooncake_compilations", "{segment}")
	compileTime    = own("exporter_mooncake_compile_duration", "s")
	compiledRows   = own("exporter_mooncake_rows", "{row}")
	leftOut        = own("exporter_mooncake_left_out_requests", "{request}")
	receivedSpans  = own("receiver_mooncake_spans", "{span}")
	receivedGenAI  = own("receiver_mooncake_genai_spans", "{span}")
	receiverDrops  = own("receiver_mooncake_dropped", "{item}")
	refusals       = own("receiver_mooncake_refused_requests", "{request}")

	queueSize     = own("exporter_queue_size", "{batch}")
	queueCapacity = own("exporter_queue_capacity", "{batch}")
	processMemory = own("process_memory_rss", "By")
	processCPU    = own("process_cpu_seconds", "s")
)

// own returns a metric that a Collector records about itself.
func own(name, unit string) semconv.Metric {
	return semconv.Metric{Name: "otelcol_" + name, Unit: unit}
}

// captureBoard shows whether production's requests get into the journal: all of them, soon, and with the hashes that distinguish their
// prompts.
func captureBoard() board {
	at := func(name string, more ...string) string {
		return name + "{" + strings.Join(append([]string{`instance=~"$instance"`}, more...), ", ") + "}"
	}
	const production, model = `traffic="production"`, `model=~"$model"`
	spans, tokens := counter(requestSpans), counter(requestTokens)
	each := func(expr, by string) []query { return []query{{expr: expr, legend: "{{" + by + "}}"}} }
	lastHour := func(selector string, by ...string) string { return sum("increase("+selector+"[1h])", by...) }
	cached := func(kind string) string { return sum(rate(at(tokens, model, production, `type="`+kind+`"`)), "model") }
	return board{
		uid: "moonloop-capture", title: "moonloop / Production capture", from: "now-6h",
		description: "Whether production's requests get into the journal: all of them, soon, and with the hashes that distinguish their prompts. From the Collectors' own metrics.",
		variables: []variable{
			{name: "instance", label: "Collector", description: "Collectors that write a journal", metric: gauge(segments), by: "instance", multi: true},
			{name: "model", label: "Model", description: "The model that requests ask for", metric: spans, by: "model", multi: true},
		},
		rows: []row{
			{"Is it capturing?", []panel{
				{title: "Last request", kind: number, unit: "s", description: "Time since a request of production was written to any of the journals. Compare it with your traffic: at night it may be long.", steps: []step{{300, "orange"}, {900, "red"}}, queries: []query{
					{expr: "min(" + at(gauge(requestAge)) + ")"},
				}},
				{title: "Lag, p99", kind: number, unit: "s", description: "From the end of a request to its record, of the slowest request in each batch. It has the sender's batching, queues and retries in it.", steps: []step{{60, "orange"}, {600, "red"}}, queries: []query{
					{expr: classicQuantile(0.99, at(classic(journalLag)))},
				}},
				{title: "Without prompt identity", kind: number, unit: "percentunit", description: "Share of the request spans of the last hour whose prompts cannot be compared with others: their rows share no blocks. Is content recorded, and is the receiver in front?", steps: []step{{0.1, "orange"}, {0.5, "red"}}, queries: []query{
					{expr: "(" + lastHour(at(spans, production, `identity=~"none|unannotated"`)) + " or vector(0)) / " + lastHour(at(spans, production))},
				}},
				{title: "Refused, last hour", kind: number, unit: "short", description: "OTLP requests that the receiver refused. Senders try again if the reason was busy or slow.", steps: []step{{1, "orange"}}, queries: []query{
					{expr: lastHour(at(counter(refusals)))},
				}},
				{title: "Failed writes, last hour", kind: number, unit: "short", description: "Batches that could not be written to the journal at the first attempt. Senders or the queue try again.", steps: []step{{1, "red"}}, queries: []query{
					{expr: lastHour(at(counter(failedWrites)))},
				}},
				{title: "Disk free", kind: number, unit: "bytes", description: "The least that is free on a journal's file system.", steps: []step{{0, "red"}, {1 << 30, "orange"}, {10 << 30, "text"}}, queries: []query{
					{expr: "min(" + at(gauge(diskFree)) + ")"},
				}},
			}},
			{"Requests", []panel{
				{title: "Request spans per second, by model", unit: "reqps", description: "Of production, as they are written. An application, a gateway and an engine may each send one for a request; rows of traces count it once.", queries: each(sum(rate(at(spans, model, production)), "model"), "model")},
				{title: "Request spans per second, by identity", unit: "reqps", description: "By what identifies the prompt: text, tokens or engine; none and unannotated share no blocks.", queries: each(sum(rate(at(spans, model, production)), "identity"), "identity")},
				{title: "Failed", unit: "percentunit", max: 1, description: "Share of the request spans whose request was not served. They are not rows.", queries: each(
					"("+sum(rate(at(spans, model, production, `outcome="failed"`)), "model")+" or 0 * "+sum(rate(at(spans, model, production)), "model")+") / "+sum(rate(at(spans, model, production)), "model"), "model")},
				{title: "Tokens per second", unit: "short", description: "Of prompts and replies, as spans count them.", queries: []query{
					{expr: sum(rate(at(tokens, model, production, `type=~"prompt|output"`)), "model", "type"), legend: "{{model}} {{type}}"},
				}},
				{title: "Cached, as the engine reports it", unit: "percentunit", max: 1, description: "Cached share of the prompt tokens, of the requests whose engine reports it.", queries: each(cached("cached")+" / "+cached("cache_known"), "model")},
				{title: "Spans per second", unit: "cps", description: "All spans that the receiver has seen, and those of GenAI telemetry by dialect. unknown is a producer that nobody has seen: please report it.", queries: []query{
					{expr: sum(rate(at(counter(receivedSpans)))), legend: "all"}, {expr: sum(rate(at(counter(receivedGenAI))), "dialect"), legend: "{{dialect}}"},
				}},
			}},
			{"What does not arrive", []panel{
				{title: "Refused by the receiver", unit: "reqps", description: "OTLP requests, by reason. busy: raise admission::request_limit_mib or send less at a time.", queries: each(sum(rate(at(counter(refusals))), "reason"), "reason")},
				{title: "Left out of annotations", unit: "cps", description: "Parts of the telemetry, such as prompts, token counts and log records, that are in no annotation, by reason. Spans are forwarded all the same.", queries: each(sum(rate(at(counter(receiverDrops))), "reason"), "reason")},
				{title: "Spans without a record", unit: "cps", description: "By reason: they have no id.", queries: each(sum(rate(at(counter(spansNoRecord))), "reason"), "reason")},
				{title: "Failed writes", unit: "cps", description: "By fault. The log says what to do.", queries: each(sum(rate(at(counter(failedWrites))), "fault"), "fault")},
				{title: "Queue before the journal", unit: "percentunit", max: 1, description: "Filled part. When it is full, senders wait or are refused.", queries: []query{
					{expr: at(gauge(queueSize), `exporter=~"mooncake.*"`) + " / " + at(gauge(queueCapacity), `exporter=~"mooncake.*"`), legend: "{{instance}}"},
				}},
				{title: "Lost with a removed journal", unit: "bytes", description: "Somebody removed or replaced a journal while it was written.", queries: each(sum(at(counter(journalLost)), "instance"), "instance")},
			}},
			{"Journal", []panel{
				{title: "Lag", unit: "s", logarithmic: true, description: "From the end of a request to its record, of the slowest request in each batch.", queries: []query{
					{expr: classicQuantile(0.5, at(classic(journalLag))), legend: "p50"}, {expr: classicQuantile(0.99, at(classic(journalLag))), legend: "p99"},
				}},
				{title: "Sync to disk, p99", unit: "s", description: "No acknowledgement is faster.", queries: each(classicQuantile(0.99, at(classic(journalSync)), "instance"), "instance")},
				{title: "Written per second", unit: "Bps", description: "To the journal.", queries: each(sum(rate(at(counter(journalWritten))), "instance"), "instance")},
				{title: "Size on disk", unit: "bytes", description: "All segments with their traces. retention bounds it.", queries: each(sum(at(gauge(journalSize)), "instance"), "instance")},
				{title: "Segments", unit: "short", description: "pending are closed and have no trace yet.", queries: each(sum(at(gauge(segments)), "state"), "state")},
				{title: "Disk free", unit: "bytes", description: "On the journal's file system.", queries: each("min by (instance) ("+at(gauge(diskFree))+")", "instance")},
			}},
			{"Traces", []panel{
				{title: "Rows, last hour", unit: "short", description: "Of the segments' own traces, by what their block ids are based on. A request is one row.", queries: each(lastHour(at(counter(compiledRows), production), "identity"), "identity")},
				{title: "Requests without a row, last hour", unit: "short", description: "By reason. no_token_counts: record usage, also of streams, or set missing_tokens.", queries: each(lastHour(at(counter(leftOut)), "reason"), "reason")},
				{title: "Compilations, last hour", unit: "short", description: "Of segments. One that failed is tried again at the next start; the journal is complete.", queries: each(lastHour(at(counter(compilations)), "result"), "result")},
				{title: "Compiling a segment, p99", unit: "s", wide: 12, description: "In the background.", queries: each(classicQuantile(0.99, at(classic(compileTime)), "instance"), "instance")},
				{title: "Memory", unit: "bytes", wide: 6, description: "Resident memory of the Collector.", queries: each(at(gauge(processMemory)), "instance")},
				{title: "CPU", unit: "short", wide: 6, description: "Processors in use.", queries: each(rate(at(counter(processCPU))), "instance")},
			}},
		},
	}
}
