// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package collect is a capture in one process: this module's receiver listens for OTLP, and its exporter, right behind it,
// writes a journal. "moonloop capture" is this package with flags. There is no Collector and no queue between the two, so
// what a sender has been thanked for is in the journal.
//
// A capture ends with [Collector.Stop]. [capture.Compile] then makes traces of its [Journals], and [Traces] can take down what
// the traces hold while they are written.
//
// Nothing here prints. What a person should know while a capture runs goes to [Config.Warn], and [Collector.Counts] says what
// has come.
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

// MaxMessage is the size of the largest OTLP message that is accepted, in bytes. Spans with the content of their prompts pass
// gRPC's default of 4 MiB easily.
const MaxMessage = maxMessageMiB << 20

const maxMessageMiB = 64

// Config says what a [Collector] listens on and what it keeps. Journal and one of the addresses are required.
type Config struct {
	// GRPC and HTTP are addresses to listen on for OTLP, host:port. An empty one is not listened on; port 0 takes a free one.
	GRPC, HTTP string
	// TLS is that of both listeners. Its zero value is none.
	TLS TLS
	// Token is the bearer key that senders must present. Empty means that everybody may send.
	Token string
	// Journal is the folder of the journal. It is made if it does not exist, and one collector at a time writes to it.
	Journal string
	// BlockSize is the number of tokens that a hash id stands for, of prompts that no trace named; 0 is 512.
	BlockSize int
	// Key is what prompts and sessions are hashed with: at least 32 bytes. Empty means a random one, under which prompts match
	// those of no other capture.
	Key string
	// SessionKeys are attributes that hold a session's id, looked at before the known ones.
	SessionKeys []string
	// ClassKeys are attributes that hold the class of a request, likewise.
	ClassKeys []string
	// Deny are attributes that every span loses. A * at the end stands for any ending.
	Deny []string
	// PromptOrders say in which order the chat templates of models write prompts.
	PromptOrders []annotate.ModelOrder
	// RequestLimit is the memory, in bytes, that the requests being received may take together; 0 is the receiver's default.
	RequestLimit int64
	// Warn is told, in a line each, what a person should know; nil tells nobody. It is called from several goroutines.
	Warn func(text string)
	// Version is that of the program, for the components.
	Version string
	// Metrics also reads what receiver and exporter count, for those who watch the capture; nil is nobody. Its owner shuts it down, after
	// [Collector.Stop].
	Metrics sdkmetric.Reader
}

// TLS names the files of the listeners' certificate, in PEM.
type TLS struct {
	CertFile, KeyFile string
	// ClientCAFile holds the authorities that must have issued the senders' certificates; empty means that senders need none.
	ClientCAFile string
}

// ListenError is the error of an address that cannot be listened on.
type ListenError struct {
	Protocol string // grpc or http
	Err      error
}

func (e *ListenError) Error() string {
	return "listen for OTLP over " + e.Protocol + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// ErrJournal marks the error of a journal that cannot be written: another collector writes to it, or the folder cannot be made.
var ErrJournal = errors.New("journal")

// Collector listens and writes a journal. Its methods are safe for concurrent use.
type Collector struct {
	// GRPC and HTTP are the addresses listened on, with the ports that were taken; empty where it does not listen.
	GRPC, HTTP string

	seen   tally
	broken chan error

	receiver, exporter component.Component
	metrics            *sdkmetric.ManualReader // what the components count
}

// Start listens and writes until [Collector.Stop]. Its errors are a [*ListenError], [ErrJournal] or those of settings that
// cannot be used.
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
		// A free port is found by taking one and giving it back: somebody may have been faster. A ListenError is of one that was not free.
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

// protocols are the receiver's settings of what is listened on, and notes the addresses.
func (c *Collector) protocols(ctx context.Context, cfg Config) (map[string]any, error) {
	protocols := map[string]any{}
	for _, l := range []struct {
		name, address string
		bound         *string
		settings      map[string]any
	}{
		{"grpc", cfg.GRPC, &c.GRPC, map[string]any{"max_recv_msg_size_mib": maxMessageMiB}},
		{"http", cfg.HTTP, &c.HTTP, map[string]any{"max_request_body_size": MaxMessage}},
	} {
		if l.address == "" {
			continue
		}
		address, err := freeAddress(ctx, l.address)
		if err != nil {
			return nil, &ListenError{l.name, err}
		}
		*l.bound = address
		l.settings["endpoint"] = address
		if cfg.TLS.CertFile != "" {
			tls := map[string]any{"cert_file": cfg.TLS.CertFile, "key_file": cfg.TLS.KeyFile}
			if cfg.TLS.ClientCAFile != "" {
				tls["client_ca_file"] = cfg.TLS.ClientCAFile
			}
			l.settings["tls"] = tls
		}
		if cfg.Token != "" {
			l.settings["auth"] = map[string]any{"authenticator": bearerID.String()}
		}
		protocols[l.name] = l.settings
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
		"rotation":   map[string]any{"max_age": 0}, // files of a size that can be handled, but no others
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

// Counts returns what has come so far.
func (c *Collector) Counts() Counts { return c.seen.counts() }

// Broken receives why the receiver cannot go on, should that happen. Stop is still to be called.
func (c *Collector) Broken() <-chan error { return c.broken }

// stopWithin is how long what is in flight at the end may take.
const stopWithin = 10 * time.Second

// Stop ends the listening, lets what is in flight be written, for 10 s at most, and seals the journal. The end of ctx does not
// shorten it. Call it once.
func (c *Collector) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	return errors.Join(c.receiver.Shutdown(ctx), c.exporter.Shutdown(ctx))
}

// settings are a factory's default configuration with some settings over it, as a Collector would read it.
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

// host is what the components know of the process around them.
type host struct {
	broken     chan error
	extensions map[component.ID]component.Component
}

// GetExtensions returns the check of senders, if there is one.
func (h host) GetExtensions() map[component.ID]component.Component { return h.extensions }

// Report records a component that cannot go on.
func (h host) Report(event *componentstatus.Event) {
	if event.Status() == componentstatus.StatusFatalError {
		select {
		case h.broken <- event.Err():
		default: // the first is enough
		}
	}
}
