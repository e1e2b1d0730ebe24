// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package send is the streaming client that measures: it sends one request to an OpenAI-compatible engine and records when each piece of
// the reply arrived.
//
// [Client.Do] fills in an [Exchange]. It always returns with the times that were reached and, unless the request was served, with an
// [Error] of exactly one [Class]. A request is served if a finish reason came and no error: a status of 200 is not enough, nor is [DONE].
//
// How it measures:
//
//   - The request is on the wire when the write call that held its last byte has returned. The time before that is the client's
//     and the connection's. Headers and the beginning of the body are one write.
//   - A request behind a [Gate] has its connection before it is due. The engine sees nothing of it until the gate opens.
//   - A chunk's arrival is the instant at which the kernel received the segment that completed it (Linux, TCP, HTTP/1.1), else
//     the instant at which the read call returned. If several chunks arrive in one read, they share a timestamp and a read
//     number, and Exchange.Coalesced counts those whose gap is unknown.
//   - While a stream runs, one chunk costs one scan of its bytes and two appends. Nothing is allocated, nothing logged.
//
// All input from the network is bounded: lines, events, replies, error bodies, waits. Error texts are cleaned: see [Error].
package send
