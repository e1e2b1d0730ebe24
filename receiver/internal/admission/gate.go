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
	"maps"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"google.golang.org/grpc/codes"
)

// Reason says why a request was refused.
type Reason string

// The reasons.
const (
	// ReasonBusy is a request for which there is no room beside those in flight: senders try again.
	ReasonBusy Reason = "busy"
	// ReasonTooLarge is one that would take more room than there is in all.
	ReasonTooLarge Reason = "too_large"
	// ReasonTooDeep is one with a value that is nested deeper than [MaxDepth].
	ReasonTooDeep Reason = "too_deep"
	// ReasonMalformed is one that is no OTLP.
	ReasonMalformed Reason = "malformed"
	// ReasonSlow is one that did not come in time, or slowly while others needed its room: senders try again.
	ReasonSlow Reason = "slow"
	// ReasonMediaType is one over HTTP whose Content-Type is neither of OTLP's.
	ReasonMediaType Reason = "media_type"
)

// Reasons are all of them.
var Reasons = []Reason{ReasonBusy, ReasonTooLarge, ReasonTooDeep, ReasonMalformed, ReasonSlow, ReasonMediaType}

// refusal is a Reason as an error, which says what to do and repeats nothing of the request.
type refusal struct {
	reason  Reason
	message string
}

func (r *refusal) Error() string { return r.message }

// status returns how a refusal is said over gRPC and over HTTP. Senders try again after Unavailable and 503: not after 408.
func (r *refusal) status() (grpc codes.Code, overHTTP int) {
	switch r.reason {
	case ReasonBusy, ReasonSlow:
		return codes.Unavailable, http.StatusServiceUnavailable
	case ReasonTooLarge:
		return codes.ResourceExhausted, http.StatusRequestEntityTooLarge
	default:
		return codes.InvalidArgument, http.StatusBadRequest
	}
}

var (
	errBusy = &refusal{ReasonBusy, "the requests under way take all the memory there is for them: try again later, " + raise}
	// errTooLarge would not fit if it were alone.
	errTooLarge = &refusal{ReasonTooLarge, "decoded, the request takes more memory than all requests may: send smaller batches, " + raise}
	errTooDeep  = &refusal{ReasonTooDeep, "an attribute is nested deeper than 128 values: flatten it"}

	errMalformed = &refusal{ReasonMalformed, "the request is no OTLP: it is cut or damaged, or of another encoding than it says"}
	errUnknown   = &refusal{ReasonMalformed, "the request is none of traces, metrics or logs that this receiver knows"}
	errGroup     = &refusal{ReasonMalformed, "the request has groups of protobuf, which OTLP does not have"}
	errSlow      = &refusal{ReasonSlow, "the request did not come in time, or came slowly while others needed its room: send it again, " +
		"in smaller batches where the way here is slow"}
	errStopping = &refusal{ReasonBusy, "the receiver stops: send the request again to the one that takes its place"}
)

// raise is what whoever runs the receiver can do, in a Collector and in the command.
const raise = "or give the receiver more (admission::request_limit_mib of a Collector, --request-limit of moonloop capture)"

// Gate admits requests. It is an extension of the Collector's kind "middleware", for gRPC and HTTP servers.
type Gate struct {
	opt     Options
	paths   map[string]*message
	decoded sync.Map // the *upload of the message that a gRPC server has decoded into, until its call takes it over

	mu       sync.Mutex
	used     int64                // bytes that the requests in flight take
	uploads  map[*upload]struct{} // of which not everything is there
	halting  []*upload            // whose reading is to be stopped when mu is free
	nextLook time.Time            // not before it are slow ones looked for again
	stopped  bool
}

// Options says how much a [Gate] admits.
type Options struct {
	// Limit is the memory that requests may take together, in bytes.
	Limit int64
	// HTTPTimeout and GRPCTimeout are how long a request may take to come, from its headers on.
	HTTPTimeout, GRPCTimeout time.Duration
	Paths                    Paths
	// Refused is called for each request that is refused, by several goroutines at once.
	Refused func(Reason)
}

// Paths are the URL paths of the signals over HTTP.
type Paths struct{ Traces, Metrics, Logs string }

// NewGate returns a gate.
func NewGate(opt Options) *Gate {
	return &Gate{opt: opt, uploads: map[*upload]struct{}{}, paths: map[string]*message{
		opt.Paths.Traces: tracesRequest, opt.Paths.Metrics: metricsRequest, opt.Paths.Logs: logsRequest,
	}}
}

// Start does nothing: the gate is there as long as its receiver, which shuts it down.
func (*Gate) Start(context.Context, component.Host) error { return nil }

// Shutdown ends the requests of which not everything is there, and takes no more, so that the end of a server waits for
// nobody who does not send. Their senders are told to try again.
func (g *Gate) Shutdown(context.Context) error {
	g.mu.Lock()
	defer g.unlock()
	g.stopped = true
	for u := range g.uploads {
		g.end(u, errStopping)
	}
	return nil
}

// Host is a host that has one more extension, the gate.
type Host struct {
	component.Host
	id   component.ID
	gate *Gate
}

// NewHost returns a host with a gate under an id.
func NewHost(host component.Host, id component.ID, gate *Gate) *Host { return &Host{host, id, gate} }

// GetExtensions returns the extensions of the host and the gate.
func (h *Host) GetExtensions() map[component.ID]component.Component {
	all := map[component.ID]component.Component{h.id: h.gate}
	maps.Copy(all, h.Host.GetExtensions())
	return all
}

// Report passes a status on.
func (h *Host) Report(e *componentstatus.Event) { componentstatus.ReportStatus(h.Host, e) }
