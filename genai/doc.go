// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package genai reads GenAI telemetry of any producer: it converts a span or a log record to one inference [Record].
//
// Instrumentations, gateways and engines name the same facts differently, and some write them as JSON inside strings. A [Reader]
// has tables of names (fields.go, dialect.go): which attribute contains which fact, and which of two is used if both exist. From an
// unknown dialect it reads whatever has a known name.
//
// # Contract
//
// A reader never fails. Values that cannot be read are absent from the record, which is not the same as zero; truncated content is walked
// to its end and reported as [ExtentCut]. [Limits] bounds time and memory, whatever the input contains. Nothing is written or logged, and
// no text of a prompt is copied into the record's fields.
//
// A record contains what one span reports. Deciding which spans are the same request, and which of them reached the engine, requires the
// other spans of the OTel trace, so it is not done here. [Kind] only separates requests from the spans around them that repeat their
// counts.
//
// Two prompts with different unknown parts must not look equal. So unknown members of a message are pieces of it; unknown members
// of a request remove the prompt's identity ([ExtentGaps]); and the walk stops at a medium of which neither the bytes nor a
// unique reference (a URL, an id) is recorded ([ExtentCut]).
//
// # Prompts
//
// [Content.Walk] visits the prompt in one canonical order whatever its encoding was: leading system messages, tools, other
// messages. Text is returned byte for byte as the application wrote it, without JSON escapes. Tools, tool calls and media are
// returned as JSON in the form of the chat completions API, compact and with sorted keys, so that the same conversation yields
// the same pieces in every dialect.
//
// # Replies
//
// [Reply.Walk] visits the reply as the message that it will be in the next prompt: with the same walk over the same shapes, so
// that its pieces are those that the client sends back. The walk succeeds only if the reply is complete and the only one. It fails
// for several choices, a truncated reply, a text that is not recorded, or a call or reasoning that was counted and is not
// recorded.
package genai
