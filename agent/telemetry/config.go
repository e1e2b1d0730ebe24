// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/semconv"
)

// Mode is the form in which the arrivals of output chunks are recorded on a request's span.
type Mode string

// The modes. The zero Mode is EventsAll.
const (
	EventsAll   Mode = "all"   // one span event per chunk
	EventsArray Mode = "array" // one attribute with all gaps, a tenth of the bytes
	EventsFirst Mode = "first" // an event for the first chunk only
	EventsNone  Mode = "none"  // nothing
)

// Protocols of OTLP, the values of Config.Protocol.
const (
	ProtocolGRPC = "grpc"
	ProtocolHTTP = "http/protobuf"
)

// The defaults of Config.
const (
	// DefaultQueueBytes is the maximum size of the spans that wait for the exporter. At 20 kB, a span with 343 token events, that is 3,300
	// requests.
	DefaultQueueBytes = 64 << 20
	// DefaultBatchBytes is about 2,500 token events, which take half a millisecond to encode: on one core, nothing else happens meanwhile,
	// and no token is read.
	DefaultBatchBytes = 128 << 10
	// DefaultMessageBytes is the maximum size of a message into which batches are joined when the queue fills or the run is over, because
	// each message takes a round trip. With its resource it is below the default limit of gRPC servers, 4 MiB.
	DefaultMessageBytes = 3 << 20
	// DefaultBatchSpans is the SDK's.
	DefaultBatchSpans = 512
	// DefaultLinger is how long the first span of a batch waits for others.
	DefaultLinger = time.Second
	// DefaultExportTimeout is the time limit of one export, as in the SDK; OTEL_EXPORTER_OTLP_TIMEOUT, 10 s by default, limits it, too.
	// Spans that were not delivered in that time are kept and sent again. At the end of a run, a receiver that does not answer has four
	// times this long.
	DefaultExportTimeout = 30 * time.Second
	// DefaultMetricInterval is the time between two exports of metrics. The SDK's default, a minute, is longer than many runs.
	DefaultMetricInterval = 10 * time.Second
)

// Config configures the telemetry of one run. The zero value works, and is off unless an OTEL_* variable turns it on.
type Config struct {
	RunID   string // mooncake.run.id on the resource
	Version string // service.version and the version of the instrumentation scope

	// Force turns traces and metrics on even without an OTEL_* variable. A signal whose exporter is "none" by its variable stays off, and
	// OTEL_SDK_DISABLED turns everything off.
	Force bool
	// Endpoint is the base URL of an OTLP receiver, such as http://localhost:4318. It overrides OTEL_EXPORTER_OTLP_*ENDPOINT and implies
	// Force. Headers, certificates and everything else come from the OTEL_EXPORTER_OTLP_* variables.
	Endpoint string
	// Protocol is ProtocolGRPC or ProtocolHTTP; empty = OTEL_EXPORTER_OTLP_PROTOCOL and similar variables, else ProtocolHTTP.
	Protocol string

	TokenEvents Mode // empty = EventsAll
	// ExplicitHistograms exports histograms with the bucket lists of the conventions, for backends that support no others. Otherwise
	// buckets are exponential: percentiles are accurate to 2 % with a tenth of the series, while those of the lists are off by up to 78 %.
	ExplicitHistograms bool

	// Trace and Digest identify what is replayed: the trace without directories and secrets, and its seq_digest, "" if it is unknown.
	Trace, Digest string
	// SLO is the service level that a good request meets; zero = none.
	SLO measure.SLO

	// QueueBytes and BatchBytes count encoded OTLP, BatchSpans spans; 0 = the default. A message of several spans is not larger than
	// BatchBytes, if that is set, else than DefaultMessageBytes.
	QueueBytes, BatchBytes, BatchSpans int
	messageBytes                       int
	// Linger, ExportTimeout and MetricInterval: 0 = the OTEL_BSP_* or OTEL_METRIC_EXPORT_INTERVAL variable, else the default.
	Linger, ExportTimeout, MetricInterval time.Duration

	// SpanExporter and MetricReader replace those that the variables name, and turn their signal on. The pipeline shuts them down.
	SpanExporter sdktrace.SpanExporter
	MetricReader sdkmetric.Reader
	// FurtherReader is an additional reader of metrics, and turns metrics on. The pipeline shuts it down.
	FurtherReader sdkmetric.Reader
	// OtherSpanExporter and OtherMetricReader make the exporters that OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER name, if that is
	// neither otlp nor none. The functions of autoexport can be used; they are not called here because of their dependencies. nil = such a
	// name is an error.
	OtherSpanExporter func(context.Context) (sdktrace.SpanExporter, error)
	OtherMetricReader func(context.Context) (sdkmetric.Reader, error)

	Provider      string // gen_ai.provider.name; empty = "_OTHER"
	Operation     string // gen_ai.operation.name; empty = "chat"
	Model         string // gen_ai.request.model of requests whose record has none
	ServerAddress string // server.address; empty = from the records, because there are several engines
	ServerPort    int    // server.port; 0 = not stated
	Engines       string // all engines, for the run's info metric

	Speedup       float64 // mooncake.schedule.speedup; 0 = 1
	HashDomain    string  // mooncake.hash.domain; empty = not stated
	BlockSize     int     // tokens per hash id; 0 = 512
	FineBlockSize int     // tokens per id of hash_ranges; 0 = rows have none
}

