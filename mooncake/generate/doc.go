// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package generate makes realistic Mooncake traces for demonstrations and tests.
//
// A trace is a stream of conversations that arrive as a Poisson process and share one system prompt. The number of turns of a
// conversation is geometrically distributed. Each turn's prompt is the previous prompt, its reply, and a new user message of
// log-normal length. The next turn starts after the reply and a think time. Rows have full prompts with canonical block ids, in
// the order of their timestamps, and follow all rules of the format (V1 to V8).
//
// The same configuration yields the same bytes on every machine. Randomness is PCG-DXSM of math/rand/v2, whose sequence Go
// guarantees. Times are whole microseconds. The logarithm and exponential are our own, made of operations that IEEE 754 defines
// to the last bit, because those of package math differ between architectures.
//
// Memory grows with the conversations that are open at one time, not with the length of the trace.
package generate
