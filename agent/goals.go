// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/semconv"
)

// missed returns the goals that the engine missed: in the whole run, and, for goodput, in the part that is shown.
func (l limits) missed(f, shown *measure.Figures) (missed []string) {
	if tried := f.Rows.Served + f.Rows.Failed; float64(f.Rows.Failed) > l.maxErrors*float64(tried) {
		missed = append(missed, fmt.Sprintf("errors: %d of %d requests failed: %s; at most %.4g %% may fail (--max-error-rate)",
			f.Rows.Failed, tried, classes(f.Errors), 100*l.maxErrors))
	}
	if l.goodput > 0 {
		if good, ok := shown.Stat(measure.GoodFraction); !ok || good.Avg < l.goodput {
			missed = append(missed, fmt.Sprintf("goodput: %.4g %% of the requests met %s, the goal is %g %%", 100*good.Avg, l.slo, 100*l.goodput))
		}
	}
	return missed
}

// Missed returns the goals that figures miss. There are two goals: that a share of at most maxErrors of the requests fails, and that a
// share of at least goodput meets slo (goodput 0 = no such goal).
func Missed(f *measure.Figures, maxErrors, goodput float64, slo measure.SLO) []string {
	return limits{maxErrors: maxErrors, goodput: goodput, slo: slo}.missed(f, f)
}

// mostClasses is the maximum number of classes of failure in a message about a missed limit.
const mostClasses = 3

// classes lists the classes of failures, the most frequent first: "12 connection refused or unreachable, 5 connection broken". Failures
// without a class of their own are part of the rest, at the end.
func classes(reasons []measure.Reason) string {
	var parts []string
	rest := int64(0)
	for _, r := range reasons {
		if r.Reason != semconv.ErrorOther && len(parts) < mostClasses {
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

// inWords returns the name of a class of failure for people who have not read the documentation.
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
	string(send.ClassAbort):             "ended by the engine (finish reason abort)",
	string(send.ClassError):             "failed in the engine (finish reason error)",
	string(send.ClassRejected):          "rejected as invalid by the engine",
	string(send.ClassIncomplete):        "stream without a finish reason",
	string(send.ClassTransport):         "connection broken",
	string(send.ClassProtocol):          "reply in an unexpected format",
	string(send.ClassLimit):             "reply too large",
	measure.FailUnsendable:              "request could not be built",
}
