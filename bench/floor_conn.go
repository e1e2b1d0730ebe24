// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/kernelstamp"
)

// readConns reads with one goroutine for each stream, on a bare connection: readHTTP's additional cost is that of net/http.
func readConns(ctx context.Context, address string, w work, streams []tally) error {
	host, request, err := bareRequest(address, w)
	if err != nil {
		return err
	}
	errs := make([]error, w.streams)
	var all sync.WaitGroup
	inTurn(ctx, w, func(i int) {
		all.Go(func() { errs[i] = readConn(ctx, host, request(i), &streams[i]) })
	})
	all.Wait()
	return errors.Join(errs...)
}

// bareRequest returns the host of an address, and the bytes of each stream's request.
func bareRequest(address string, w work) (host string, request func(i int) []byte, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, err
	}
	body := promptBody(w.tokens)
	return u.Host, func(i int) []byte {
		return fmt.Appendf(nil, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Request-Id: %s\r\n\r\n%s",
			u.Host, len(body), streamID(i), body)
	}, nil
}

// readConn sends one request and counts the tokens of its reply.
func readConn(ctx context.Context, host string, request []byte, t *tally) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // all was read
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	in := kernelstamp.NewReader(c.(*net.TCPConn))
	if in == nil {
		return errors.New("the kernel has no receive stamps")
	}
	if _, err := c.Write(request); err != nil {
		return err
	}
	s, buffer := splitter{scan: new(send.TokenScanner)}, make([]byte, 4096) // as large as net/http's
	for s.at != over {
		n, ns, _, err := in.Read(buffer)
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		tokens, err := s.feed(buffer[:n])
		if t.add(tokens, ns); err != nil {
			return err
		}
	}
	return nil
}
