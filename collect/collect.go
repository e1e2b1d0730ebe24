// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package collect is a capture in one process: this module's receiver listens for OTLP, and its exporter, directly after it, writes a
// journal. "moonloop capture" is this package with flags. There is no Collector and no queue between the two, so acknowledged telemetry is
// in the journal.
//
// A capture ends with [Collector.Stop]. [capture.Compile] then makes traces from its [Journals], and [Traces] can analyse the traces while
// they are written.
//
// Nothing here prints. Messages for people go to [Config.Warn] while a capture runs, and [Collector.Counts] has the counts so far.
package collect

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	collectorexporter "go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	collectorreceiver "go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/exporter"
	"github.com/moonloop/moonloop/internal/bearer"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// Config configures a [Collector]. Journal and one of the addresses are required.
type Config struct {
	// GRPC and HTTP are addresses to listen on for OTLP, host:port. An empty one is not used; port 0 picks a free port.
	GRPC, HTTP string
	// TLS has the certificate files of both listeners. Its zero value means no TLS.
	TLS TLS
	// Token is the bearer key that senders must present. Empty = everyone may send.
	Token string
	// Journal is the folder of the journals. The folder is created if it does not exist; only one collector at a time can write to it.
	Journal string
	// BlockSize is the number of tokens per hash id of prompts that do not come from a replay; 0 = 512.
	BlockSize int
	// Key is the key with which prompts and sessions are hashed: at least 32 bytes. Empty = a random one, with which prompts match those of
	// no other capture.
	Key string
	// SessionKeys are attributes with a session's id, which take precedence over the known attributes.
	SessionKeys []string
	// ClassKeys are attributes with the class of a request, in the same way.
	ClassKeys []string
	// Deny are attributes that are removed from every span. A trailing * matches any ending.
	Deny []string
	// PromptOrders say in which order the chat templates of models write prompts.
	PromptOrders []annotate.ModelOrder
	// RequestLimit is the maximum memory of all OTLP requests being received, in bytes; 0 = the receiver's default.
	RequestLimit int64
	// Warn is called with messages for people, one line each; may be nil. It is called from several goroutines.
	Warn func(text string)
	// Version is that of the program, for the components.
	Version string
	// Metrics is an additional reader of the metrics of receiver and exporter; may be nil. Its owner shuts it down, after [Collector.Stop].
	Metrics sdkmetric.Reader
}

// TLS has the files of the listeners' certificate, in PEM.
type TLS struct {
	CertFile, KeyFile string
	// ClientCAFile has the authorities that must have issued the senders' certificates; empty = senders need none.
	ClientCAFile string
}

// ListenError is the error for an address that cannot be listened on.
type ListenError struct {
	Protocol string // grpc or http
	Err      error
}

func (e *ListenError) Error() string {
	return "listen for OTLP over " + e.Protocol + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// ErrJournal marks the error for a journal that cannot be written: another collector writes to it, or the folder cannot be created.
var ErrJournal = errors.New("journal")

// Collector listens and writes a journal. Its methods are safe for concurrent use.
type Collector struct {
	// GRPC and HTTP are the addresses in use, with their actual ports; empty if not used.
	GRPC, HTTP string

	seen   tally
	broken chan error

	receiver, exporter component.Component
	metrics            *sdkmetric.ManualReader // what the components count
}

// Start starts a collector, which listens and writes until [Collector.Stop]. Its error is a [*ListenError], [ErrJournal] or about invalid
// settings.
func Start(ctx context.Context, cfg Config) (*Collector, error) {
	if cfg.BlockSize == 0 {
		cfg.BlockSize = mooncake.BlockSize
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string) {}
	}
	if cfg.Key == "" {
		cfg.Key = rand.Text() + rand.Text() // 52 characters, 260 bits
	}
	counted := sdkmetric.NewManualReader()
	options := []sdkmetric.Option{
		sdkmetric.WithReader(counted),
		sdkmetric.WithResource(resource.NewSchemaless(attribute.String(semconv.ServiceName, "moonloop-capture"))),
	}
	if cfg.Metrics != nil {
		options = append(options, sdkmetric.WithReader(cfg.Metrics))
	}
	metrics := sdkmetric.NewMeterProvider(options...) // one for all attempts, because a reader has one provider
	for attempt := 1; ; attempt++ {
		c, err := try(ctx, cfg, metrics)
		if c != nil {
			c.metrics = counted
		}
		// A free port is found by opening and closing it, so another process may take it meanwhile. A ListenError is about a port that was
		// not free.
		_, taken := errors.AsType[*ListenError](err)
		if taken || attempt == 5 || !errors.Is(err, syscall.EADDRINUSE) {
			return c, err
		}
	}
}

func try(ctx context.Context, cfg Config, metrics *sdkmetric.MeterProvider) (*Collector, error) {
	c := &Collector{broken: make(chan error, 1)}
	c.seen.warn = cfg.Warn
	protocols, err := c.protocols(ctx, cfg)
	if err != nil {
		return nil, err
	}
	telemetry := component.TelemetrySettings{
		Logger:         zap.New(warningCore{zapcore.WarnLevel, cfg.Warn, new(sync.Map)}),
		TracerProvider: nooptrace.NewTracerProvider(),
		MeterProvider:  metrics,
		Resource:       pcommon.NewResource(),
	}
	build := component.BuildInfo{Command: "moonloop capture", Description: "moonloop", Version: cfg.Version}
	sink, err := newExporter(ctx, cfg, telemetry, build)
	if err != nil {
		return nil, fmt.Errorf("exporter: %w", err)
	}
	c.exporter = sink
	if c.receiver, err = newReceiver(ctx, cfg, telemetry, build, protocols, c.seen.tap(sink), c.seen.discard); err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}
	host := host{broken: c.broken}
	if cfg.Token != "" {
		host.extensions = map[component.ID]component.Component{bearerID: guard{key: bearer.New(cfg.Token)}}
	}
	if err := c.exporter.Start(ctx, host); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJournal, errors.Join(err, c.receiver.Shutdown(ctx)))
	}
	if err := c.receiver.Start(ctx, host); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for OTLP: %w", err), c.receiver.Shutdown(ctx), c.exporter.Shutdown(ctx))
	}
	return c, nil
}

