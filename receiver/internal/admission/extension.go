// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"maps"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
)

// Start does nothing: the gate is there as long as its receiver, which shuts it down.
func (*Gate) Start(context.Context, component.Host) error { return nil }

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
	all := map[component.ID]component.Component{}
	maps.Copy(all, h.Host.GetExtensions())
	all[h.id] = h.gate
	return all
}

// Report passes a status on.
func (h *Host) Report(e *componentstatus.Event) { componentstatus.ReportStatus(h.Host, e) }
