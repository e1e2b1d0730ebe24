// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// TestReceived sends a request in two parts, and checks the arrival time that the engine records.
func TestReceived(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := e.NewServer()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(e.Stamped(listener))
	}()
	defer func() { _ = server.Close(); <-served }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"model":"m","prompt":[1,2,3],"max_tokens":1}`
	// The kernel begins to timestamp some time after the first socket asks for it, much later on a busy machine.
	var r *Record
	var second time.Duration
	for try := 0; try < 50 && (r == nil || r.Received == Never); try++ {
		if try > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: engine\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:10])
		time.Sleep(20 * time.Millisecond)
		second = time.Since(e.Start())
		fmt.Fprint(conn, body[10:])
		buf := make([]byte, 4<<10)
		if _, err := conn.Read(buf); err != nil {
			t.Fatal(err)
		}
		r = lastRecord(t, e)
	}
	if runtime.GOOS != "linux" {
		if r.Received != Never {
			t.Errorf("received at %v, without stamps", r.Received)
		}
		return
	}
	if r.Received < second || r.Received > r.BodyRead {
		t.Errorf("received at %v, want between %v, when its last part was sent, and %v, when it had been read", r.Received, second, r.BodyRead)
	}
}

// TestReceivedUnknown: without the listener, no arrival time is claimed.
func TestReceivedUnknown(t *testing.T) {
	e, url := serve(t, Config{})
	if _, _, err := tryPost(t, url+"/v1/completions", `{"model":"m","prompt":[1],"max_tokens":1}`); err != nil {
		t.Fatal(err)
	}
	if r := lastRecord(t, e); r.Received != Never || r.Status != http.StatusOK {
		t.Errorf("received at %v, status %d", r.Received, r.Status)
	}
}
