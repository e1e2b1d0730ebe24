// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testpipe"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(servingVar); how != "" {
		if err := runServing(how); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// engine is a simulated engine behind real HTTP on loopback, or on a network in memory.
type engine struct {
	*simulator.Engine
	url     string
	network *testpipe.Network // nil = loopback
}

// keeping returns the configuration of an engine that records what these tests check.
func keeping(cfg simulator.Config) simulator.Config {
	cfg.Record.Bodies, cfg.Record.Blocks = true, true
	cfg.Record.Headers = append(cfg.Record.Headers, "X-Session-Id", "X-Test")
	return cfg
}

func newEngine(t *testing.T, cfg simulator.Config) engine {
	t.Helper()
	e, err := simulator.New(keeping(cfg))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := e.NewServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		_ = e.Close()
	})
	return engine{Engine: e, url: "http://" + ln.Addr().String()}
}

// bubble is the test inside a bubble of virtual time.
type bubble struct{ *testing.T }

// virtually gives a test an engine in virtual time, where nothing is late on a busy machine.
func virtually(t *testing.T, cfg simulator.Config, test func(bubble, engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, network, stop := serveVirtually(t, keeping(cfg))
		test(bubble{t}, engine{e, "http://engine", network})
		stop()
	})
}

// result is one line of requests.jsonl.
type result struct {
	Result struct {
		Outcome, Reason, Message string
		Row                      int64
		Turn                     int
		Intended, Dispatched     float64
		Lateness                 float64 `json:"lateness_ms"`
		TTFT                     float64 `json:"ttft_ms"`
		Attempts                 int
		Prompt                   string `json:"prompt_agreement"`
		Output                   string `json:"output_agreement"`
		TooShort                 bool   `json:"too_short"`
		Predicted                *int64 `json:"predicted_cached_tokens"`
		Usage                    struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Cached     int64 `json:"cached_tokens"`
		}
	}
}

// replayed is what one replay left.
type replayed struct {
	report  *report.Report
	err     error
	results []result            // by row
	sent    []*simulator.Record // what the engine received for rows of the trace, by row
	warmups []*simulator.Record
	other   []*simulator.Record // calibration
}

// replay runs a configuration against the engine; the trace is given as lines. It fails the test unless each row ends as exactly one
// record.
func (e engine) replay(t testing.TB, cfg Config, lines ...string) replayed {
	t.Helper()
	return e.replayContext(t.Context(), t, cfg, lines...)
}

func (e engine) replayContext(ctx context.Context, t testing.TB, cfg Config, lines ...string) replayed {
	t.Helper()
	cfg.Trace.Name = filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(cfg.Trace.Name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Target.URL = e.url
	if e.network != nil {
		cfg.DialContext, cfg.Waiter = e.network.Dial, schedule.NewSleeper
	}
	cfg.Out = filepath.Join(t.TempDir(), "out")
	cfg.RunID = "run"
	if cfg.Lead == 0 {
		cfg.Lead = time.Millisecond
	}
	before := len(e.Records())
	r := replayed{}
	r.report, r.err = Run(ctx, cfg)
	if err := e.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.read(t, cfg.Out)
	for _, rec := range e.Records()[before:] {
		row, found := strings.CutPrefix(rec.Header.Get("X-Request-Id"), "run-")
		index, err := strconv.ParseInt(row, 10, 64)
		switch {
		case !found || err != nil:
			r.other = append(r.other, rec)
		case index < 0:
			r.warmups = append(r.warmups, rec)
		default:
			for int64(len(r.sent)) <= index {
				r.sent = append(r.sent, nil)
			}
			r.sent[index] = rec
		}
	}
	return r
}

// read reads requests.jsonl, if the run wrote it.
func (r *replayed) read(t testing.TB, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, report.RequestsFile))
	if err != nil {
		if r.err == nil {
			t.Fatal(err)
		}
		return
	}
	seen := make(map[int64]bool)
	for line := range strings.Lines(string(b)) {
		var res result
		if err := json.Unmarshal([]byte(line), &res); err != nil {
			t.Fatal(err)
		}
		if seen[res.Result.Row] {
			t.Errorf("row %d has two records", res.Result.Row)
		}
		seen[res.Result.Row] = true
		r.results = append(r.results, res)
	}
	if r.report != nil && int64(len(r.results)) != r.report.Trace.Rows {
		t.Errorf("%d records of %d rows", len(r.results), r.report.Trace.Rows)
	}
}

// chatBody is the part of a chat request that tests check.
type chatBody struct {
	Model    string
	Messages []struct {
		Role      string
		Content   any
		ToolCalls []any `json:"tool_calls"`
	}
	Tools       []any
	Temperature *float64
	Prompt      any
}

func body(t testing.TB, rec *simulator.Record) chatBody {
	t.Helper()
	var b chatBody
	if err := json.Unmarshal(rec.Body, &b); err != nil {
		t.Fatalf("body: %v", err)
	}
	return b
}
