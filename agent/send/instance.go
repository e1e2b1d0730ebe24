// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net/http"
	"strings"
)

// This file determines which instance behind a router has served a request, from a response header.

// instanceHeaders are the headers in which routers and engines name an instance, unless Config.InstanceHeader is set: those of llm-d's
// inference simulator; SGLang's model gateway; LiteLLM, where an instance is a deployment; production-stack's router; and a gateway that
// forwards the header of the endpoint picker of Kubernetes' inference extension. If a reply has several, the one that comes first here counts.
var instanceHeaders = []string{
	"X-Inference-Pod", "X-Smg-Worker-Id", "X-Litellm-Model-Id", "X-Backend-Id", "X-Backend-Server", "X-Gateway-Destination-Endpoint-Served",
}

// instance returns the instance in the headers of a reply; empty if there is none.
func (c *Config) instance(h http.Header) string {
	if c.InstanceHeader != "" {
		return bounded(h.Get(c.InstanceHeader))
	}
	for _, header := range instanceHeaders {
		if values := h[header]; len(values) > 0 && values[0] != "" { // Get would check the name each time
			return bounded(values[0])
		}
	}
	return ""
}

// bounded shortens a name.
func bounded(value string) string { return strings.ToValidUTF8(value[:min(len(value), maxName)], "") }
