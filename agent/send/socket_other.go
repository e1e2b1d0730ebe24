// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package send

import "net"

const haveSockets = false

// socket would examine a connection without reading from it. On this system nothing does that, so every exchange goes through net/http.
type socket struct{ net.Conn }

// newSocket returns nil.
func newSocket(net.Conn) *socket { return nil }

// Quiet returns true.
func (*socket) Quiet() bool { return true }

// WriteNow writes.
func (s *socket) WriteNow(p []byte) (int, error) { return s.Write(p) }
