// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"strings"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// What may be left of a value.
const (
	maxName  = 256  // bytes of a name, and of a value on GenAI telemetry: more is a text
	maxValue = 1024 // bytes of a value on other telemetry, nested ones together
	maxState = 512  // bytes of a trace state, which is what W3C asks everybody to pass on
)

const ownPrefix = "mooncake."

// verdict says what becomes of an attribute because of its name.
type verdict uint8

const (
	unknown verdict = iota // stays on other telemetry where it is short, goes from GenAI telemetry
	allowed                // stays where it is short
	denied                 // goes
	banned                 // goes, numbers too: the configuration says so
)

// rule is a name, or the beginning of names, and its verdict.
type rule struct {
	name    string // as the counts show it
	verdict verdict
}

// rules is the allow-list and the deny-table.
type rules struct {
	exact    map[string]rule
	prefixes [256][]rule // by first byte, banned ones first; names without their *
	bans     bool
}

// allowedNames are those of ids, models, reasons and addresses beyond the facts of the GenAI dialects.
var allowedNames = []string{
	"error.type", "exception.type", "exception.escaped",
	"server.address", "server.port", "client.address", "client.port", "peer.service", "service.peer.name",
	"network.peer.address", "network.peer.port", "network.protocol.name", "network.protocol.version", "network.transport",
	"network.type", "net.peer.name", "net.peer.ip", "net.host.name", "net.transport",
	"http.request.method", "http.request.resend_count", "http.response.status_code", "http.route", "http.method",
	"http.status_code", "http.scheme", "http.flavor", "url.path", "url.scheme", "url.domain",
	"rpc.system", "rpc.system.name", "rpc.service", "rpc.method", "rpc.response.status_code",
	"span.kind", "span.type", "otel.status_code", "thread.name", "code.function.name", "code.function", "code.namespace",
	"code.file.path", "request.id", "request_id", "http.request.header.x-request-id", "enduser.id", "user.id",
	"deployment.environment", "deployment.environment.name", "service.name", "service.version", "service.instance.id",
	"service.namespace", "telemetry.sdk.name", "telemetry.sdk.language", "telemetry.sdk.version",
}

// deniedNames hold text on telemetry that is not of GenAI, beyond the names that the GenAI dialects have.
//
// An exception rises through every span above the request that it comes from, and providers and HTTP clients quote the
// request in its message, which is also the first line of the stack trace. Statements and parameters of a database are
// how an application stores its conversations; their summary, operation and collection stay.
var deniedNames = []string{
	"exception.message", "exception.stacktrace", "error.message", "error.stack", "otel.status_description",
	"db.query.text", "db.query.parameter.*", "db.operation.parameter.*", "db.statement", "db.statement.*",
	"http.request.body", "http.request.body.*", "http.response.body", "http.response.body.*",
	"graphql.document", "graphql.variables*", "rpc.request.body", "rpc.response.body", "rpc.grpc.request.*",
	"messaging.message.body", "messaging.message.payload", "message.payload", "feature_flag.evaluation.error.message",
}

// newRules returns the rules of a configuration: what it denies comes first, then what it calls a session, then
// exact names, then beginnings of names.
func newRules(c Config) *rules {
	r := &rules{exact: map[string]rule{}, bans: len(c.Deny) > 0}
	for _, name := range c.Deny {
		r.put(name, banned)
	}
	for _, name := range c.SessionKeys {
		r.put(name, allowed)
	}
	r.put(ownPrefix+"*", allowed)
	for _, name := range allowedNames {
		r.put(name, allowed)
	}
	for name, kind := range genai.Names() {
		if kind == genai.NameFact {
			r.put(name, allowed)
		} else {
			r.put(name, denied)
		}
	}
	for _, name := range deniedNames {
		r.put(name, denied)
	}
	return r
}

// put adds a rule. The first one of a name counts.
func (r *rules) put(name string, v verdict) {
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		r.prefixes[prefix[0]] = append(r.prefixes[prefix[0]], rule{prefix, v})
		return
	}
	if _, ok := r.exact[name]; !ok {
		r.exact[name] = rule{name, v}
	}
}

// of returns the rule of a name, the zero rule if there is none.
func (r *rules) of(name string) rule {
	if name == "" {
		return rule{}
	}
	exact, ok := r.exact[name]
	if ok && !r.bans {
		return exact
	}
	for _, p := range r.prefixes[name[0]] {
		if strings.HasPrefix(name, p.name) && (!ok || p.verdict == banned && exact.verdict != banned) {
			return rule{p.name + "*", p.verdict}
		}
	}
	return exact
}

// series are the attributes that hold numbers without a bound.
func series(name string) bool {
	switch name {
	case semconv.HashIDs, semconv.TokenGaps, semconv.TokenCounts:
		return true
	}
	return false
}
