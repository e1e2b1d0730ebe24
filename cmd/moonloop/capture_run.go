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
	"github.com/moonloop/moonloop/collect"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
)

// runCapture listens until it is stopped, then writes the trace.
func runCapture(cmd *cobra.Command, f captureFlags) error {
	stderr := cmd.ErrOrStderr()
	note := func(format string, args ...any) { fmt.Fprint(stderr, term.Note(stderr, fmt.Sprintf(format, args...))) }
	listen, notices, err := f.settings(cmd.Context())
	if err != nil {
		return err
	}
	earlier, err := collect.Journals(listen.Journal)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	var names []string
	for _, journal := range earlier {
		names = append(names, journal.Name)
	}
	t, err := f.begin(true, names...) // an output that cannot be written is reported now, not after all the traffic
	if err != nil {
		return err
	}
	if len(earlier) > 0 {
		notices = append(notices, "continuing the journals of an earlier capture, in "+listen.Journal)
		if os.Getenv(f.keyEnv) == "" {
			notices = append(notices, "warning: from now on, prompts match none of that capture's, because each capture without a key uses a random one")
		}
	}
	for _, notice := range notices {
		if notice != "" {
			note("%s", notice)
		}
	}
	listen.Warn = func(text string) { note("warning: %s", text) }
	if listen.Metrics, err = captureMetrics(cmd.Context()); err != nil {
		return err
	}
	if listen.Metrics != nil {
		defer func() { _ = listen.Metrics.Shutdown(context.WithoutCancel(cmd.Context())) }()
	}
	p, err := collect.Start(cmd.Context(), listen)
	if err != nil {
		return listenHint(err)
	}
	listening := cmd.OutOrStdout()
	if f.json {
		listening = stderr
	}
	if p.GRPC != "" {
		fmt.Fprintf(listening, "listening for OTLP over gRPC on %s\n", p.GRPC)
	}
	if p.HTTP != "" {
		scheme := "http"
		if listen.TLS.CertFile != "" {
			scheme = "https"
		}
		fmt.Fprintf(listening, "listening for OTLP over HTTP on %s://%s\n", scheme, p.HTTP)
	}
	note("Ctrl-C stops, and writes %s", f.out)
	note("%s", listenUntil(cmd.Context(), p, f, stderr))

	// A second Ctrl-C ends the process.
	ctx := context.WithoutCancel(cmd.Context())
	err = p.Stop(ctx)
	written := false
	if err == nil {
		written, err = writeCapture(ctx, p, listen.Journal, t, f.options(cmd), cmd.OutOrStdout(), f.keepJournal)
	}
	if err != nil {
		again := f.out
		switch {
		case errors.Is(err, fs.ErrExist): // since the capture began
			again = "ANOTHER, or with --force"
		case errors.Is(err, syscall.ENOSPC):
			again = "A_FILE_ON_ANOTHER_DISK"
		}
		note("error: %v\nmoonloop: hint: what was acknowledged is in the journals: moonloop compile %s --out %s", err, listen.Journal, again)
		return exitWith(exitGoals)
	}
	if !written {
		note("error: %s was not written: %s", f.out, why(p.Counts(), t.Lost))
		return exitWith(exitGoals)
	}
	return nil
}

// listenUntil shows what arrives until something ends the capture, and returns what ended it.
func listenUntil(ctx context.Context, p *collect.Collector, f captureFlags, stderr io.Writer) string {
	view, begin := term.NewProgress(stderr, f.progress), time.Now()
	view.Show(func() (string, float64) {
		return fmt.Sprintf("%s  %s", time.Since(begin).Truncate(time.Second), p.Counts()), -1
	})
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
		case err := <-p.Broken():
			return fmt.Sprintf("stopping, because the receiver stopped: %v", err)
		case <-over:
			return "stopping after " + f.duration.String()
		case <-tick.C:
			if f.idle > 0 && p.Counts().Silence() >= f.idle {
				return "stopping: no span for " + f.idle.String()
			}
		}
	}
}

// idleEvery is how often silence is checked.
const idleEvery = 250 * time.Millisecond

// writeCapture compiles the journal and reports the result. Without a row nothing is written.
func writeCapture(ctx context.Context, p *collect.Collector, journal string, t *traces, opt capture.Options, stdout io.Writer, keep bool) (written bool, err error) {
	sources, err := collect.Journals(journal)
	if err != nil {
		return false, fmt.Errorf("journal: %w", err)
	}
	for _, source := range sources {
		t.read(source.Name)
	}
	t.Lost = p.Lost()
	var result capture.Result
	if len(sources) > 0 { // else nothing arrived
		if result, err = capture.Compile(ctx, opt, t.Sink(t.create, t.file), sources...); err != nil {
			return false, fmt.Errorf("compile %s: %w", journal, t.failed(ctx, err))
		}
	}
	if t.json || result.Inferences > 0 || len(t.Lost) > 0 {
		if err := t.report(stdout, result); err != nil {
			return false, err
		}
	}
	say := func(format string, args ...any) {
		if !t.json {
			fmt.Fprintf(stdout, format+"\n", args...)
		}
	}
	if points := p.Counts().Points; points > 0 {
		say("%s of metrics arrived, too, and were discarded", term.Counted(points, "points"))
	}
	switch {
	case len(t.List) == 0 && result.Inferences > 0:
		// Something in the journal may become a row with other options.
		say("journal in %s", journal)
		return false, nil
	case keep:
		say("journal in %s", journal)
	default:
		if err := collect.RemoveJournal(journal); err != nil {
			say("journal in %s, because it could not be removed: %v", journal, err)
		}
	}
	if len(t.List) > 0 {
		say("next: moonloop replay %s --url http://ENGINE:PORT", t.List[0].File)
	}
	return len(t.List) > 0, nil
}

// why describes what was missing for a trace.
func why(seen collect.Counts, lost []mooncake.Dropped) string {
	switch {
	case collect.AllRefused(seen, lost):
		return "every request of OTLP was refused, see above; the log of the application may have the receiver's answer"
	case seen.Spans == 0 && seen.Refused > 0:
		return "the journal could not be written, so every span was refused"
	case seen.Spans == 0 && seen.Points > 0:
		return "only metrics arrived, and no span; does OTEL_TRACES_EXPORTER keep the application from sending any?"
	case seen.Spans == 0:
		return "no span arrived; is the application's OTEL_EXPORTER_OTLP_ENDPOINT this address?"
	case seen.Requests == 0:
		return fmt.Sprintf("no request to a model was among the %s that arrived", term.Counted(seen.Spans, "spans"))
	}
	return "no request was complete; see above for what was missing"
}

// listenHint adds the next step to the error of a capture that does not start.
func listenHint(err error) error {
	if l, ok := errors.AsType[*collect.ListenError](err); ok {
		return hintError{err, "--" + l.Protocol + " 127.0.0.1:0 picks a free port, --" + l.Protocol + ` "" leaves it out`}
	}
	if errors.Is(err, collect.ErrJournal) {
		return hintError{err, "each capture needs its own journal: name another folder with --journal, or another trace with --out"}
	}
	return err
}
