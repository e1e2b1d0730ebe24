// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// alertWait is how long to wait for a server's alert after a handshake.
const alertWait = 2 * time.Second

// alert returns why the server refuses this client although the handshake succeeded, or nil. In TLS 1.3, a server checks the client's
// certificate after the client's part of the handshake. So the request may fail with a broken connection before the server's alert is read.
// This function sends no request, so that the alert is not lost.
func (c *Client) alert(ctx context.Context) *Error {
	if c.base.Scheme != "https" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, alertWait)
	defer cancel()
	port := c.base.Port()
	if port == "" {
		port = "443"
	}
	raw, err := c.connections.shared.DialContext(ctx, "tcp", net.JoinHostPort(c.base.Hostname(), port))
	if err != nil {
		return nil
	}
	defer raw.Close() //nolint:errcheck // no request was sent
	config := c.connections.shared.TLSClientConfig.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	if config.ServerName == "" {
		config.ServerName = c.base.Hostname()
	}
	if c.cfg.HTTP2 {
		config.NextProtos = []string{"h2"}
	}
	conn := tls.Client(raw, config)
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	_, err = conn.Read(make([]byte, 1)) // does the handshake
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return classify(err, nil, false)
	}
	return nil
}
