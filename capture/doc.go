// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package capture compiles the journals of one or many collectors into traces.
//
// [Compile] makes canonical traces of journals (package journal), one for production and one for each
// replay. It is a pure function of the set of records: however they are dealt to journals, in whatever order these are
// given, and however often a record is there, the bytes written are the same. Its steps:
//
//  1. Partition by run. A span without a run id belongs to the run of its nearest ancestor that has one: an engine's
//     own spans below a replayed request are of that replay. Where the way up breaks off at a span that nobody sent,
//     the run is that of the trace, if all of the trace's spans that name a run name the same one.
//  2. Dedupe by (trace id, span id): annotated before raw, then more fields, then smaller bytes.
//  3. Group. Inference spans with only links between form a tree; the run of a tool or of an agent ends one. A server's span without a
//     parent that names another one by a link is below it, if it begins while that lasts. Each successful leaf is one row,
//     whose gaps are filled from the nearest ancestor that has the field. Tokens and response id come from an ancestor only
//     when the leaf is its one successful leaf, since they would count for several requests otherwise. Then leaves of
//     different trees with the same response id and overlapping times are one request, and the shortest is the nearest to
//     the engine. A request that begins outside of the one above it has another clock: it begins with that one, and rows
//     which only such a clock saw are counted. In a tree with a row index, each span that has one is a row of a replay and
//     nothing else is taken from the tree. Spans of production that have the response id of a replay's request, at its
//     time, are of the replay, too: a gateway that does not pass the trace context on makes traces of their own of them.
//  4. Where tokens lie in texts, those of each (domain, model) by themselves; the turns of sessions without content; lengths
//     for the rest. What rows share is known in blocks of [FineBlockSize] tokens, and which parts of a prompt were replies to earlier
//     rows.
//  5. Order: replays by row, production by (start, trace id, span id). Ids are renumbered by first appearance.
//
// # Text
//
// All text of a key has one domain, whatever model it went to (see blockhash.TextDomain), so that the prompt of a row may
// come from its own span, from one above it that calls the model by another name, or from a log record that names none.
// Ids of text are told apart by the model of the row: the one that answered, else the one asked for, as the leaf says or else the
// nearest span above. Which names are one model is decided over all records, and takes proof; see models.go.
//
// Where tokens lie is decided over all prompts of a trace at once. The marks of a text are the ends of its cells and of its messages;
// each stretch of marks is laid by the shortest prompt that has it, in bytes and tokens, whose end is an anchor. The reply to
// a prompt is found in a later one by the value of the text up to its end, and its end is an anchor, too: the tokens of the prompt and of
// the reply are counted. Of conversations generated with a known tokenisation, an engine's cache of single tokens has 94 % of the prompt
// tokens, and a trace predicts that within 0.05 points; 94 to 97 of 100 requests are within 16 tokens, and none is more than 65 tokens over.
// Journals from before messages had ends share 0.15 to 0.35 points less of blocks of 512.
//
// How many tokens an image, a sound or a file has cannot be told. Text before the last one is laid by other prompts whose end is known,
// else at the mean rate of the prompts without any (a token for 4 bytes if there are none); the medium has what is left.
//
// A prompt may be known only from its beginning: telemetry has cut it off ([journal.Prompt].Prefix), or its log records came in several
// [journal.Content]s, the earliest of which begins where the prompt does. Nobody knows how it goes on, nor how many tokens that
// beginning has, so it anchors nothing, and its blocks are known as far as whole prompts have the same text; the others are like
// no other row's. Later parts begin somewhere else and are left out; where no part is the earliest, all are. One
// Content alone is taken for a whole prompt.
//
// # What the engine had cached
//
// Where production says how much of a prompt its engine had cached, that counts. It raises what a row shares, from where the text is known
// to be the same to the next mark (the end of a cell or of a message), and lowers nothing. And it tells of templates that write
// prompts in another order than telemetry shows: see follow.go.
//
// # Memory
//
// Whatever is sorted, grouped or laid goes to temporary files beyond [Options].Memory. Above that stay: the ids and ancestry
// of one trace (up to [Options].MaxTraceSpans spans, some 200 bytes each), one path of marks, the counts of each run, the
// digester's tree (up to mooncake.DefaultMaxIDs ids), and, without a bound, 48 bytes for each row whose ids are made of text or
// structure and for each reply in such prompts (before that 16 for each prompt, where ends of messages may be missing), and the numbers
// of the other block ids: tree and numbers take up to 64 bytes for each distinct id. Compile takes at most the
// sum of Memory, 64 MiB, 48 bytes a row and a reply and 64 bytes an id, and the collector of garbage leaves as much on top as GOGC says: a process that
// does nothing else takes at most 1.25 times the sum at GOGC=25, which moonloop compile sets (1.2 GiB were measured for ten million requests
// with 24 million ids), and twice the sum at 100, Go's default, which is that of a Collector: Compile changes nothing that is the whole
// process's. Temporary files take up to twice the size of the journals, and three times where another order of prompts is tried.
package capture
