// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import "github.com/moonloop/moonloop/semconv"

// allowedNames are those of ids, models, reasons and addresses beyond the facts of the GenAI dialects.
var allowedNames = []string{
	"exception.escaped", semconv.ServerAddress, semconv.ServerPort, "client.address", "client.port", "peer.service", "service.peer.name",
	"network.peer.address", "network.peer.port", "network.protocol.name", "network.protocol.version", "network.transport",
	"network.type", "net.peer.name", "net.peer.ip", "net.host.name", "net.transport",
	semconv.HTTPRequestMethod, semconv.HTTPRequestResendCount, semconv.HTTPRoute, "http.method",
	"http.status_code", "http.scheme", "http.flavor", "url.scheme", "url.domain",
	"rpc.system", "rpc.system.name", "rpc.service", "rpc.method", "rpc.response.status_code",
	"span.kind", "span.type", "otel.status_code", "thread.name", "code.function.name", "code.function", "code.namespace",
	"code.file.path", "request.id", "request_id", "enduser.id", "user.id",
	"http.request.header.x-request-id", "http.request.header.x_request_id", "http.response.header.x-request-id",
	"http.response.header.x_request_id", "http.request.header.x-correlation-id", "http.response.header.x-correlation-id",
	"http.request.header.traceparent", "http.request.header.content-type", "http.response.header.content-type",
	"http.request.header.content-length", "http.response.header.content-length", "http.response.header.retry-after",
	"deployment.environment", "deployment.environment.name", semconv.ServiceName, semconv.ServiceVersion, semconv.ServiceInstanceID,
	"service.namespace", "telemetry.sdk.name", "telemetry.sdk.language", "telemetry.sdk.version",
}

// addressNames hold URLs. A query is what somebody searches for, or a key; user and password stand before the host.
var addressNames = []string{
	semconv.URLFull, "url.original", "http.url", "http.target", "http.path", "http.referer", "http.referrer", "http.request.url",
	"http.request.header.referer", "http.response.header.location", "http.request.header.location", "next.url",
}

// deniedNames hold text on telemetry that is not of GenAI, beyond the names that the GenAI dialects have.
//
// An exception rises through every span above the request that it comes from, and providers and HTTP clients quote the
// request in its message, which is also the first line of the stack trace. Statements and parameters of a database are
// how an application stores its conversations; their summary, operation and collection stay. Headers and queries are
// where keys are.
var deniedNames = []string{
	"exception.message", "exception.stacktrace", "error.message", "error.stack", "otel.status_description",
	"db.query.text", "db.query.parameter.*", "db.operation.parameter.*", "db.statement", "db.statement.*",
	"db.connection_string", "db.mongodb.command", "mongodb.query.*", "elasticsearch.body", "log.record.original",
	"url.query", "url.fragment", "http.query", "http.query_string", "http.query_params*", "http.request.query*",
	"http.request.header.*", "http.response.header.*", "http.request.headers*", "http.response.headers*", "http.headers*",
	"http.cookie*", "http.request.cookie*", "http.response.cookie*", "authorization", "*.authorization", "cookie", "*.cookie", "api_key", "*.api_key",
	"http.request.body", "http.request.body.*", "http.response.body", "http.response.body.*",
	"graphql.document", "graphql.variables*", "rpc.request.body", "rpc.response.body",
	"rpc.grpc.request.*", "rpc.grpc.response.*", "rpc.request.metadata.*", "rpc.response.metadata.*",
	"rpc.connect_rpc.request.*", "rpc.connect_rpc.response.*",
	"messaging.message.body", "messaging.message.payload", "message.payload", "feature_flag.evaluation.error.message",
	"fastapi.arguments.*",
}
