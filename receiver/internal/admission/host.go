// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/extension/extensionauth"
)

// This file counts what a server refuses before a request reaches the gate.

// Host is a host that has the gate as one more extension, and authenticators that count.
type Host struct {
	component.Host
	gate *Gate
	opt  HostOptions
}

// HostOptions has the ids of extensions.
type HostOptions struct {
	Gate component.ID // of the gate
	// GRPC is the authenticator of the gRPC server, if there is one.
	GRPC component.ID
	// Entrance is the authenticator that the HTTP server must use, and HTTP is the one that decides in its place, if there is one. An HTTP
	// server decompresses a request after its authenticator and before its middlewares, so only an authenticator sees all requests.
	Entrance, HTTP component.ID
}

// NewHost returns a host with a gate.
func NewHost(host component.Host, gate *Gate, opt HostOptions) *Host { return &Host{host, gate, opt} }

// GetExtensions returns the extensions of the host, the gate, and the authenticators.
func (h *Host) GetExtensions() map[component.ID]component.Component {
	all := maps.Clone(h.Host.GetExtensions())
	if all == nil {
		all = map[component.ID]component.Component{}
	}
	http, _ := all[h.opt.HTTP].(extensionauth.Server)
	if grpc, ok := all[h.opt.GRPC].(extensionauth.Server); ok {
		all[h.opt.GRPC] = &authenticator{server: grpc, gate: h.gate}
	}
	all[h.opt.Gate] = h.gate
	all[h.opt.Entrance] = &entrance{authenticator{server: http, gate: h.gate}}
	return all
}

// Report forwards a status.
func (h *Host) Report(e *componentstatus.Event) { componentstatus.ReportStatus(h.Host, e) }

// authenticator counts what another one, if there is one, refuses.
type authenticator struct {
	component.StartFunc
	component.ShutdownFunc
	server extensionauth.Server
	gate   *Gate
}

// Authenticate asks the other one.
func (a *authenticator) Authenticate(ctx context.Context, sources map[string][]string) (context.Context, error) {
	if a.server == nil {
		return ctx, nil
	}
	ctx, err := a.server.Authenticate(ctx, sources)
	if err != nil {
		a.gate.opt.Refused(ReasonUnauthenticated)
	}
	return ctx, err
}

// entrance is where requests come to an HTTP server. It counts those that end before they reach the gate: they cannot be decompressed.
type entrance struct{ authenticator }

// Authenticate asks the other authenticator, and begins to watch the request. Its context ends with its reply.
func (e *entrance) Authenticate(ctx context.Context, sources map[string][]string) (context.Context, error) {
	admitted, err := e.authenticator.Authenticate(ctx, sources)
	if err != nil {
		return admitted, err
	}
	begun := time.Now()
	reached := context.AfterFunc(ctx, func() {
		// The server's deadline began before the watch, when it began to read the head.
		if limit := e.gate.opt.HTTPTimeout; limit > 0 && time.Since(begun) >= limit-min(limit/2, time.Second) {
			e.gate.opt.Refused(ReasonSlow)
			return
		}
		e.gate.opt.Refused(ReasonEncoding)
	})
	return context.WithValue(admitted, reachedKey{}, reached), nil
}

// reachedKey is the key of the function that ends the watch of an entrance.
type reachedKey struct{}

// reach notes that a request has reached the gate.
func reach(ctx context.Context) {
	if reached, ok := ctx.Value(reachedKey{}).(func() bool); ok {
		reached()
	}
}
