// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/internal/term"
)

// runCapture listens until it is told to stop, then writes the trace.
func runCapture(cmd *cobra.Command, f captureFlags) error {
	stderr := cmd.ErrOrStderr()
	note := func(text string) { fmt.Fprintf(stderr, "moonloop: %s\n", text) }
	compile, listen, notices, err := f.settings(cmd)
	if err != nil {
		return err
	}
	listen.journal = f.journal
	if listen.journal == "" {
		listen.journal = journalFolder(f.out)
	}
	earlier, err := journals(listen.journal)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	files := outputs{out: f.out, force: f.force, runs: f.replays != string(capture.ReplaysDrop)}
	for _, journal := range earlier {
		files.read(journal.Name)
	}
	if err := files.check(); err != nil { // now, not after all the traffic
		return err
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
	listening := cmd.OutOrStdout()
	if f.json {
		listening = stderr
	}
	if p.grpc != "" {
		fmt.Fprintf(listening, "listening for OTLP over gRPC on %s\n", p.grpc)
	}
	if p.http != "" {
		scheme := "http"
		if listen.tls != nil {
			scheme = "https"
		}
		fmt.Fprintf(listening, "listening for OTLP over HTTP on %s://%s\n", scheme, p.http)
	}
	note("Ctrl-C stops, and writes " + f.out)
	reason := listenUntil(cmd.Context(), p, f, stderr)
	note(reason)

	// A second Ctrl-C ends the process.
	ctx := context.WithoutCancel(cmd.Context())
	err = p.stop(ctx)
	written := false
	if err == nil {
		written, err = writeCapture(ctx, p, f, &files, compile, cmd.OutOrStdout())
	}
	if err != nil {
		again := f.out
		switch {
		case errors.Is(err, fs.ErrExist): // since the capture began
			again = "ANOTHER, or with --force"
		case errors.Is(err, syscall.ENOSPC):
			again = "A_FILE_ON_ANOTHER_DISK"
		}
		fmt.Fprintf(stderr, "moonloop: error: %v\nmoonloop: hint: what was acknowledged is in the journal: moonloop compile %s --out %s\n", err, p.journal, again)
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
	view := term.NewProgress(stderr, f.progress)
	view.Show(p.show())
	defer view.Stop(true)
	var over <-chan time.Time
	if f.duration > 0 {
		over = time.After(f.duration)
	}
	tick := time.NewTicker(idleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return "stopping"
		case err := <-p.broken:
			return fmt.Sprintf("stopping, because the receiver did: %v", err)
		case <-over:
			return "stopping after " + f.duration.String()
		case <-tick.C:
			if f.idle > 0 && p.seen.silence() >= f.idle {
				return "stopping: no span for " + f.idle.String()
			}
		}
	}
}

// idleEvery is how often silence is looked for.
const idleEvery = 250 * time.Millisecond

// show is what a view shows of a capture.
func (p *pipeline) show() func() (string, float64) {
	begin := time.Now()
	return func() (string, float64) {
		return fmt.Sprintf("%s  %s", time.Since(begin).Truncate(time.Second), &p.seen), -1
	}
}

// writeCapture compiles the journal and says what came of it. Without a row nothing is written.
func writeCapture(ctx context.Context, p *pipeline, f captureFlags, files *outputs, opt capture.Options, stdout io.Writer) (written bool, err error) {
	sources, err := journals(p.journal)
	if err != nil {
		return false, fmt.Errorf("journal: %w", err)
	}
	for _, journal := range sources {
		files.read(journal.Name)
	}
	traces := summaries{untokened: f.untokened, lost: p.lost()}
	result, err := capture.Compile(ctx, opt, traces.sink(files.create, files.file), sources...)
	if err != nil {
		return false, fmt.Errorf("compile %s: %w", p.journal, traces.failed(ctx, err))
	}
	switch {
	case f.json:
		err = traces.encode(stdout, "", result)
	case result.Inferences > 0 || len(traces.lost) > 0:
		err = traces.report(stdout, result)
	}
	if err != nil {
		return false, err
	}
	say := func(format string, args ...any) {
		if !f.json {
			fmt.Fprintf(stdout, format+"\n", args...)
		}
	}
	if points := p.seen.points.Load(); points > 0 {
		say("%s of metrics came, too, and were thrown away", term.Counted(points, "points"))
	}
	switch {
	case len(traces.list) == 0 && result.Inferences > 0:
		// Something in it may yet become a row, with other options.
		say("journal in %s", p.journal)
		return false, nil
	case f.keepJournal:
		say("journal in %s", p.journal)
	default:
		if err := removeJournal(p.journal); err != nil {
			say("journal in %s, because it could not be removed: %v", p.journal, err)
		}
	}
	if len(traces.list) > 0 {
		say("next: moonloop replay %s --url http://ENGINE:PORT", traces.list[0].file)
	}
	return len(traces.list) > 0, nil
}

// why says what was missing for a trace.
func (p *pipeline) why() string {
	switch spans, inference := p.seen.spans.Load(), p.seen.inference.Load(); {
	case spans == 0 && p.seen.refused.Load() > 0:
		return "the journal could not be written, so that every span was refused"
	case spans == 0 && p.seen.points.Load() > 0:
		return "only metrics came, and no span; does OTEL_TRACES_EXPORTER keep the application from sending any?"
	case spans == 0:
		return "no span came; is the application's OTEL_EXPORTER_OTLP_ENDPOINT this address?"
	case inference == 0:
		return fmt.Sprintf("no request to a model was among the %s that came", term.Counted(spans, "spans"))
	}
	return "no request was complete; see above for what was missing"
}
