// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package send

import "net"

// stamper is the kernel's receive stamps, which this system does not have for TCP.
type stamper struct{ *net.TCPConn }

func newStamper(*net.TCPConn) *stamper { return nil }

func (s *stamper) read(p []byte) (n int, ns int64, waited bool, err error) {
	n, err = s.Read(p)
	return n, 0, false, err
}
