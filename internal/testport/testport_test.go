// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package testport

import (
	"net"
	"strconv"
	"testing"
)

// A port of another process or test is not returned: the two look alike to the system.
func TestReserve(t *testing.T) {
	port, err := strconv.Atoi(Port(t))
	if err != nil {
		t.Fatal(err)
	}
	if reserve(port) {
		t.Error("a port was given twice")
	}

	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := listener.Addr().(*net.TCPAddr).Port
	if reserve(taken) {
		t.Error("a port was given on which somebody listens")
	}
}

// The program that the port is for can listen there.
func TestAddressIsFree(t *testing.T) {
	listener, err := net.Listen("tcp", Address(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}