// Validate reports all errors of the configuration itself. It does not read the environment.
func (c *Config) Validate() error {
	var errs []error
	if !slices.Contains([]Mode{"", EventsAll, EventsArray, EventsFirst, EventsNone}, c.TokenEvents) {
		errs = append(errs, fmt.Errorf("token events %q: want all, array, first or none", c.TokenEvents))
	}
	if !slices.Contains([]string{"", ProtocolGRPC, ProtocolHTTP}, c.Protocol) {
		errs = append(errs, fmt.Errorf("OTLP protocol %q: want %s or %s", c.Protocol, ProtocolGRPC, ProtocolHTTP))
	}
	if c.Endpoint != "" {
		_, err := parseEndpoint("OTLP endpoint", c.Endpoint)
		errs = append(errs, err)
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"queue bytes", int64(c.QueueBytes)},
		{"batch bytes", int64(c.BatchBytes)},
		{"batch spans", int64(c.BatchSpans)},
		{"linger", int64(c.Linger)},
		{"export timeout", int64(c.ExportTimeout)},
		{"metric interval", int64(c.MetricInterval)},
	} {
		if n.value < 0 {
			errs = append(errs, fmt.Errorf("telemetry: %s: it is below 0", n.name))
		}
	}
	return errors.Join(errs...)
}

// withDefaults fills in defaults, from the environment if it has them.
func (c Config) withDefaults() Config {
	c.TokenEvents = cmp.Or(c.TokenEvents, EventsAll)
	c.Provider = cmp.Or(c.Provider, semconv.ProviderOther)
	c.Operation = cmp.Or(c.Operation, semconv.OperationChat)
	c.BlockSize = cmp.Or(c.BlockSize, 512)
	c.Speedup = cmp.Or(c.Speedup, 1)
	c.QueueBytes = cmp.Or(c.QueueBytes, DefaultQueueBytes)
	c.messageBytes = cmp.Or(c.BatchBytes, DefaultMessageBytes)
	c.BatchBytes = cmp.Or(c.BatchBytes, DefaultBatchBytes)
	c.BatchSpans = cmp.Or(c.BatchSpans, envInt("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), DefaultBatchSpans)
	c.Linger = cmp.Or(c.Linger, envMillis("OTEL_BSP_SCHEDULE_DELAY"), DefaultLinger)
	c.ExportTimeout = cmp.Or(c.ExportTimeout, envMillis("OTEL_BSP_EXPORT_TIMEOUT"), DefaultExportTimeout)
	c.MetricInterval = cmp.Or(c.MetricInterval, envMillis("OTEL_METRIC_EXPORT_INTERVAL"), DefaultMetricInterval)
	return c
}

// envInt returns the positive number in a variable, else 0.
func envInt(name string) int {
	n, err := strconv.Atoi(strings.TrimSpace(os.Getenv(name)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// envMillis returns the duration in a variable, in milliseconds, as in OTEL_* variables, else 0.
func envMillis(name string) time.Duration { return time.Duration(envInt(name)) * time.Millisecond }
