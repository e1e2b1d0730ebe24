// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// server is one of our own processes that prints its address: the engine, or the sink of telemetry.
type server struct {
	*process
	url string
}

var listening = regexp.MustCompile(`listening on (\S+)`)

// serve starts a server on the engine's core, so that it does not use the client's, and waits until it listens.
func (b *bench) serve(ctx context.Context, dir, name, program string, args ...string) (*server, error) {
	p, err := start(ctx, how{dir: dir, name: name, core: b.engineCore}, program, args...)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if match := listening.FindStringSubmatch(content(p.log)); match != nil {
			return &server{p, match[1]}, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("the %s ended at once: %s", name, p.tail())
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = p.stop()
	return nil, fmt.Errorf("the %s does not listen: %s", name, p.tail())
}

// measured is one run of a client against its own engine, after both have ended.
type measured struct {
	*process    // the client
	dir         string
	engine      *process
	truth       *truth // the engine's record
	first, last time.Time
}

// measure starts an engine with these flags, runs a client against it and reads the engine's record. The function read then evaluates
// the results. If all went well, the run's folder is removed.
func (b *bench) measure(
	ctx context.Context, name []any, engine []string, client func(dir, url string) (*process, error), read func(*measured) error,
) error {
	dir, err := b.folder(name...)
	if err != nil {
		return err
	}
	record := filepath.Join(dir, "truth.jsonl")
	args := append([]string{
		"simulate", "--listen", "127.0.0.1:0", "--record", record, "--grace", "1s", "--record-header", "X-Vegeta-Seq",
	}, engine...)
	e, err := b.serve(ctx, dir, "engine", b.moonloop, args...)
	if err != nil {
		return err
	}
	p, err := client(dir, e.url)
	if stop := e.stop(); err == nil && stop != nil {
		err = fmt.Errorf("engine: %w: %s", stop, e.tail())
	}
	if err != nil {
		return err
	}
	saw, err := readTruth(record)
	if err != nil {
		return fmt.Errorf("%w; %s", err, p.tail())
	}
	if err := read(&measured{p, dir, e.process, saw, saw.first(), saw.last()}); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// engineCore is the share of its core that the engine used, in percent.
func (m *measured) engineCore() float64 {
	return 100 * float64(m.engine.cpu(m.first, m.last)) / float64(m.last.Sub(m.first))
}

// perToken is the processor time in µs for each token that the engine wrote.
func (m *measured) perToken(cpu time.Duration) float64 {
	return 1e3 * clock.Millis(cpu) / float64(m.truth.tokens())
}

// steady is the processor time in µs for each token written from the first token of the last stream to the last token of the first stream,
// without a fifth of a second at either end. NaN if there is no such time.
func (m *measured) steady() float64 {
	from, to := m.truth.allOpen()
	from, to = from.Add(time.Second/5), to.Add(-time.Second/5)
	if !from.Before(to) {
		return nan
	}
	return 1e3 * clock.Millis(m.cpu(from, to)) / float64(m.truth.written(from, to))
}

// runSink is the main function of the sink's process: it accepts OTLP over HTTP and discards it. An empty body is a valid OTLP reply:
// everything was accepted.
func runSink(ctx context.Context, out io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/x-protobuf")
		}),
	}
	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}
