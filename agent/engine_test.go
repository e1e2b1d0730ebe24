// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moonloop/moonloop/internal/simulator"
)

// servingVar is the environment variable that makes the test binary a server for benchmarks, in a process of its own, so that it shares
// neither a scheduler nor a count of processor time with the agent. Its value is a serving as JSON.
const servingVar = "MOONLOOP_TEST_SERVING"

// serving says what such a process serves.
type serving struct {
	Sink    bool              // accepts OTLP and discards it; else an engine
	Whole   bool              // an engine whose replies are a stream of one token, in one write
	Latency simulator.Latency // of the engine
	Record  string            // file for the engine's records; empty = none
	TLS     bool
}

// runServing serves what the variable describes.
func runServing(how string) error {
	var s serving
	if err := json.Unmarshal([]byte(how), &s); err != nil {
		return err
	}
	return s.serve()
}

// serve runs the whole process. The first line on standard output is the server's URL. serve returns when standard input ends.
func (s serving) serve() error {
	handler := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // an empty answer is an empty OTLP response: all is accepted
	}))
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	stamped := func(ln net.Listener) net.Listener { return ln }
	switch {
	case s.Sink:
	case s.Whole:
		server.Handler = http.HandlerFunc(wholeReply)
	default:
		cfg := simulator.Config{Latency: s.Latency}
		if s.Record != "" {
			f, err := os.Create(s.Record)
			if err != nil {
				return err
			}
			cfg.Record.To = f
		}
		e, err := simulator.New(cfg)
		if err != nil {
			return err
		}
		server = e.NewServer()
		stamped = e.Stamped
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ln = stamped(ln)
	scheme := "http"
	if s.TLS {
		scheme = "https"
		certified := httptest.NewUnstartedServer(nil) // it brings a certificate for tests
		certified.StartTLS()
		certified.Close()
		ln = tls.NewListener(ln, &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12})
	}
	fmt.Printf("%s://%s\n", scheme, ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		time.Sleep(100 * time.Millisecond) // the engine writes a record when its request has ended
		_ = server.Close()
	}()
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// start runs the process. stop ends it after it has written everything.
func (s serving) start(b testing.TB) (url string, stop func()) {
	b.Helper()
	how, err := json.Marshal(s)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(b.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), servingVar+"="+string(how))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line), func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// processorTime returns the processor time that this process has used so far, garbage collection included.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	runtime.GC() // so that each measurement includes only its own garbage
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// wholeReply answers with a stream of one token, or with a list of models, in one write.
func wholeReply(w http.ResponseWriter, r *http.Request) {
	body := `{"object":"list","data":[{"id":"m","object":"model"}]}`
	if r.Method == http.MethodPost {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		body = `data: {"id":"c","object":"text_completion","model":"m","choices":[{"index":0,"text":" a","finish_reason":"length"}]}` + "\n\n" +
			`data: {"id":"c","object":"text_completion","model":"m","choices":[],"usage":{"prompt_tokens":512,"completion_tokens":1,"total_tokens":513}}` + "\n\ndata: [DONE]\n\n"
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.WriteString(w, body)
}
