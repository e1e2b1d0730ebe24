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
	"regexp"
	"time"
)

// sink is a process that takes OTLP over HTTP and throws it away, so that telemetry has somewhere to go.
type sink struct {
	*process
	url string
}

var sinkURL = regexp.MustCompile(`sink (\S+)`)

// startSink starts a sink on the engine's core, so that its work is not the agent's.
func (b *bench) startSink(ctx context.Context, dir string) (*sink, error) {
	p, err := start(ctx, how{dir: dir, name: "sink", core: b.engineCore}, b.self, "-sink")
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if match := sinkURL.FindStringSubmatch(content(p.log)); match != nil {
			return &sink{p, match[1]}, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("the sink ended at once: %s", p.tail())
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = p.stop()
	return nil, fmt.Errorf("the sink does not listen: %s", p.tail())
}

// runSink is the whole of the sink's process. An empty body is an empty OTLP reply: all was accepted.
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
	fmt.Fprintf(out, "sink http://%s\n", listener.Addr())
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}
