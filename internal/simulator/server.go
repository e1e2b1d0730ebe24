// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Bounds of [Engine.NewServer].
const (
	serverHeaderTimeout = 10 * time.Second
	serverIdleTimeout   = 2 * time.Minute
	serverHeaderBytes   = 64 << 10
)

// NewServer returns an HTTP server for the engine: HTTP/1.1 and HTTP/2, the latter without TLS too, bounded
// headers and idle times, connections numbered for the records. The caller gives it a listener, shuts it
// down, and then closes the engine.
func (e *Engine) NewServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           e,
		ConnContext:       e.connContext,
		ConnState:         e.connState,
		ReadHeaderTimeout: serverHeaderTimeout, // bodies are bounded by Config.BodyTimeout, replies by their plan
		IdleTimeout:       serverIdleTimeout,
		MaxHeaderBytes:    serverHeaderBytes,
		Protocols:         protocols,
	}
}

type connKey struct{}

// connInfo is what a record says of its connection.
type connInfo struct {
	number   uint64
	accepted time.Duration
	conn     net.Conn
}

// connContext numbers and stamps a connection; it is made for [http.Server].ConnContext.
func (e *Engine) connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, connInfo{number: e.conns.Add(1), accepted: e.now(), conn: c})
}

// closeWhenIdle closes the connection as soon as its reply is over, without announcing that in the reply, as some engines do. It needs
// [Engine.NewServer].
func (e *Engine) closeWhenIdle(ctx context.Context) {
	if c := connOf(ctx).conn; c != nil {
		e.leaving.Store(c, nil)
	}
}

// connState closes the connections that closeWhenIdle has named.
func (e *Engine) connState(c net.Conn, s http.ConnState) {
	if s != http.StateIdle && s != http.StateClosed {
		return
	}
	if _, named := e.leaving.LoadAndDelete(c); named {
		_ = c.Close()
	}
}

func connOf(ctx context.Context) connInfo {
	if c, ok := ctx.Value(connKey{}).(connInfo); ok {
		return c
	}
	return connInfo{accepted: Never}
}
