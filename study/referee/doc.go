// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package referee judges load generators by what an engine saw of them: how late each request was against the schedule that was asked
// for, how far the rate was off, which requests are missing, and, given the generator's own figures of each request, how wrong those
// are.
//
// The engine's record ([ReadRecord]) is the truth: it has the instant at which the kernel had the last byte of each request, and the
// instants at which the engine wrote each token. A [Schedule] says what was asked for. [Judge] pairs the two. An [Export] is what a
// generator says of its own requests, in the generator's own file ([ReadExport]); [Judgement.Client] is how far it is from the truth.
//
// # Memory
//
// It grows with the number of requests and of their tokens, some 16 bytes each. [MaxRequests] bounds the requests of a record, of a
// schedule and of an export.
package referee

// MaxRequests is the greatest number of requests that a record, a schedule or an export may have.
const MaxRequests = 4 << 20
