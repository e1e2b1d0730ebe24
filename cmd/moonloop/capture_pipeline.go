// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
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
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/exporter"
	"github.com/moonloop/moonloop/receiver"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// maxMessageMiB bounds an OTLP message. Spans with the content of their prompts pass gRPC's default of 4 MiB easily.
const maxMessageMiB = 64

// pipelineConfig says what a pipeline listens on and keeps. An empty address is not listened on; port 0 takes a free
// one.
type pipelineConfig struct {
	grpc, http  string
	tls         map[string]any // settings of both listeners; nil = none
	token       string         // that senders must have; empty = none
	journal     string         // folder
	blockSize   int
	key         string // at least 32 bytes
	sessionKeys []string
	deny        []string

	promptOrders []annotate.ModelOrder
	warn         func(string)

	requestLimit int64 // bytes that the requests being received may take together; 0 is the receiver's default
}

// pipeline is what a Collector would run: this module's receiver, and its exporter right behind it. There is no queue
// between them, so what a sender has been thanked for is in the journal.
type pipeline struct {
	grpc, http string // addresses listened on; empty: not at all
	journal    string
	seen       captureCounts

	broken chan error // receives why the receiver could not go on

	receiver, exporter component.Component
	metrics            *sdkmetric.ManualReader // what the components count
}

// startPipeline listens and writes until stop.
func startPipeline(ctx context.Context, c pipelineConfig) (*pipeline, error) {
	for attempt := 1; ; attempt++ {
		p, err := tryPipeline(ctx, c)
		// A free port is found by taking one and giving it back: somebody may have been faster.
		if err == nil || attempt == 5 || !errors.Is(err, errAddressTaken) {
			return p, err
		}
	}
}

// errAddressTaken marks that a port which was free a moment ago is not any more.
var errAddressTaken = errors.New("somebody was faster")

func tryPipeline(ctx context.Context, c pipelineConfig) (*pipeline, error) {
	p := &pipeline{journal: c.journal, broken: make(chan error, 1)}
	host := captureHost{broken: p.broken}
	if c.token != "" {
		host.extensions = map[component.ID]component.Component{bearerID: newBearer(c.token)}
	}
	protocols := map[string]any{}
	for _, l := range []struct {
		name, address string
		bound         *string
		more          map[string]any
	}{
		{"grpc", c.grpc, &p.grpc, map[string]any{"max_recv_msg_size_mib": maxMessageMiB}},
		{"http", c.http, &p.http, map[string]any{"max_request_body_size": maxMessageMiB << 20}},
	} {
		if l.address == "" {
			continue
		}
		address, err := freeAddress(ctx, l.address)
		if err != nil {
			return nil, hintError{fmt.Errorf("listen for OTLP over %s: %w", l.name, err), "--" + l.name + " 127.0.0.1:0 takes a free port, --" + l.name + ` "" leaves it out`}
		}
		*l.bound = address
		l.more["endpoint"] = address
		if c.tls != nil {
			l.more["tls"] = c.tls
		}
		if c.token != "" {
			l.more["auth"] = map[string]any{"authenticator": bearerID.String()}
		}
		protocols[l.name] = l.more
	}
	p.seen.warn = c.warn
	p.metrics = sdkmetric.NewManualReader()
	telemetry := component.TelemetrySettings{
		Logger:         zap.New(warningCore{zapcore.WarnLevel, c.warn, new(sync.Map)}),
		TracerProvider: nooptrace.NewTracerProvider(),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(p.metrics)),
		Resource:       pcommon.NewResource(),
	}
	build := component.BuildInfo{Command: "moonloop capture", Description: "moonloop", Version: version()}

	out := exporter.NewFactory()
	outConfig, err := componentConfig(out, map[string]any{
		"directory":  c.journal,
		"name":       journalName,
		"block_size": c.blockSize,
		"rotation":   map[string]any{"max_age": 0}, // files of a size that can be handled, but no others
		"compile":    false,
	})
	if err != nil {
		return nil, err
	}
	sink, err := out.CreateTraces(ctx, collectorexporter.Settings{ID: component.NewID(out.Type()), TelemetrySettings: telemetry, BuildInfo: build}, outConfig)
	if err != nil {
		return nil, fmt.Errorf("exporter: %w", err)
	}
	p.exporter = sink

	var orders []any
	for _, o := range c.promptOrders {
		orders = append(orders, map[string]any{"model": o.Model, "order": o.Order})
	}
	in := receiver.NewFactory()
	inConfig, err := componentConfig(in, map[string]any{
		"protocols":    protocols,
		"block_size":   capture.FineBlockSizeOf(c.blockSize), // the journal is for one trace
		"hash_key":     c.key,
		"session_keys": c.sessionKeys,
		"deny":         c.deny,
		"prompt_order": orders,
		"admission":    map[string]any{"request_limit_mib": c.requestLimit >> 20},
	})
	if err != nil {
		return nil, err
	}
	counted, err := consumer.NewTraces(p.seen.tap(sink))
	if err != nil {
		return nil, err
	}
	discarded, err := consumer.NewMetrics(p.seen.discard)
	if err != nil {
		return nil, err
	}
	settings := collectorreceiver.Settings{ID: component.NewID(in.Type()), TelemetrySettings: telemetry, BuildInfo: build}
	p.receiver, err = in.CreateTraces(ctx, settings, inConfig, counted)
	if err == nil {
		_, err = in.CreateMetrics(ctx, settings, inConfig, discarded) // the same receiver
	}
	if err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}

	if err := p.exporter.Start(ctx, host); err != nil {
		return nil, hintError{
			fmt.Errorf("journal: %w", errors.Join(err, p.receiver.Shutdown(ctx))),
			"one capture has one journal: --journal names another folder, and so does another --out",
		}
	}
	if err := p.receiver.Start(ctx, host); err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: %w", errAddressTaken, err)
		}
		return nil, errors.Join(fmt.Errorf("listen for OTLP: %w", err), p.receiver.Shutdown(ctx), p.exporter.Shutdown(ctx))
	}
	return p, nil
}

// stop ends the listening, lets what is under way be written, and seals the journal.
func (p *pipeline) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(p.receiver.Shutdown(ctx), p.exporter.Shutdown(ctx))
}

// componentConfig is a factory's default configuration with some settings over it, as a Collector would read it.
func componentConfig(f component.Factory, settings map[string]any) (component.Config, error) {
	config := f.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(settings).Unmarshal(config); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	if err := confmap.Validate(config); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return config, nil
}

// captureHost is what the components know of the process around them.
type captureHost struct {
	broken     chan error
	extensions map[component.ID]component.Component
}

// GetExtensions returns the check of senders, if there is one.
func (h captureHost) GetExtensions() map[component.ID]component.Component { return h.extensions }

// Report takes note of a component that cannot go on.
func (h captureHost) Report(event *componentstatus.Event) {
	if event.Status() == componentstatus.StatusFatalError {
		select {
		case h.broken <- event.Err():
		default: // the first is enough
		}
	}
}
