// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package generate makes realistic Mooncake traces for demonstrations and tests.
//
// A trace is a stream of conversations that arrive as a Poisson process and share one system prompt. A conversation has
// a geometric number of turns; each turn's prompt is the turn before, its reply, and a new user message of log-normal
// length; the next turn comes after the reply has been served and the user has thought. Rows hold full prompts with canonical
// block ids, in the order of their timestamps, and keep all rules of the format (V1 to V8).
//
// The same configuration gives the same bytes on every machine. Randomness is PCG-DXSM of math/rand/v2,
// whose sequence Go guarantees; time is kept in whole microseconds; and the logarithm and exponential are our own, from
// operations that IEEE 754 defines to the last bit, because those of package math differ between architectures.
//
// Memory is bounded by the conversations that are open at one time, not by the length of the trace.
package generate
