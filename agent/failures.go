// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
)

// mostClasses is the number of classes of failure that a missed limit names.
const mostClasses = 3

// classes says of what kinds failures are, the most frequent first: "12 connection refused or unreachable, 5 connection broken".
func classes(reasons []measure.Reason) string {
	var parts []string
	rest := int64(0)
	for i, r := range reasons {
		if i < mostClasses {
			parts = append(parts, fmt.Sprintf("%d %s", r.Count, inWords(r.Reason)))
		} else {
			rest += r.Count
		}
	}
	if rest > 0 {
		parts = append(parts, fmt.Sprintf("%d of other kinds", rest))
	}
	return strings.Join(parts, ", ")
}

// inWords names a class of failure for people who have not read the documentation.
func inWords(reason string) string {
	if _, err := strconv.Atoi(reason); err == nil {
		return "with HTTP status " + reason
	}
	if text, known := failureWords[reason]; known {
		return text
	}
	return reason
}

var failureWords = map[string]string{
	string(send.ClassDNS):               "name not resolved",
	string(send.ClassConnect):           "connection refused or unreachable",
	string(send.ClassTLS):               "TLS handshake failed",
	string(send.ClassConnectTimeout):    "connect timeout",
	string(send.ClassFirstTokenTimeout): "first-token timeout",
	string(send.ClassIdleTimeout):       "idle timeout",
	string(send.ClassTotalTimeout):      "request timeout",
	string(send.ClassRateLimited):       "rate limited (HTTP status 429)",
	string(send.ClassStreamError):       "error within the stream",
	string(send.ClassRejected):          "found invalid by the engine",
	string(send.ClassIncomplete):        "stream without a finish reason",
	string(send.ClassTransport):         "connection broken",
	string(send.ClassProtocol):          "reply in another format",
	string(send.ClassLimit):             "reply too large",
	measure.FailUnsendable:              "request could not be built",
	"_OTHER":                            "of other classes",
}
