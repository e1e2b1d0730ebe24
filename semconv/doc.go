// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package semconv has the names of moonloop's telemetry: every attribute, event, metric and span that it reads or writes, with
// type and unit. Only the metrics that the Collector's components have about themselves are not here: the documentation.md of each
// component lists them. The package has no logic.
//
// The names of the GenAI conventions are our own constants because Go's semconv packages have none after v1.41.0; names that a
// later revision changed are here, too, for reading. Names that the conventions lack are mooncake.*.
//
// # The annotated inference span
//
// Everything in moonloop depends on one contract: the annotated inference span. The agent writes one for each row that it
// replays. The receiver makes one from each request in GenAI telemetry. The exporter converts them to rows of a trace.
//
// There is one span per request that reached an engine:
//
//	name    {gen_ai.operation.name} {gen_ai.request.model}, such as "chat llama-3"
//	kind    CLIENT
//	start   the instant at which the request was scheduled (in production: at which it was made)
//	end     the arrival of the last token, or the instant of the failure
//	status  Error when the request was not served, with [ErrorType]; else unset
//	trace   a request without a session has an OTel trace of its own; the requests of a session share one, below
//	        a root span of kind INTERNAL, which ends when the first of them ends
//	links   of a replay: the production span that the row was captured from, if the row has it
//
// The root span of a session is called "session S from row N, MODEL, run R", because a list of traces shows nothing else of it.
// It is an invoke_workflow of the conventions, with the conversation, the model of its first request, mooncake.session and
// mooncake.session.first_row. It has nothing that becomes known only later, such as the number of turns.
//
// Requests of a replay that are not rows have spans, too ([SpanMeasure], [SpanWarmup]), without any attribute of this project,
// each in an OTel trace of its own. By their response ids, a capture recognises the spans that a gateway or an engine wrote
// for these requests.
//
// Standard attributes are used where the conventions have a name: the operation, provider, model and server, the conversation,
// the request's parameters, the reply, and the tokens that the server counted (usage). Attributes of this project say which row
// the request is:
//
//	attribute                           type      meaning
//	mooncake.row                        int       index of the row in its trace, from 0
//	mooncake.timestamp                  double    ms; the row's own timestamp, untouched by scaling and spreading
//	mooncake.input_length               int       prompt tokens that the row asks for
//	mooncake.output_length              int       output tokens that the row asks for
//	mooncake.hash_ids                   int[]     block ids, each the two's-complement pattern of a uint64
//	mooncake.block_size                 int       tokens that a block id stands for
//	mooncake.hash_ranges                int[]     the ids in finer blocks: pairs of a first id and how many follow one another
//	mooncake.fine_block_size            int       tokens that an id of these ranges stands for
//	mooncake.replies                    int[]     the parts of the prompt that were replies to earlier rows
//	mooncake.hash.domain                string    the origin of the ids; ids of two domains never match
//	mooncake.hash.key                   string    fingerprint of the key under which ids or cells were made
//	mooncake.identity                   string    what the ids are computed from: trace, engine, tokens, text or
//	                                              none; a span with it, or with a row, is a request to a model
//	mooncake.cells                      bytes     identity text: keyed chain of 128-byte cells, 8 bytes each
//	mooncake.cells.prefix               bool      the cells are of the beginning of the prompt only
//	mooncake.cells.ends                 bytes     identity text: where messages end, 12 bytes each
//	mooncake.cells.reply                bytes     the same for the reply, as it will be in the next prompt
//	mooncake.tool_calls                 int[]     the tool calls that the reply made, as hashes of their ids
//	mooncake.tool_results               int[]     the calls whose results end the prompt; on a tool's run: its call
//	mooncake.prompt_order               string    the order in which the model's template writes the prompt
//	mooncake.cells.media                int       bytes of the text up to the end of its last image, audio or file
//	mooncake.prompt.remote              bool      a part of the prompt is only on the server
//	mooncake.output_estimate            int       an estimate of output tokens that nobody counted
//	mooncake.input_exclusive            bool      the producer leaves cached tokens out of the input; they were added
//	mooncake.record                     bytes     on a span of that name, which stands for another span: all that a journal
//	                                              would keep of the other span
//	mooncake.synthetic                  bool      the span was made from a log record
//	mooncake.session                    string    the session
//	mooncake.turn                       int       index of the request within its session, from 0
//	mooncake.class                      string    the kind of the request, such as interactive or batch
//	mooncake.priority                   int       the priority that the request asks for, or that a router assigned
//	mooncake.run.id                     string    on the resource; one per replay, absent in production
//	mooncake.link.trace_id              string    of a replay: the trace that the link leads to, for searches
//
// On the spans of a replay, these say how faithfully the row was sent and how it ended:
//
//	mooncake.schedule.offset            double    s of replay time; spreading included
//	mooncake.schedule.spread            double    s; the part of the offset that spreading added
//	mooncake.schedule.speedup           double    the scale of the schedule
//	mooncake.schedule.lateness          double    s; dispatch minus intended instant
//	mooncake.schedule.lateness_class    string    on_time (up to 10 ms), late (up to 250 ms) or very_late
//	mooncake.schedule.cap_wait          double    s; wait for the concurrency cap
//	mooncake.wait_for                   int[]     rows that the request waited for, by index
//	mooncake.wait_evidence              string[]  for each of them, how it is known that the request follows it
//	mooncake.delay                      double    ms; the row's own delay
//	mooncake.tool_wait                  double    ms; the row's own wait for tools
//	mooncake.replies.carried_tokens     int       prompt tokens that were the replay's own live replies
//	mooncake.replies.invented_tokens    int       prompt tokens that were invented in place of a reply
//	mooncake.cache.predicted_tokens     int       prompt tokens that an infinite block cache would have had
//	mooncake.outcome                    string    served, failed, cancelled, skipped or disconnected
//	mooncake.outcome.reason             string    why it was skipped
//	mooncake.request.resend_count       int       whole requests sent again because a kept connection died
//	mooncake.chunks.coalesced           int       output chunks whose own arrival time is unknown
//	mooncake.wire.unknown               bool      the reply arrived before the time of the request's last byte was known
//	mooncake.prompt.too_short           bool      the row is shorter than the chat template
//	mooncake.prompt.tail_cut            bool      the prompt lacks its last block, to make room for the template
//
// Durations named gen_ai.* count from the wire: the instant at which the last byte of the request had been handed to
// the kernel. Durations named mooncake.latency.* count from the intended instant, so that a late client cannot make an
// engine look fast.
//
// # Phases
//
// A request span has up to three children without gen_ai.* attributes. They follow one another without a gap and
// together last as long as the request span:
//
//	queue    intended instant → wire
//	prefill  wire → first token
//	decode   first token → last token
//
// A phase that was not reached is absent, and the last phase reached lasts until the failure. A reply that was not a stream does
// not separate prefill from decode: it has one phase [PhaseReply] instead. A skipped row has a span of length zero and no phases.
//
// # Tokens
//
// Each chunk of output is a span event [EventToken] at its arrival, with [TokenIndex], [TokenCount] if the server sent it, and
// [TokenGap] from the second on. Instead, a span can have the whole series in [TokenGaps] and [TokenCounts], which need a tenth
// of the space, or the first token's event only, or none. Events above a limit are counted on the span, in its dropped-events
// count and [TokenDropped].
package semconv
