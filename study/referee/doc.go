// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package referee judges load generators by an engine's record of them: how late each request was compared with the requested schedule, how
// far the rate was off, which requests are missing, and, given the generator's own figures of each request, how wrong those are.
//
// The engine's record ([ReadRecord]) is the truth: it has the time at which the kernel had the last byte of each request, and the times at
// which the engine wrote each token. A [Schedule] is what was requested. [Judge] pairs the two. An [Export] is the generator's own file
// about its requests ([ReadExport]); [Judgement.Client] shows how far it is from the truth.
//
// # Memory
//
// Memory grows with the number of requests and of their tokens, about 16 bytes each, and with the rows of a schedule, about 64 bytes each.
// [MaxRequests] limits the requests of a record, of a schedule and of an export.
package referee

// MaxRequests is the maximum number of requests of a record, a schedule or an export.
const MaxRequests = 4 << 20
