// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net/http"
	"slices"
	"strings"
)

// This file tells which instance behind a router has served a request, from a header of its reply.

// instanceHeaders are those in which routers and engines name an instance, unless Config.InstanceHeader says which: the inference simulator
// of llm-d; SGLang's model gateway; LiteLLM, whose deployments they are; production-stack's router; and a gateway that passes on what the
// endpoint picker of Kubernetes' inference extension is told.
var instanceHeaders = []string{
	"X-Inference-Pod", "X-Smg-Worker-Id", "X-Litellm-Model-Id", "X-Backend-Id", "X-Backend-Server", "X-Gateway-Destination-Endpoint-Served",
}

// InstanceHeaders are the headers that are read by default, the first one that a reply has.
func InstanceHeaders() []string { return slices.Clone(instanceHeaders) }

// instance returns the instance that the headers of a reply name; empty where they name none.
func (c *Config) instance(h http.Header) string {
	if c.InstanceHeader != "" {
		return bounded(h.Get(c.InstanceHeader))
	}
	for _, header := range instanceHeaders {
		if value := h.Get(header); value != "" {
			return bounded(value)
		}
	}
	return ""
}

// bounded is what is kept of a name.
func bounded(value string) string { return strings.ToValidUTF8(value[:min(len(value), maxName)], "") }
