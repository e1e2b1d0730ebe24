// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package demo is the demonstration of "moonloop demo": an application talks to a simulated engine and is captured, the trace is replayed
// and the replay captured again, and the two traces are compared. Tests use its application, too.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdkresource "go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/collect"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// Files of a demonstration, in its folder.
const (
	Captured = "production.jsonl" // the trace of production
	Replayed = "replayed.jsonl"   // that of the replay
	Journal  = "journal"          // folder
	results  = "replay"           // folder
)

// runID names the replay of the demonstration.
const runID = "demo"

// Config configures a demonstration.
type Config struct {
	// Folder is the folder for all files: it must be empty or not exist. If it is "", a temporary folder is used.
	Folder string
	// Production is the approximate duration of the application's work.
	Production time.Duration
	// Out gets each step and its result, Err warnings and progress.
	Out, Err io.Writer
	// Version is that of this program.
	Version string
}

// demonstration is one run of the loop.
type demonstration struct {
	Config
	steps   int
	engine  string // URL
	capture *collect.Collector
}

// Run runs the demonstration. closed is true if the two traces are the same, and no file contains text of a prompt. The engine is this
// program's "simulate", as a separate process. Variables named OTEL_* must be removed from the environment before.
func Run(ctx context.Context, cfg Config) (closed bool, rep *report.Report, err error) {
	d := demonstration{Config: cfg}
	cleanup, err := d.prepare()
	if err != nil {
		return false, nil, fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, cleanup()) }()

	engine, stopEngine, err := startEngine(ctx)
	if err != nil {
		return false, nil, err
	}
	defer stopEngine()
	d.engine = engine
	d.step("engine", "simulated, at "+engine)

	d.capture, err = collect.Start(ctx, collect.Config{
		GRPC: "127.0.0.1:0", Journal: d.file(Journal), Version: d.Version, Warn: d.warn,
	})
	if err != nil {
		return false, nil, fmt.Errorf("demo: %w", err)
	}
	d.step("capture", "receiver and exporter, OTLP at "+d.capture.GRPC)
	sent, captured, rep, err := d.traffic(ctx)
	if stop := d.capture.Stop(ctx); stop != nil {
		err = errors.Join(err, fmt.Errorf("demo: stop the capture: %w", stop))
	}
	if err != nil {
		return false, nil, err
	}
	d.step("compile", "the spans of the replay become a trace")
	replayed, err := d.compile(ctx, Replayed, capture.ReplaysOnly)
	if err != nil {
		return false, nil, err
	}
	d.step("compare", Captured+" with "+Replayed)
	loop, err := compareLoop(ctx, d.Folder, captured, replayed, sent, rep)
	if err != nil {
		return false, nil, err
	}
	loop.write(d.Out)
	if cfg.Folder != "" {
		d.line("", "everything is in "+d.Folder+"; to replay the trace again:")
		fmt.Fprintf(d.Out, "moonloop replay %s --url ENGINE\n", d.file(Captured)) // for copying, so never broken
	}
	return loop.closed(), rep, nil
}

// prepare creates the folder. cleanup removes it, unless it must be kept.
func (d *demonstration) prepare() (cleanup func() error, err error) {
	if d.Folder == "" {
		d.Folder, err = os.MkdirTemp("", "moonloop-demo-")
		return func() error { return os.RemoveAll(d.Folder) }, err
	}
	if err := os.MkdirAll(d.Folder, 0o700); err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(d.Folder); err != nil || len(entries) > 0 {
		return nil, errors.Join(fmt.Errorf("--out %s: want a folder that is empty or does not exist yet", d.Folder), err)
	}
	return func() error { return nil }, nil
}

// traffic runs what is captured: production and, when its trace is compiled, the replay of that trace.
func (d *demonstration) traffic(ctx context.Context) (sent Sent, captured capture.TraceResult, rep *report.Report, err error) {
	if sent, err = d.production(ctx); err != nil {
		return sent, captured, nil, err
	}
	d.step("compile", "the journal becomes a trace")
	if captured, err = d.compile(ctx, Captured, capture.ReplaysDrop); err != nil {
		return sent, captured, nil, err
	}
	d.step("replay", Captured+" with its recorded timing; its spans go to the same capture")
	rep, err = d.replay(ctx)
	return sent, captured, rep, err
}

// step begins the next step.
func (d *demonstration) step(name, text string) {
	d.steps++
	d.line(fmt.Sprintf("%d  %-12s", d.steps, name), text)
}

// detail adds to a step.
func (d *demonstration) detail(text string) { d.line(strings.Repeat(" ", 15), text) }

func (d *demonstration) line(lead, text string) {
	fmt.Fprint(d.Out, term.Hang(term.Width(d.Out), lead, text))
}

func (d *demonstration) warn(text string) { fmt.Fprint(d.Err, term.Note(d.Err, "warning: "+text)) }

func (d *demonstration) file(name string) string { return filepath.Join(d.Folder, name) }

