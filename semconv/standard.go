// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

// Attributes of the general semantic conventions.
const (
	// ErrorType is a string: why a request was not served. Ours is the class of the failure ("connect_timeout"), or the HTTP status as
	// text ("503"); [ErrorOther] if a metric would have too many values.
	ErrorType = "error.type"

	ServerAddress = "server.address" // string: host name or IP address of the engine
	ServerPort    = "server.port"    // int

	HTTPRequestMethod      = "http.request.method"       // string
	HTTPRequestResendCount = "http.request.resend_count" // int: how often it was sent again, for any reason; absent when 0
	HTTPResponseStatusCode = "http.response.status_code" // int; absent when no reply came
	HTTPRoute              = "http.route"                // string
	URLFull                = "url.full"                  // string
	URLPath                = "url.path"                  // string

	// On the resource.
	ServiceName       = "service.name"        // string
	ServiceVersion    = "service.version"     // string
	ServiceInstanceID = "service.instance.id" // string: different for each process, because otherwise the series of two processes collide
)

// ErrorOther is the value of [ErrorType] for an error without its own name.
const ErrorOther = "_OTHER"

// DefaultServiceName is the service.name of a replay, unless OTEL_SERVICE_NAME sets another.
const DefaultServiceName = "moonloop"
