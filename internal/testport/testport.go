// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package testport gives tests ports for the programs that they run. A program that tests start cannot always be told to choose its own
// port, and the packages of `go test ./...` run side by side: a port that is merely free may be given twice before anybody listens.
package testport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// The ports are the numbers from first to first+count-1. They stay below the ephemeral ports of Linux: above 32,767, an outgoing connection
// may have the port before the program does.
const (
	first = 20_000
	count = 10_000
)

// reserved holds the UDP sockets that reserve the given TCP ports: the system gives each UDP port to only one process, and the programs
// under test have no use for UDP. The sockets stay open as long as this process lives.
var reserved struct {
	sync.Mutex
	sockets []*net.UDPConn
}

// Address returns a loopback address, host and port, on which nobody listens and that no other test gets while this process lives.
func Address(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := first + rand.IntN(count) //nolint:gosec // any spread will do
		if reserve(port) {
			return fmt.Sprintf("127.0.0.1:%d", port)
		}
	}
	t.Fatalf("no free port from %d to %d", first, first+count-1)
	return ""
}

// Port returns the port of an [Address].
func Port(t testing.TB) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(Address(t))
	return port
}

// reserve tries to reserve a port for this process, and reports whether it did.
func reserve(port int) bool {
	loopback := net.IPv4(127, 0, 0, 1)
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loopback, Port: port})
	if err != nil {
		return false // another test has it
	}
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: loopback, Port: port})
	if err != nil {
		_ = socket.Close()
		return false // a program that is not one of our tests listens here
	}
	_ = listener.Close()

	reserved.Lock()
	defer reserved.Unlock()
	reserved.sockets = append(reserved.sockets, socket)
	return true
}