// protocols returns the receiver's settings for its addresses, and stores the addresses in c.
func (c *Collector) protocols(ctx context.Context, cfg Config) (map[string]any, error) {
	protocols := map[string]any{}
	for _, l := range []struct {
		name, address string
		bound         *string
	}{{"grpc", cfg.GRPC, &c.GRPC}, {"http", cfg.HTTP, &c.HTTP}} {
		if l.address == "" {
			continue
		}
		address, err := freeAddress(ctx, l.address)
		if err != nil {
			return nil, &ListenError{l.name, err}
		}
		*l.bound = address
		settings := map[string]any{"endpoint": address}
		if cfg.TLS.CertFile != "" {
			tls := map[string]any{"cert_file": cfg.TLS.CertFile, "key_file": cfg.TLS.KeyFile}
			if cfg.TLS.ClientCAFile != "" {
				tls["client_ca_file"] = cfg.TLS.ClientCAFile
			}
			settings["tls"] = tls
		}
		if cfg.Token != "" {
			settings["auth"] = map[string]any{"authenticator": bearerID.String()}
		}
		protocols[l.name] = settings
	}
	return protocols, nil
}

// freeAddress checks that an address can be listened on, and returns it with its port in place of port 0.
func freeAddress(ctx context.Context, address string) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func newExporter(ctx context.Context, cfg Config, telemetry component.TelemetrySettings, build component.BuildInfo) (collectorexporter.Traces, error) {
	f := exporter.NewFactory()
	config, err := settings(f, map[string]any{
		"directory":  cfg.Journal,
		"name":       journalName,
		"block_size": cfg.BlockSize,
		"rotation":   map[string]any{"max_age": 0}, // files of a convenient size
		"compile":    false,
	})
	if err != nil {
		return nil, err
	}
	return f.CreateTraces(ctx, collectorexporter.Settings{ID: component.NewID(f.Type()), TelemetrySettings: telemetry, BuildInfo: build}, config)
}

func newReceiver(ctx context.Context, cfg Config, telemetry component.TelemetrySettings, build component.BuildInfo,
	protocols map[string]any, traces consumer.ConsumeTracesFunc, metrics consumer.ConsumeMetricsFunc,
) (component.Component, error) {
	var orders []any
	for _, o := range cfg.PromptOrders {
		orders = append(orders, map[string]any{"model": o.Model, "order": o.Order})
	}
	f := receiver.NewFactory()
	config, err := settings(f, map[string]any{
		"protocols":    protocols,
		"block_size":   capture.FineBlockSizeOf(cfg.BlockSize), // the journal is for one trace
		"hash_key":     cfg.Key,
		"session_keys": cfg.SessionKeys,
		"class_keys":   cfg.ClassKeys,
		"deny":         cfg.Deny,
		"prompt_order": orders,
		"admission":    map[string]any{"request_limit_mib": cfg.RequestLimit >> 20},
	})
	if err != nil {
		return nil, err
	}
	spans, err := consumer.NewTraces(traces)
	if err != nil {
		return nil, err
	}
	points, err := consumer.NewMetrics(metrics)
	if err != nil {
		return nil, err
	}
	set := collectorreceiver.Settings{ID: component.NewID(f.Type()), TelemetrySettings: telemetry, BuildInfo: build}
	in, err := f.CreateTraces(ctx, set, config, spans)
	if err != nil {
		return nil, err
	}
	_, err = f.CreateMetrics(ctx, set, config, points) // the same receiver
	return in, err
}

// Counts returns the counts so far.
func (c *Collector) Counts() Counts { return c.seen.counts() }

// Broken returns a channel that receives an error if the receiver cannot continue. Stop must still be called.
func (c *Collector) Broken() <-chan error { return c.broken }

// stopWithin is the maximum time for what is in flight at the end.
const stopWithin = 10 * time.Second

// Stop stops listening, waits until everything in flight is written, for 10 s at most, and seals the journal. The end of ctx does not
// shorten this. Call it once.
func (c *Collector) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	return errors.Join(c.receiver.Shutdown(ctx), c.exporter.Shutdown(ctx))
}

// settings returns a factory's default configuration, overridden by some settings, as a Collector would read it.
func settings(f component.Factory, over map[string]any) (component.Config, error) {
	config := f.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(over).Unmarshal(config); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if err := confmap.Validate(config); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return config, nil
}

// host is the components' view of the process.
type host struct {
	broken     chan error
	extensions map[component.ID]component.Component
}

// GetExtensions returns the bearer check, if there is one.
func (h host) GetExtensions() map[component.ID]component.Component { return h.extensions }

// Report records a component that cannot continue.
func (h host) Report(event *componentstatus.Event) {
	if event.Status() == componentstatus.StatusFatalError {
		select {
		case h.broken <- event.Err():
		default: // the first error is enough
		}
	}
}
