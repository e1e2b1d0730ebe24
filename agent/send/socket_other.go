// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package send

import "net"

const haveSockets = false

// socket would look at a connection without reading from it, but on this system there is none that does: every exchange goes by net/http.
type socket struct{ net.Conn }

// newSocket returns nil.
func newSocket(net.Conn) *socket { return nil }

// Quiet returns true.
func (*socket) Quiet() bool { return true }
