// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/internal/demo"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// TestCaptureScripts runs "moonloop capture" as its users do.
func TestCaptureScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "capture"),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"engine":    scriptEngine,
			"exits":     scriptExits,
			"listening": scriptListening,
			"await":     scriptAwait,
		},
		Setup: func(env *testscript.Env) error {
			env.Vars = slices.DeleteFunc(env.Vars, func(v string) bool {
				return strings.HasPrefix(v, "OTEL_") || strings.HasPrefix(v, hashKeyEnv)
			})
			return scriptSetup(env)
		},
	})
}

// scriptListening puts a port into a variable: a free one, or one that stays in use: listening NAME [keep]
func scriptListening(ts *testscript.TestScript, _ bool, args []string) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Setenv(args[0], port)
	if len(args) > 1 {
		ts.Defer(func() { ts.Check(l.Close()) })
		return
	}
	ts.Check(l.Close())
}

// scriptAwait returns when somebody listens on a port: await PORT
func scriptAwait(ts *testscript.TestScript, _ bool, args []string) {
	for range 10_000 {
		c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", "127.0.0.1:"+args[0])
		if err == nil {
			ts.Check(c.Close())
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("nobody listens on port %s", args[0])
}

// capturing is a running "moonloop capture".
type capturing struct {
	*exec.Cmd
	grpc   string // where it listens
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// startCapture starts a capture in a folder.
func startCapture(t *testing.T, folder string, args ...string) *capturing {
	t.Helper()
	return startCaptureWith(t, folder, nil, args...)
}

// startCaptureWith starts a capture in a folder, with additional environment variables.
func startCaptureWith(t *testing.T, folder string, environment []string, args ...string) *capturing {
	t.Helper()
	c := &capturing{Cmd: exec.CommandContext(t.Context(), "moonloop",
		append([]string{"capture", "--out", "prod.jsonl", "--grpc", "127.0.0.1:0", "--http", "", "--progress", "none"}, args...)...)}
	c.Dir = folder
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
	c.Env = append(append(c.Env, hashKeyEnv+"="+strings.Repeat("0123456789abcdef", 2)), environment...)
	c.Stderr = &c.stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdout = bufio.NewReader(out)
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		_ = c.Wait()
		t.Fatalf("capture did not start: %v\n%s", err, &c.stderr)
	}
	c.grpc = strings.TrimPrefix(strings.TrimSpace(line), "listening for OTLP over gRPC on ")
	return c
}

// end stops the capture by a signal and returns its output.
func (c *capturing) end(t *testing.T, signal os.Signal) (stdout string, status int) {
	t.Helper()
	if err := c.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	if _, err := c.stdout.WriteTo(&rest); err != nil && !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	_ = c.Wait()
	return rest.String(), c.ProcessState.ExitCode()
}

// produce runs the demonstration's application against an engine without latency, and sends its spans to an address.
func produce(t *testing.T, address string, seed uint64) demo.Sent {
	t.Helper()
	e, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(e)
	defer s.Close()
	spans, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(address), otlptracegrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans, sdktrace.WithMaxExportBatchSize(32)))
	plan := demo.Plan(8*time.Second, seed)
	for i := range plan {
		plan[i].Start /= 20
		for j := range plan[i].Turns {
			plan[i].Turns[j].Think /= 20
		}
	}
	app := demo.Application{Engine: s.URL, Tracer: provider.Tracer("test")}
	sent := app.Run(t.Context(), plan)
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sent.Failed > 0 || sent.Requests != int64(demo.Turns(plan)) {
		t.Fatalf("%d of %d requests failed: %v", sent.Failed, sent.Requests, sent.Err)
	}
	return sent
}

