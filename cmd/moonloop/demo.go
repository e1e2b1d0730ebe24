// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

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

	"github.com/spf13/cobra"
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
	demoCaptured = "production.jsonl"
	demoReplayed = "replayed.jsonl"
	demoReport   = "replay"
	demoJournal  = "journal"
)

// demoRun names the replay of the demonstration.
const demoRun = "demo"

func newDemoCommand() *cobra.Command {
	var d demonstration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole loop on this machine: application, capture, replay, capture again, compare",
		Long: `Demo runs the whole loop on free ports of localhost, in about half a minute, with nothing to install:

  1  engine: "moonloop simulate", as a process of its own
  2  capture: the receiver and the exporter of a Collector, in this process
  3  production: an application chats with the engine and emits OpenTelemetry spans that contain the prompts, as
     applications in production do
  4  compile: the capture's journal becomes a trace without text
  5  replay: the trace is replayed against the engine at its recorded times; the replay's spans go to the same capture
  6  compile: the replay's spans become a second trace
  7  compare: both traces are compared, and every file is searched for the text of the prompts

Variables named OTEL_* have no effect here.

EXIT STATUS

  0    both traces have the same rows, shared blocks and timestamps, and no file contains text of a prompt
  1    they differ, a file contains text, or a request failed
  2    the demonstration could not start
  3    they are the same, but the replay's measurement is invalid
  130  interrupted`,
		Example: "  moonloop demo\n  moonloop demo --out demo-results",
		Args:    noInputs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	cmd.Flags().StringVar(&d.folder, "out", "", "`DIR` for the traces, the journal and the replay's report (default: they are deleted)")
	cmd.Flags().DurationVar(&d.length, "production", 16*time.Second, "approximate duration of the production step")
	return cmd
}

// demonstration is one run of the loop.
type demonstration struct {
	folder string
	length time.Duration // of production

	out, err io.Writer
	steps    int
	engine   string // URL
	capture  *collect.Collector
}

func (d *demonstration) run(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	d.out, d.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			if err := os.Unsetenv(name); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
		}
	}
	keep := d.folder != ""
	if keep {
		if err := os.MkdirAll(d.folder, 0o700); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		if entries, err := os.ReadDir(d.folder); err != nil || len(entries) > 0 {
			return errors.Join(fmt.Errorf("demo: --out %s: want a folder that is empty or not there yet", d.folder), err)
		}
	} else {
		if d.folder, err = os.MkdirTemp("", "moonloop-demo-"); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(d.folder)) }()
	}

	engine, stopEngine, err := startEngine(ctx, d.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopEngine()) }()
	d.engine = engine
	d.step("engine", "simulated, at "+engine)

	d.capture, err = collect.Start(ctx, collect.Config{
		GRPC: "127.0.0.1:0", Journal: d.file(demoJournal), Version: version(),
		Warn: func(text string) { fmt.Fprintf(d.err, "moonloop: warning: %s\n", text) },
	})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		return d.capture.Stop(ctx)
	}
	defer func() { err = errors.Join(err, stop()) }()
	d.step("capture", "receiver and exporter, OTLP at "+d.capture.GRPC)

	sent, err := d.production(ctx)
	if err != nil {
		return err
	}
	d.step("compile", "the journal becomes a trace")
	captured, err := d.compile(ctx, demoCaptured, capture.ReplaysDrop)
	if err != nil {
		return err
	}
	d.step("replay", demoCaptured+" at its own timing, its spans to the same capture")
	rep, err := d.replay(ctx)
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return fmt.Errorf("demo: stop the capture: %w", err)
	}
	d.step("compile", "the spans of the replay become a trace")
	replayed, err := d.compile(ctx, demoReplayed, capture.ReplaysOnly)
	if err != nil {
		return err
	}
	d.step("compare", demoCaptured+" with "+demoReplayed)
	loop, err := compareLoop(ctx, d.folder, captured, replayed, sent, rep)
	if err != nil {
		return err
	}
	loop.write(d.out)
	if keep {
		fmt.Fprintf(d.out, "everything is in %s; again: moonloop replay %s --url ENGINE\n", d.folder, d.file(demoCaptured))
	}
	if !loop.closed() {
		return exitWith(exitGoals)
	}
	return exitWith(rep.ExitStatus)
}

// step begins the next step.
func (d *demonstration) step(name, text string) {
	d.steps++
	fmt.Fprintf(d.out, "%d  %-12s%s\n", d.steps, name, text)
}

// detail adds to a step.
func (d *demonstration) detail(text string) { fmt.Fprintf(d.out, "   %-12s%s\n", "", text) }

func (d *demonstration) file(name string) string { return filepath.Join(d.folder, name) }

