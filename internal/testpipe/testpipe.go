// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package testpipe is a network in memory, for tests in virtual time. A goroutine that waits for one of its connections is durably blocked,
// so the time of a synctest bubble advances although connections are open.
package testpipe

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// Network is a listener that accepts what is dialled.
type Network struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// New returns a network that nobody serves yet.
func New() *Network { return &Network{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept waits for the next connection. After Close it returns [net.ErrClosed].
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Close refuses further connections. Those that are open stay so.
func (n *Network) Close() error { n.once.Do(func() { close(n.done) }); return nil }

// Addr returns an address, since clients want one.
func (n *Network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// Dial connects to the server, whatever the address. It waits until the server accepts.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.conns <- server:
		return client, nil
	case <-n.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Serve starts a server on the network. stop closes both, and returns when the server accepts nothing more.
func (n *Network) Serve(server *http.Server) (stop func()) {
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(n) })
	return func() {
		_ = server.Close()
		_ = n.Close()
		serving.Wait()
	}
}
