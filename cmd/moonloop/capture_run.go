// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/capture"
)

// runCapture listens until it is told to stop, then writes the trace.
func runCapture(cmd *cobra.Command, f captureFlags) error {
	stderr := cmd.ErrOrStderr()
	note := func(text string) { fmt.Fprintf(stderr, "moonloop: %s\n", text) }
	compile, listen, notices, err := f.options()
	if err != nil {
		return err
	}
	if _, err := os.Stat(f.out); err == nil && !f.force {
		return hintError{fmt.Errorf("%s is there already", f.out), "--force replaces it, once the new trace is complete"}
	}
	if _, err := os.Stat(filepath.Dir(f.out)); err != nil {
		return fmt.Errorf("%s cannot be created: %w", f.out, err) // now, not after all the traffic
	}
	listen.journal = f.journal
	if listen.journal == "" {
		listen.journal = journalFolder(f.out)
	}
	earlier, err := journals(listen.journal)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if len(earlier) > 0 {
		notices = append(notices, "going on with the journal of an earlier capture, "+listen.journal)
		if os.Getenv(f.keyEnv) == "" {
			notices = append(notices, "warning: prompts match none of that capture's from now on, because each has a random key")
		}
	}
	for _, notice := range notices {
		note(notice)
	}
	listen.warn = func(text string) { note("warning: " + text) }
	p, err := startPipeline(cmd.Context(), listen)
	if err != nil {
		return err
	}
	if p.grpc != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "listening for OTLP over gRPC on %s\n", p.grpc)
	}
	if p.http != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "listening for OTLP over HTTP on http://%s\n", p.http)
	}
	note("Ctrl-C stops, and writes " + f.out)
	reason := listenUntil(cmd.Context(), p, f, stderr)
	note(reason)

	// A second Ctrl-C ends the process.
	ctx := context.WithoutCancel(cmd.Context())
	err = p.stop(ctx)
	written := false
	if err == nil {
		written, err = writeCapture(ctx, p, f, compile, cmd.OutOrStdout())
	}
	if err != nil {
		fmt.Fprintf(stderr, "moonloop: error: %v\nmoonloop: hint: nothing is lost: moonloop compile %s --out %s\n", err, p.journal, f.out)
		return exitWith(exitGoals)
	}
	if !written {
		fmt.Fprintf(stderr, "moonloop: error: %s was not written: %s\n", f.out, p.why())
		return exitWith(exitGoals)
	}
	return nil
}

// listenUntil shows what arrives until something ends the capture, and says what.
func listenUntil(ctx context.Context, p *pipeline, f captureFlags, stderr io.Writer) string {
	view := newCaptureView(stderr, f.progress)
	begin := time.Now()
	defer func() {
		view.show(time.Since(begin), p.seen.String())
		view.stop()
	}()
	tick := time.NewTicker(barEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return "stopping"
		case err := <-p.broken:
			return fmt.Sprintf("stopping, because the receiver did: %v", err)
		case <-tick.C:
		}
		elapsed := time.Since(begin)
		view.show(elapsed, p.seen.String())
		if f.duration > 0 && elapsed >= f.duration {
			return "stopping after " + f.duration.String()
		}
		if f.idle > 0 && p.seen.silence() >= f.idle {
			return "stopping: no span for " + f.idle.String()
		}
	}
}

// watch shows what arrives until ctx ends.
func (p *pipeline) watch(ctx context.Context, stderr io.Writer) {
	view := newCaptureView(stderr, "auto")
	defer view.stop()
	begin := time.Now()
	tick := time.NewTicker(barEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			view.show(time.Since(begin), p.seen.String())
		}
	}
}

// writeCapture compiles the journal and says what came of it. Without a row nothing is written.
func writeCapture(ctx context.Context, p *pipeline, f captureFlags, opt capture.Options, stdout io.Writer) (written bool, err error) {
	sources, err := journals(p.journal)
	if err != nil {
		return false, fmt.Errorf("journal: %w", err)
	}
	var traces summaries
	result, err := capture.Compile(ctx, opt, traces.sink(traceName(f.out)), sources...)
	if err != nil {
		return false, fmt.Errorf("compile %s: %w", p.journal, err)
	}
	if result.Inferences > 0 {
		traces.report(stdout, result)
	}
	switch {
	case len(traces) == 0 && result.Inferences > 0:
		// Something in it may yet become a row, with other options.
		fmt.Fprintf(stdout, "journal in %s\n", p.journal)
		return false, nil
	case f.keepJournal:
		fmt.Fprintf(stdout, "journal in %s\n", p.journal)
	default:
		if err := removeJournal(p.journal); err != nil {
			fmt.Fprintf(stdout, "journal in %s, because it could not be removed: %v\n", p.journal, err)
		}
	}
	if len(traces) > 0 {
		fmt.Fprintf(stdout, "next: moonloop replay %s --url http://ENGINE:PORT\n", traces[0].file)
	}
	return len(traces) > 0, nil
}

// traceName gives each partition its file.
func traceName(out string) func(capture.Partition) string {
	return func(p capture.Partition) string {
		if p.Replay {
			return capture.RunFile(out, p.Run)
		}
		return out
	}
}

// why says what was missing for a trace.
func (p *pipeline) why() string {
	switch spans, inference := p.seen.spans.Load(), p.seen.inference.Load(); {
	case spans == 0:
		return "no span came; is the application's OTEL_EXPORTER_OTLP_ENDPOINT this address?"
	case inference == 0:
		return fmt.Sprintf("none of the %s spans that came was a request to a model", comma(spans))
	}
	return "no request was complete; see above for what was missing"
}
