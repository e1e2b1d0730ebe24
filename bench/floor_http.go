// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/kernelstamp"
)

// readHTTP reads with net/http, which needs two goroutines for each stream in addition to ours.
func readHTTP(ctx context.Context, url string, w work, streams []tally) error {
	transport := &http.Transport{MaxIdleConnsPerHost: w.streams, DisableCompression: true}
	if streams[0].keep {
		transport.DialContext = dialStamped
	}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	body := promptBody(w.tokens)
	errs := make([]error, w.streams)
	var all sync.WaitGroup
	inTurn(ctx, w, func(i int) {
		due := time.Now()
		all.Go(func() { errs[i] = readStream(ctx, client, url+"/v1/completions", body, streamID(i), due, &streams[i]) })
	})
	all.Wait()
	return errors.Join(errs...)
}

// readStream sends one request and counts the events with a token.
func readStream(ctx context.Context, client *http.Client, url, body, id string, due time.Time, t *tally) error {
	var conn *stampedConn
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn, _ = info.Conn.(*stampedConn) // nil if no timestamps are recorded
	}}
	if t.keep {
		var written atomic.Int64 // net/http may report it after the reply
		trace.WroteRequest = func(httptrace.WroteRequestInfo) { written.Store(int64(time.Since(due))) }
		defer func() { t.WireLag = clock.Millis(time.Duration(written.Load())) }()
	}
	ctx = httptrace.WithClientTrace(ctx, trace)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	reply, err := client.Do(req)
	if err != nil {
		return err
	}
	defer reply.Body.Close() //nolint:errcheck // it was read to its end
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", reply.Status)
	}
	var scanner send.TokenScanner
	for r := bufio.NewReader(reply.Body); ; {
		text, err := r.ReadSlice('\n')
		if data, ok := bytes.CutPrefix(text, []byte("data: ")); ok && scanner.Token(data) {
			t.add(1, conn.last())
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// stampedConn is a connection that records the kernel's timestamp of its last read. The timestamp is atomic, because net/http reads the head
// of a reply on another goroutine.
type stampedConn struct {
	net.Conn
	in *kernelstamp.Reader
	ns atomic.Int64
}

func dialStamped(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	in := kernelstamp.NewReader(c.(*net.TCPConn))
	if in == nil {
		return nil, errors.Join(errors.New("the kernel has no receive stamps"), c.Close())
	}
	return &stampedConn{Conn: c, in: in}, nil
}

// Read implements net.Conn.
func (c *stampedConn) Read(p []byte) (int, error) {
	n, ns, _, err := c.in.Read(p)
	c.ns.Store(ns)
	return n, err
}

// last returns the timestamp of the last read; 0 without a connection.
func (c *stampedConn) last() int64 {
	if c == nil {
		return 0
	}
	return c.ns.Load()
}
