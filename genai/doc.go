// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package genai reads anybody's GenAI telemetry: a span or a log record in, one inference [Record] out.
//
// Instrumentations, gateways and engines name the same facts differently, and some write them as JSON inside of
// strings. A [Reader] knows the names by tables (keys.go, dialect.go): which attribute holds which fact, and which of
// two counts when both are there. A dialect that nobody has seen yet yields whatever is called by a known name.
//
// # Contract
//
// A reader never fails. What cannot be read is absent from the record, which is not the same as zero; content that
// ends too early is walked as far as it goes and reported as [ExtentCut]. Time and memory are bounded by [Limits],
// whatever the input holds. Nothing is written or logged, and no text of a prompt is copied into the record's fields.
//
// A record says what one span says. Which spans are the same request, and which of them reached the engine, takes
// the others of the trace and is not decided here; [Kind] only separates requests from what stands around them and
// repeats their counts.
//
// What may be of a prompt and is not understood must not pass for equal. Members of a message that nobody knows are pieces of it; of a
// request, they cost the prompt its identity ([ExtentGaps]); and at a medium of which only the place is recorded the walk
// ends ([ExtentCut]).
//
// # Prompts
//
// [Content.Walk] visits the prompt in one canonical order whatever its encoding was: leading system messages, tools,
// other messages. Text comes out byte for byte as the application wrote it, with the JSON escapes undone; tools, tool
// calls and media come out as JSON in the shape of the chat completions API, compact and with sorted keys, so that
// the same conversation gives the same pieces in every dialect.
//
// # Replies
//
// [Reply.Walk] visits the reply as the message that it is in the next prompt: by the same walk over the same shapes, so that its pieces
// are those that the client sends back. It says so only of the whole and only reply. Several choices, a cut, a text that is not
// recorded, a call or reasoning that was counted and is not there: of all these there is none.
package genai
