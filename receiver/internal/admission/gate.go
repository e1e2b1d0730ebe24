// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package admission decides, before an OTLP request is decoded, whether there is room for it.
//
// Decoding makes much of little: an empty span takes 2 bytes on the wire and 230 in memory, and a value nested a
// million times, 8 MB, takes half a gigabyte of stack, or ends the process. The Collector's memory limiter comes behind the decoder, and
// looks once a second. So a Gate walks over a request first, without decoding it, adds up what its messages will take,
// and holds that room until the request is done. What does not fit is refused and counted.
package admission

import (
	"sync"
	"sync/atomic"
)

// Reason says why a request was refused.
type Reason string

// The reasons.
const (
	// ReasonBusy is a request for which there is no room beside those under way: senders try again.
	ReasonBusy Reason = "busy"
	// ReasonTooLarge is one that would take more room than there is in all.
	ReasonTooLarge Reason = "too_large"
	// ReasonTooDeep is one with a value that is nested deeper than [MaxDepth].
	ReasonTooDeep Reason = "too_deep"
	// ReasonMalformed is one that is no OTLP.
	ReasonMalformed Reason = "malformed"
)

// refusal is a Reason as an error, which says what to do and repeats nothing of the request.
type refusal struct {
	reason  Reason
	message string
}

func (r *refusal) Error() string { return r.message }

var (
	errBusy = &refusal{ReasonBusy, "the requests under way take all the memory there is for them: try again later, " +
		"or raise admission::request_limit_mib of the receiver"}
	errTooLarge = &refusal{ReasonTooLarge, "decoded, the request takes more memory than all requests may: send smaller batches, " +
		"or raise admission::request_limit_mib of the receiver"}
	errTooDeep   = &refusal{ReasonTooDeep, "an attribute is nested deeper than 128 values: flatten it"}
	errMalformed = &refusal{ReasonMalformed, "the request is no OTLP: it is cut or damaged, or of another encoding than it says"}
	errGroup     = &refusal{ReasonMalformed, "the request has groups of protobuf, which OTLP does not have"}
)

// Gate admits requests. It is an extension of the Collector's kind "middleware", for gRPC and HTTP servers.
type Gate struct {
	limit   int64
	used    atomic.Int64
	refused func(Reason)
	paths   map[string]*message
	tickets sync.Map // of the requests that a gRPC server is reading: from the message that it decodes into to its *ticket
}

// Paths are the URL paths of the signals over HTTP.
type Paths struct{ Traces, Metrics, Logs string }

// NewGate returns a gate for requests that take at most so many bytes of memory together. refused is called for
// each one that is refused, by several goroutines at once.
func NewGate(limit int64, paths Paths, refused func(Reason)) *Gate {
	return &Gate{limit: limit, refused: refused, paths: map[string]*message{
		paths.Traces: tracesRequest, paths.Metrics: metricsRequest, paths.Logs: logsRequest,
	}}
}

// Used returns the bytes that the requests under way take.
func (g *Gate) Used() int64 { return g.used.Load() }

// take takes room, or returns why there is none.
func (g *Gate) take(bytes int64) *refusal {
	if bytes > g.limit {
		return errTooLarge
	}
	if g.used.Add(bytes) > g.limit {
		g.used.Add(-bytes)
		return errBusy
	}
	return nil
}

func (g *Gate) giveBack(bytes int64) { g.used.Add(-bytes) }