// production runs an application for a while, and returns when the capture has all of its spans.
func (d *demonstration) production(ctx context.Context) (Sent, error) {
	spans, err := d.spanExporter(ctx)
	if err != nil {
		return Sent{}, err
	}
	provider := sdktrace.NewTracerProvider(
		// With their prompts, the SDK's batch of 512 spans would not fit into a message.
		sdktrace.WithBatcher(spans, sdktrace.WithMaxExportBatchSize(32), sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithResource(sdkresource.NewSchemaless(attribute.String(semconv.ServiceName, "harbour-assistant"))),
	)
	plan := Plan(d.Production, 1)
	d.step("production", fmt.Sprintf("an application with OpenTelemetry: %d conversations, %d requests, about %s",
		len(plan), Turns(plan), d.Production))
	app := Application{Engine: d.engine, Tracer: provider.Tracer("harbour-assistant")}
	view, begin := term.NewProgress(d.Err, "auto"), time.Now()
	view.Show(func() (string, float64) {
		return fmt.Sprintf("%s  %s", time.Since(begin).Truncate(time.Second), d.capture.Counts()), -1
	})
	sent := app.Run(ctx, plan)
	// Shutdown waits until the last batch is acknowledged. Then all spans are in the journal.
	err = provider.Shutdown(context.WithoutCancel(ctx))
	view.Stop(true)
	switch {
	case ctx.Err() != nil:
		return sent, errors.New("demo: interrupted")
	case err != nil:
		return sent, fmt.Errorf("demo: spans of production: %w", err)
	case sent.Failed > 0:
		return sent, fmt.Errorf("demo: %d requests of production failed, the first because %w", sent.Failed, sent.Err)
	}
	d.detail(fmt.Sprintf("%s prompt tokens, of which the engine had %s cached; %s spans captured", term.Comma(sent.PromptTokens),
		term.Share(float64(sent.Cached)/float64(sent.PromptTokens)), term.Comma(d.capture.Counts().Spans)))
	return sent, nil
}

// spanExporter returns an exporter that sends spans to the capture.
func (d *demonstration) spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	e, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(d.capture.GRPC), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, fmt.Errorf("demo: OTLP exporter: %w", err)
	}
	return e, nil
}

// compile makes the trace of one partition.
func (d *demonstration) compile(ctx context.Context, name string, replays capture.Replays) (capture.TraceResult, error) {
	sources, err := collect.Journals(d.file(Journal))
	if err != nil {
		return capture.TraceResult{}, fmt.Errorf("demo: journal: %w", err)
	}
	var traces collect.Traces
	sink := traces.Sink(mooncake.CreateNew, func(capture.Partition) string { return d.file(name) })
	result, err := capture.Compile(ctx, capture.Options{Replays: replays, Tool: "moonloop demo " + d.Version}, sink, sources...)
	if err != nil {
		return capture.TraceResult{}, fmt.Errorf("demo: compile: %w", err)
	}
	written := slices.DeleteFunc(result.Traces, func(t capture.TraceResult) bool { return t.Meta.Rows == 0 })
	if len(written) != 1 {
		return capture.TraceResult{}, fmt.Errorf("demo: the journal holds %d traces for %s, want 1", len(written), name)
	}
	t := written[0]
	d.detail(fmt.Sprintf("%s: %s, %s, prompts by %s", name, term.Counted(t.Meta.Rows, "rows"),
		term.Counted(int64(traces.List[0].Sessions), "sessions"), term.Numbers(t.Meta.Identity)))
	for _, lost := range t.Meta.Dropped {
		d.detail("dropped: " + term.Counted(lost.Count, lost.What) + ": " + lost.Reason)
	}
	return t, nil
}

// replay replays the captured trace and prints its report.
func (d *demonstration) replay(ctx context.Context) (*report.Report, error) {
	spans, err := d.spanExporter(ctx)
	if err != nil {
		return nil, err
	}
	view := term.NewProgress(d.Err, "auto")
	rep, err := agent.Run(ctx, agent.Config{
		Trace:     agent.Trace{Name: d.file(Captured)},
		Target:    agent.Target{URL: d.engine},
		Telemetry: telemetry.Config{SpanExporter: spans},
		Out:       d.file(results),
		RunID:     runID,
		Tool:      d.Version,
		Command:   []string{"moonloop", "demo"},
		// Every request of the demonstration must be served.
		MaxErrorRate: new(float64),
		Progress:     func(live *agent.Live) { view.Show(live.Line) },
		Warn:         d.warn,
	})
	view.Stop(true)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(d.Out)
	if err := rep.Table(d.Out, term.Width(d.Out), term.Colours(d.Out)); err != nil {
		return nil, fmt.Errorf("demo: write the report: %w", err)
	}
	fmt.Fprintln(d.Out)
	if ctx.Err() != nil {
		return nil, errors.New("demo: interrupted")
	}
	return rep, nil
}
