// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package admission decides, before an OTLP request is decoded, whether there is memory for it.
//
// Decoding multiplies memory: an empty span is 2 bytes on the wire and 230 in memory. A value nested a million times, 8 MB, needs
// half a gigabyte of stack, or crashes the process. The Collector's memory limiter is after the decoder, and checks once a
// second. So a Gate scans a request before it is decoded, adds up the memory that its messages will need, and reserves it until
// the request is done. Requests that do not fit are refused and counted.
//
// A stalled request does not block others: each request has a time limit, and if another one needs the memory, slow requests lose
// theirs.
package admission

import (
	"context"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"google.golang.org/grpc/codes"
)

// Reason says why a request was refused.
type Reason string

// The reasons.
const (
	// ReasonBusy: there is no room in addition to the requests in flight; senders try again.
	ReasonBusy Reason = "busy"
	// ReasonTooLarge: the request would need more room than there is in total, or is longer than the server accepts.
	ReasonTooLarge Reason = "too_large"
	// ReasonTooDeep: a value is nested deeper than [MaxDepth].
	ReasonTooDeep Reason = "too_deep"
	// ReasonMalformed: the request is not OTLP.
	ReasonMalformed Reason = "malformed"
	// ReasonSlow: the request did not arrive in time, or was slow while others needed its room; senders try again.
	ReasonSlow Reason = "slow"
	// ReasonMediaType: the Content-Type of an HTTP request is not one of OTLP's.
	ReasonMediaType Reason = "media_type"
	// ReasonEncoding: the server does not know the compression of the request, or the beginning of the data is not compressed like that.
	ReasonEncoding Reason = "encoding"
	// ReasonUnauthenticated: the authenticator of the configuration does not accept the request.
	ReasonUnauthenticated Reason = "unauthenticated"
	// ReasonNotServed: no pipeline takes the signal of the request, or its path over HTTP is not one of OTLP's.
	ReasonNotServed Reason = "not_served"
)

// Reasons lists all reasons.
var Reasons = []Reason{
	ReasonBusy, ReasonTooLarge, ReasonTooDeep, ReasonMalformed, ReasonSlow, ReasonMediaType, ReasonEncoding, ReasonUnauthenticated, ReasonNotServed,
}

// refusal is a Reason as an error, with advice and without any part of the request.
type refusal struct {
	reason  Reason
	message string
}

func (r *refusal) Error() string { return r.message }

// status returns the status of a refusal over gRPC and over HTTP. Senders try again after Unavailable and 503, but not after 408.
func (r *refusal) status() (grpc codes.Code, overHTTP int) {
	switch r.reason {
	case ReasonBusy, ReasonSlow:
		return codes.Unavailable, http.StatusServiceUnavailable
	case ReasonTooLarge:
		return codes.ResourceExhausted, http.StatusRequestEntityTooLarge
	case ReasonNotServed:
		return codes.Unimplemented, http.StatusNotFound
	default:
		return codes.InvalidArgument, http.StatusBadRequest
	}
}

var (
	errBusy = &refusal{ReasonBusy, "the requests in progress use all the memory that they may use: try again later, " + raise}
	// errTooLarge is for a request that would not fit even if it were alone.
	errTooLarge = &refusal{ReasonTooLarge, "decoded, the request takes more memory than all requests together may take: send smaller batches, " + raise}
	// errTooLong is for a request that the server does not read to its end.
	errTooLong = &refusal{ReasonTooLarge, "the request is longer than the server accepts: send smaller batches, " +
		"or raise the receiver's max_recv_msg_size_mib (gRPC) or max_request_body_size (HTTP)"}
	errTooDeep = &refusal{ReasonTooDeep, "an attribute is nested deeper than 128 levels: flatten it"}

	errMalformed = &refusal{ReasonMalformed, "the request is not OTLP: it is truncated or damaged, or its encoding is not the one that it states"}
	errMore      = &refusal{ReasonMalformed, "something follows the JSON object of the request: a request is one object, so send each line of a file by itself"}
	errUnknown   = &refusal{ReasonMalformed, "the request is not one of traces, metrics or logs"}
	errGroup     = &refusal{ReasonMalformed, "the request has protobuf groups, which OTLP does not have"}
	errEncoding  = &refusal{ReasonEncoding, "the compression of the request is not one that the server knows: use gzip, or none"}
	errSlow      = &refusal{ReasonSlow, "the request did not come in time, or came slowly while others needed its memory: send it again, " +
		"in smaller batches if the connection is slow"}
	errNotServed = &refusal{ReasonNotServed, "the receiver does not take this: put it into a pipeline of this signal, " +
		"or correct the sender's address if its path is not one of OTLP's"}
	errStopping = &refusal{ReasonBusy, "the receiver is stopping: send the request again to the receiver that takes its place"}
)

// raise is advice for the operator, for a Collector and for the command.
const raise = "or give the receiver more (admission::request_limit_mib of a Collector, --request-limit of moonloop capture)"

// Gate admits requests. It is an extension of the Collector's kind "middleware", for gRPC and HTTP servers.
type Gate struct {
	opt     Options
	paths   map[string]*message // over HTTP, of the signals that are served
	methods map[string]bool     // over gRPC, likewise
	decoded sync.Map            // by message: its *upload, from the time when a gRPC server decodes it until its call claims the upload

	mu       sync.Mutex
	used     int64                // bytes of the requests in flight
	uploads  map[*upload]struct{} // those that have not arrived completely
	halting  []*upload            // to be stopped when mu is free
	nextLook time.Time            // there is no search for slow uploads before this time
	stopped  bool
}

// Options configures a [Gate].
type Options struct {
	// Limit is the maximum memory of all requests, in bytes.
	Limit int64
	// HTTPTimeout and GRPCTimeout are the maximum times in which a request must arrive, from its headers on.
	HTTPTimeout, GRPCTimeout time.Duration
	Paths                    Paths
	Served                   Served
	// Refused is called for each refused request, concurrently.
	Refused func(Reason)
}

// Paths are the URL paths of the signals over HTTP.
type Paths struct{ Traces, Metrics, Logs string }

// Served are the signals that a pipeline takes. The gate refuses the others.
type Served struct{ Traces, Metrics, Logs bool }

// NewGate returns a gate.
func NewGate(opt Options) *Gate {
	g := &Gate{opt: opt, uploads: map[*upload]struct{}{}, paths: map[string]*message{}, methods: map[string]bool{}}
	for _, s := range []struct {
		served       bool
		path, method string
		request      *message
	}{
		{opt.Served.Traces, opt.Paths.Traces, "trace.v1.TraceService/Export", tracesRequest},
		{opt.Served.Metrics, opt.Paths.Metrics, "metrics.v1.MetricsService/Export", metricsRequest},
		{opt.Served.Logs, opt.Paths.Logs, "logs.v1.LogsService/Export", logsRequest},
	} {
		if s.served {
			g.paths[s.path] = s.request
			g.methods[methodPrefix+s.method] = true
		}
	}
	return g
}

// Start does nothing: the gate exists as long as its receiver, which shuts it down.
func (*Gate) Start(context.Context, component.Host) error { return nil }

// Shutdown ends the requests that have not arrived completely, and accepts no more, so that the end of a server does not wait for idle
// senders. The senders of these requests are asked to try again.
func (g *Gate) Shutdown(context.Context) error {
	g.mu.Lock()
	defer g.unlock()
	g.stopped = true
	for u := range g.uploads {
		g.end(u, errStopping)
	}
	return nil
}
