// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kernelstamp

import "net"

// Reader would read the kernel's receive stamps, but this system has none for TCP.
type Reader struct{ tcp *net.TCPConn }

// NewReader always returns nil.
func NewReader(*net.TCPConn) *Reader { return nil }

// Read reads like net.Conn.
func (r *Reader) Read(p []byte) (n int, ns int64, waited bool, err error) { return r.ReadAfter(nil, p) }

// ReadAfter calls prepare, if it is not nil, and then reads.
func (r *Reader) ReadAfter(prepare func() (empty bool, err error), p []byte) (n int, ns int64, waited bool, err error) {
	if prepare != nil {
		if _, err := prepare(); err != nil {
			return 0, 0, false, err
		}
	}
	n, err = r.tcp.Read(p)
	return n, 0, false, err
}