// production lets an application work for a while, and returns when the capture has all of its spans.
func (d *demonstration) production(ctx context.Context) (produced, error) {
	spans, err := d.spanExporter(ctx)
	if err != nil {
		return produced{}, err
	}
	provider := sdktrace.NewTracerProvider(
		// With their prompts on them, the SDK's 512 spans to a batch would not fit into a message.
		sdktrace.WithBatcher(spans, sdktrace.WithMaxExportBatchSize(32), sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithResource(sdkresource.NewSchemaless(attribute.String(semconv.ServiceName, "harbour-assistant"))),
	)
	plan := planProduction(d.length, 1)
	d.step("production", fmt.Sprintf("an application with OpenTelemetry: %d conversations, %d requests, about %s",
		len(plan), turnsOf(plan), d.length))
	app := production{engine: d.engine, tracer: provider.Tracer("harbour-assistant")}
	view := term.NewProgress(d.err, "auto")
	view.Show(showCapture(d.capture))
	sent := app.run(ctx, plan)
	// Until the last batch is acknowledged; then all of them are in the journal.
	err = provider.Shutdown(context.WithoutCancel(ctx))
	view.Stop(true)
	switch {
	case ctx.Err() != nil:
		return sent, errors.New("demo: interrupted")
	case err != nil:
		return sent, fmt.Errorf("demo: spans of production: %w", err)
	case sent.Failed > 0:
		return sent, fmt.Errorf("demo: %d requests of production failed, the first because %w", sent.Failed, sent.err)
	}
	d.detail(fmt.Sprintf("%s prompt tokens, of which the engine had %s cached; %s spans captured",
		term.Comma(sent.PromptTokens), term.Share(float64(sent.Cached)/float64(sent.PromptTokens)), term.Comma(d.capture.Counts().Spans)))
	return sent, nil
}

// spanExporter sends to the capture.
func (d *demonstration) spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	e, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(d.capture.GRPC), otlptracegrpc.WithInsecure())
	if err != nil {
		return nil, fmt.Errorf("demo: OTLP exporter: %w", err)
	}
	return e, nil
}

// compile makes the trace of one partition.
func (d *demonstration) compile(ctx context.Context, name string, replays capture.Replays) (capture.TraceResult, error) {
	sources, err := collect.Journals(d.file(demoJournal))
	if err != nil {
		return capture.TraceResult{}, fmt.Errorf("demo: journal: %w", err)
	}
	var traces summaries
	sink := traces.Sink(mooncake.CreateNew, func(capture.Partition) string { return d.file(name) })
	result, err := capture.Compile(ctx, capture.Options{Replays: replays, Tool: "moonloop demo " + version()}, sink, sources...)
	if err != nil {
		return capture.TraceResult{}, fmt.Errorf("demo: compile: %w", err)
	}
	written := slices.DeleteFunc(result.Traces, func(t capture.TraceResult) bool { return t.Meta.Rows == 0 })
	if len(written) != 1 {
		return capture.TraceResult{}, fmt.Errorf("demo: the journal holds %d traces for %s, want 1", len(written), name)
	}
	t := written[0]
	d.detail(fmt.Sprintf("%s: %s, %s, prompts by %s", name, term.Counted(t.Meta.Rows, "rows"), term.Counted(int64(traces.List[0].Sessions), "sessions"), identities(t.Meta)))
	for _, lost := range t.Meta.Dropped {
		d.detail("dropped: " + traces.text(lost))
	}
	return t, nil
}

// replay replays the captured trace and prints its report.
func (d *demonstration) replay(ctx context.Context) (*report.Report, error) {
	spans, err := d.spanExporter(ctx)
	if err != nil {
		return nil, err
	}
	view := term.NewProgress(d.err, "auto")
	rep, err := agent.Run(ctx, agent.Config{
		Trace:     agent.Trace{Name: d.file(demoCaptured)},
		Target:    agent.Target{URL: d.engine},
		Telemetry: telemetry.Config{SpanExporter: spans},
		Out:       d.file(demoReport),
		RunID:     demoRun,
		Tool:      version(),
		Command:   []string{"moonloop", "demo"},
		// Every request of the demonstration must be served.
		MaxErrorRate: new(float64),
		Progress:     func(live *agent.Live) { view.Show(show(live)) },
		Warn:         func(text string) { fmt.Fprintf(d.err, "moonloop: warning: %s\n", text) },
	})
	view.Stop(true)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(d.out)
	if err := rep.Table(d.out, term.Colours(d.out)); err != nil {
		return nil, fmt.Errorf("demo: write the report: %w", err)
	}
	fmt.Fprintln(d.out)
	if ctx.Err() != nil {
		return nil, errors.New("demo: interrupted")
	}
	return rep, nil
}