// TestCaptureProduction captures an application, kills the capture, continues it, and ends it with a trace of everything that had been
// acknowledged. The trace shares what the engine had cached.
func TestCaptureProduction(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	c := startCapture(t, folder)
	first := produce(t, c.grpc, 1)
	if _, status := c.end(t, os.Kill); status == exitOK {
		t.Fatal("a killed capture ended well")
	}
	if _, err := os.Stat(filepath.Join(folder, "prod.jsonl")); err == nil {
		t.Fatal("a killed capture left a trace")
	}
	c = startCapture(t, folder)
	second := produce(t, c.grpc, 2)
	out, status := c.end(t, os.Interrupt)
	if status != exitOK {
		t.Fatalf("exit status %d\n%s%s", status, out, &c.stderr)
	}
	if !strings.Contains(c.stderr.String(), "continuing the journals of an earlier capture") {
		t.Errorf("it does not say that it continues:\n%s", &c.stderr)
	}
	rows, err := readRows(filepath.Join(folder, "prod.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := int64(len(rows)), first.Requests+second.Requests; got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
	meta, err := mooncake.LoadMeta(filepath.Join(folder, "prod.jsonl"))
	if err != nil || meta.Identity["text"] != int64(len(rows)) {
		t.Errorf("identities %v (%v), want text for all", meta.Identity, err)
	}
	sessions := map[string]bool{}
	var tokens int64
	sim := stats.NewCacheSim(stats.CacheOptions{})
	for _, row := range rows {
		sessions[row.SessionID] = true
		tokens += row.InputLength.V
		sim.Add(row)
	}
	if want := len(demo.Plan(8*time.Second, 1)) + len(demo.Plan(8*time.Second, 2)); len(sessions) != want || sessions[""] {
		t.Errorf("%d sessions, want %d and no row without one", len(sessions), want)
	}
	if want := first.PromptTokens + second.PromptTokens; tokens != want {
		t.Errorf("%d prompt tokens, the engine counted %d", tokens, want)
	}
	stats := sim.Stats()
	hits, engine := stats[len(stats)-1].FullHitTokens, first.Cached+second.Cached
	// The borders of blocks are estimated from text, so some are one token early or late; concurrent requests miss each other's prompts.
	if diff := float64(hits-engine) / float64(tokens); diff < -0.05 || diff > 0.05 {
		t.Errorf("the trace's cache hits %d of %d tokens, the engine's %d", hits, tokens, engine)
	}
	search := demo.NewSearch(append(first.Texts, second.Texts...))
	left, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if search.In(content) {
			t.Errorf("%s contains text of prompts", entry.Name())
		}
	}
	if len(left) != 2 {
		t.Errorf("%v is left, want the trace and its sidecar", left)
	}
}

// readRows reads a trace.
func readRows(name string) (rows []*mooncake.Row, err error) {
	trace, err := mooncake.Open(context.Background(), name, mooncake.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, trace.Close()) }()
	for {
		row, err := trace.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
}

// TestCaptureMetrics: Prometheus can watch a capture, under the names of the Collector's metrics.
func TestCaptureMetrics(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()
	environment := []string{"OTEL_METRICS_EXPORTER=prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST=" + host, "OTEL_EXPORTER_PROMETHEUS_PORT=" + port}
	c := startCaptureWith(t, t.TempDir(), environment)
	scrape := func() string {
		reply, err := http.Get("http://" + net.JoinHostPort(host, port) + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if before := scrape(); !regexp.MustCompile(`(?m)^otelcol_exporter_mooncake_records_total\{kind="inference".*\} 0$`).MatchString(before) {
		t.Errorf("before the first span:\n%s", before)
	}
	produce(t, c.grpc, 1)
	after := scrape()
	for _, want := range []string{
		`otelcol_exporter_mooncake_request_spans_total\{identity="text",model="[^"]+",.*outcome="served",.*traffic="production"\} [1-9]`,
		`otelcol_exporter_mooncake_last_request_age_seconds\{`, `otelcol_exporter_mooncake_lag_seconds_count\{.*\} [1-9]`,
		`otelcol_receiver_mooncake_spans_total\{.*\} [1-9]`,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(after) {
			t.Errorf("no %s in:\n%s", want, after)
		}
	}
	if _, status := c.end(t, os.Interrupt); status != 0 {
		t.Errorf("exit status %d\n%s", status, &c.stderr)
	}
}
