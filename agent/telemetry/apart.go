// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

// This file writes the spans of requests that are no rows of the trace, for whoever captures beside a replay.

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/moonloop/moonloop/semconv"
)

// maxResponseID bounds a response id that is written down, in bytes; the longest that are known have some 60.
const maxResponseID = 256

// Apart is a request that no row of the trace asks for: of calibration, or of a warm-up.
type Apart struct {
	Name     string // of its span
	Model    string
	Response string        // the response's id
	From, To time.Duration // of the run's clock
}

// Apart writes the span of a request that was answered with an id; there is none of any other. Such a request carries no recorded
// trace context, and a gateway may not pass that on; then the engine behind it writes a span that looks like production's. By the id
// of the response a capture knows better. A nil Pipeline does nothing.
func (p *Pipeline) Apart(a Apart) {
	if p == nil || p.tracer == nil || a.Response == "" || len(a.Response) > maxResponseID {
		return
	}
	span := p.start(context.Background(), a.Name, a.From, clientKind)
	span.SetAttributes(p.base...)
	span.SetAttributes(attribute.String(semconv.GenAIRequestModel, or(a.Model, p.cfg.Model)), attribute.String(semconv.GenAIResponseID, a.Response))
	if ended := p.stop(span, a.To); ended != nil {
		p.queue.add(ended)
	}
}
