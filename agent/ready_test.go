// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/testpipe"
)

// difficult is an engine on a network in memory that does not behave as it should. Its fields are the answers to each kind of request; n
// counts from 1.
type difficult struct {
	dial           func(n int) error
	models, health http.HandlerFunc
	post           func(n int, w http.ResponseWriter, r *http.Request) bool // false: it is served as it should be
}

// answer returns a handler that always gives the same answer.
func answer(status int, header, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if name, value, found := strings.Cut(header, ": "); found {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// never is a handler that gives no answer.
func never(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// until answers with one handler for a time, then with the other.
func until(d time.Duration, first, then http.HandlerFunc) http.HandlerFunc {
	began := time.Now()
	return func(w http.ResponseWriter, r *http.Request) {
		if time.Since(began) < d {
			first(w, r)
			return
		}
		then(w, r)
	}
}

var listed = answer(http.StatusOK, "", `{"data": [{"id": "m"}]}`)

// prepared is the result of a run against a difficult engine.
type prepared struct {
	report *report.Report
	err    error
	took   time.Duration
	notes  []string // warnings, too
}

// replay replays one row of words, in virtual time. It must be called in a bubble.
func (d difficult) replay(ctx context.Context, t *testing.T, cfg Config) (p prepared) {
	t.Helper()
	var mu sync.Mutex
	dialled, posts := 0, 0
	mux := http.NewServeMux()
	for path, handler := range map[string]http.HandlerFunc{"GET /v1/models": d.models, "GET /health": d.health} {
		if handler != nil {
			mux.HandleFunc(path, handler)
		}
	}
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		posts++
		n := posts
		mu.Unlock()
		if d.post != nil && d.post(n, w, r) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "length"}], "usage": {"prompt_tokens": %d, "completion_tokens": 1}}`,
			strings.Count(string(body), " ")+1)
	})
	network := testpipe.New()
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Hour}
	stop := network.Serve(server)

	cfg.Trace.Name = filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(cfg.Trace.Name, []byte(rows(1, 0)[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Target.URL, cfg.Prompt.NoStream, cfg.Waiter = "http://engine", true, schedule.NewSleeper
	cfg.Note = func(s string) { p.notes = append(p.notes, s) }
	cfg.Warn = cfg.Note
	cfg.DialContext = func(ctx context.Context, n, addr string) (net.Conn, error) {
		mu.Lock()
		dialled++
		attempt := dialled
		mu.Unlock()
		if d.dial != nil {
			if err := d.dial(attempt); err != nil {
				return nil, &net.OpError{Op: "dial", Net: n, Err: err}
			}
		}
		return network.Dial(ctx, n, addr)
	}
	began := time.Now()
	p.report, p.err = Run(ctx, cfg)
	p.took = time.Since(began)
	stop()
	time.Sleep(time.Minute) // the client's connections end
	return p
}

// TestPreflightIsBounded: the preparation before the first request ends within a known time, says what it waits for, and what to do about
// the engine; an interrupt ends it at once.
func TestPreflightIsBounded(t *testing.T) {
	status := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { answer(n, "", `{"error": {"message": "boom"}}`)(w, r) }
	}
	always := func(h http.HandlerFunc) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request) bool { h(w, r); return true }
	}
	once := func(h http.HandlerFunc) func(int, http.ResponseWriter, *http.Request) bool {
		return func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 1 {
				h(w, r)
			}
			return n == 1
		}
	}
	page := answer(http.StatusOK, "Content-Type: text/html", "<!doctype html><title>chat</title>")
	for _, tc := range []struct {
		name    string
		engine  func() difficult
		target  Target
		prompt  Prompt
		stop    time.Duration // interrupt
		err     []string      // parts of the error; none: the row is served
		notErr  string
		notes   []string // parts of the lines before
		atMost  time.Duration
		atLeast time.Duration
	}{
		{
			name: "no answer to the list of models", engine: func() difficult { return difficult{models: never} },
			err: []string{"no answer within 30s", "--wait-ready"}, notes: []string{"waiting for its list of models, 5s of at most 30s"}, atMost: 31 * time.Second,
		},
		{
			name: "no answer to the list of models, with a model", engine: func() difficult { return difficult{models: never} }, target: Target{Model: "m"},
			err: []string{"no answer within 30s"}, atMost: 31 * time.Second,
		},
		{
			name: "no answer to the list of models, with a shorter timeout", engine: func() difficult { return difficult{models: never} }, target: Target{TotalTimeout: 3 * time.Second},
			err: []string{"no answer within 3s"}, atMost: 4 * time.Second,
		},
		{
			name: "an interrupt", engine: func() difficult { return difficult{models: never} }, stop: 7 * time.Second,
			err: []string{"interrupted before the first request", "start it again"}, notErr: "engine", atMost: 7 * time.Second,
		},
		{
			name: "an interrupt while an engine is waited for", engine: func() difficult { return difficult{models: status(503)} },
			target: Target{WaitReady: time.Hour}, stop: 7 * time.Second,
			err: []string{"interrupted before the first request"}, notErr: "cancelled", atMost: 7 * time.Second,
		},
		{
			name: "an engine that loads its model", engine: func() difficult { return difficult{models: status(503)} },
			err: []string{"HTTP 503", "boom", "--wait-ready 5m"}, atMost: 31 * time.Second,
		},
		{
			name: "an engine that is waited for", engine: func() difficult {
				return difficult{models: until(20*time.Second, status(503), listed)}
			}, target: Target{WaitReady: 5 * time.Minute},
			notes: []string{"waiting for it to be ready", "5m0s: http (HTTP 503): boom", "ready after"}, atLeast: 20 * time.Second, atMost: 30 * time.Second,
		},
		{
			name: "an engine that starts", engine: func() difficult {
				began := time.Now()
				return difficult{models: listed, dial: func(int) error {
					if time.Since(began) < 20*time.Second {
						return syscall.ECONNREFUSED
					}
					return nil
				}}
			}, target: Target{WaitReady: 5 * time.Minute},
			notes: []string{"connection refused", "ready after"}, atLeast: 20 * time.Second, atMost: 30 * time.Second,
		},
		{
			name: "an engine that lists its models while it loads them", engine: func() difficult {
				return difficult{models: listed, health: until(20*time.Second, status(503), answer(200, "", "OK"))}
			}, target: Target{WaitReady: 5 * time.Minute},
			notes: []string{"HTTP 503", "ready after"}, atLeast: 20 * time.Second, atMost: 30 * time.Second,
		},
		{
			name: "an engine without /health", engine: func() difficult { return difficult{models: listed} }, target: Target{WaitReady: 5 * time.Minute},
			atMost: 2 * time.Second,
		},
		{
			name: "an engine that never is ready", engine: func() difficult { return difficult{models: status(503)} }, target: Target{WaitReady: time.Minute},
			err: []string{"not ready within 1m0s", "HTTP 503"}, notErr: "--wait-ready 5m", atLeast: time.Minute, atMost: time.Minute,
		},
		{
			name: "no answer to the list of models before the wait is over", engine: func() difficult { return difficult{models: never} },
			target: Target{WaitReady: 10 * time.Second},
			err:    []string{"not ready within 10s (--wait-ready): total_timeout: no answer within 10s", "is it an engine"}, notErr: "5m", atLeast: 10 * time.Second, atMost: 10 * time.Second,
		},
		{
			name: "no answer to the list of models before the wait is over, with a model", engine: func() difficult { return difficult{models: never} },
			target: Target{WaitReady: 10 * time.Second, Model: "m"},
			err:    []string{"not ready within 10s"}, atLeast: 10 * time.Second, atMost: 10 * time.Second,
		},
		{
			name: "no answer from /health before the wait is over", engine: func() difficult { return difficult{models: listed, health: never} },
			target: Target{WaitReady: 10 * time.Second},
			err:    []string{"not ready within 10s (--wait-ready): total_timeout: no answer within 10s"}, notErr: "%!", atLeast: 10 * time.Second, atMost: 10 * time.Second,
		},
		{
			name: "one failed calibration request", engine: func() difficult { return difficult{models: listed, post: once(status(500))} },
			atMost: 10 * time.Second,
		},
		{
			name: "one calibration request without an answer", engine: func() difficult { return difficult{models: listed, post: once(never)} },
			notes: []string{`waiting for the reply to a calibration request (model "m"), 5s of at most 4m0s`}, atLeast: 2 * time.Minute, atMost: 3 * time.Minute,
		},
		{
			name: "one calibration request whose connection ends", engine: func() difficult {
				return difficult{models: listed, post: once(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })}
			}, atMost: 10 * time.Second,
		},
		{
			name: "calibration that fails", engine: func() difficult { return difficult{models: listed, post: always(status(500))} },
			err: []string{"calibration", `POST /v1/chat/completions, "m"`, "HTTP 500", "boom", "tried 4 times", "--overhead"}, atMost: 20 * time.Second,
		},
		{
			name: "calibration without an answer", engine: func() difficult { return difficult{models: listed, post: always(never)} },
			err: []string{"calibration", "no answer within 2m0s", "--overhead"}, atLeast: 2 * time.Minute, atMost: 5 * time.Minute,
		},
		{
			name: "calibration without a key", engine: func() difficult { return difficult{models: listed, post: always(status(401))} },
			err: []string{"calibration", "HTTP 401", "--api-key-env or --api-key-file"}, notErr: "--overhead", atMost: time.Second,
		},
		{
			name: "a web page as the reply to calibration", engine: func() difficult { return difficult{models: listed, post: always(page)} },
			err: []string{"calibration", "a web page, not that of an OpenAI-compatible API", "http://engine:8000"}, atMost: time.Second,
		},
		{
			name: "no key", engine: func() difficult { return difficult{models: status(403)} },
			err: []string{"HTTP 403", "it wants an API key: --api-key-env or --api-key-file gives one"}, notErr: "URL", atMost: time.Second,
		},
		{
			name: "a wrong key", engine: func() difficult { return difficult{models: status(401)} }, target: Target{APIKey: "k"},
			err: []string{"HTTP 401", "is the API key right?"}, notErr: "x-api-key", atMost: time.Second,
		},
		{
			name: "a key where Anthropic wants it", engine: func() difficult { return difficult{models: status(401)} },
			target: Target{APIKey: "k"}, prompt: Prompt{Endpoint: prompt.Messages},
			err: []string{"HTTP 401", "it was sent as x-api-key", "--profile, such as vllm"}, notErr: "URL", atMost: time.Second,
		},
		{
			name: "a web page", engine: func() difficult { return difficult{models: page} },
			err: []string{"a web page, not that of an OpenAI-compatible API", "--url is the part before /v1"}, notErr: "--model", atMost: time.Second,
		},
		{
			name: "a web page, but the model is given", engine: func() difficult { return difficult{models: page} }, target: Target{Model: "m"},
			notes: []string{"a web page, not that"}, atMost: 2 * time.Second,
		},
		{
			name: "a redirect to another host", engine: func() difficult {
				return difficult{models: answer(307, "Location: https://u:secret@other:8443/api/v1/models?key=secret", "")}
			},
			err: []string{"redirects to https://other:8443/api/v1/models", "give --url https://other:8443/api"}, notErr: "secret", atMost: time.Second,
		},
		{
			name: "a redirect to a login", engine: func() difficult {
				return difficult{models: answer(302, "Location: /login?next=secret", "")}
			},
			err: []string{"redirects to http://engine/login", "give the URL of the engine itself"}, notErr: "secret", atMost: time.Second,
		},
		{
			name: "a redirect to itself", engine: func() difficult {
				return difficult{models: answer(307, "Location: http://engine/v1/models?key=secret", "")}
			},
			err: []string{"redirects http://engine/v1/models to itself, a loop", "the engine behind it"}, notErr: "give --url", atMost: time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.stop > 0 {
					time.AfterFunc(tc.stop, cancel)
				}
				p := tc.engine().replay(ctx, t, Config{Target: tc.target, Prompt: tc.prompt})
				switch {
				case tc.err == nil && (p.err != nil || p.report.Figures().Rows.Served != 1):
					t.Errorf("error %v, want the row to be served", p.err)
				case tc.err != nil && p.err == nil:
					t.Errorf("no error, want %q", tc.err)
				}
				for _, want := range tc.err {
					if p.err != nil && !strings.Contains(p.err.Error(), want) {
						t.Errorf("error %v\nwant %q", p.err, want)
					}
				}
				if p.err != nil && tc.notErr != "" && strings.Contains(p.err.Error(), tc.notErr) {
					t.Errorf("error %v\ndo not want %q", p.err, tc.notErr)
				}
				for _, want := range tc.notes {
					if !slices.ContainsFunc(p.notes, func(s string) bool { return strings.Contains(s, want) }) {
						t.Errorf("lines %q\nwant %q", p.notes, want)
					}
				}
				if p.took < tc.atLeast || p.took > tc.atMost {
					t.Errorf("it took %v, want %v to %v", p.took, tc.atLeast, tc.atMost)
				}
			})
		})
	}
}
