// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testcert"
)

// TestKeyGoesToTheEngineAlone: whatever an engine does with a key, the replay writes it nowhere and sends it to nobody else.
func TestKeyGoesToTheEngineAlone(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]func(file string) (flags, environment []string){
		"from a file": func(file string) ([]string, []string) { return []string{"--api-key-file", file}, nil },
		"from the environment": func(string) ([]string, []string) {
			return []string{"--api-key-env", "MY_KEY"}, []string{"MY_KEY=" + canary}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var w witness
			elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				w.elsewhere(r)
			}))
			defer elsewhere.Close()
			engine := httptest.NewUnstartedServer(w.engine(elsewhere.URL))
			engine.StartTLS()
			defer engine.Close()
			ca, _ := testcert.Files(t, engine.TLS.Certificates[0])

			folder := t.TempDir()
			key := filepath.Join(folder, "key")
			trace := filepath.Join(folder, "trace.jsonl")
			for name, content := range map[string]string{key: canary + "\n", trace: strings.Repeat(rowOfSix, 20)} {
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			flags, environment := give(key)
			cmd := exec.CommandContext(t.Context(), "moonloop", append([]string{
				"replay", trace, "--url", engine.URL, "--ca-file", ca, "--model", "m", "--endpoint", "completions",
				"--out", filepath.Join(folder, "out"), "--progress", "lines", "--retries", "1", "--max-error-rate", "1",
			}, flags...)...)
			cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
			cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+elsewhere.URL)
			cmd.Env = append(cmd.Env, environment...)
			var output bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &output
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var err error
			var arguments []byte // what every user can see; empty for a moment after the start
			for deadline := time.Now().Add(time.Second); len(arguments) == 0 && time.Now().Before(deadline); {
				arguments, err = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
			}
			if runtime.GOOS == "linux" && (err != nil || len(arguments) == 0) {
				t.Errorf("the command line: %v", err)
			}
			_ = cmd.Wait()
			if status := cmd.ProcessState.ExitCode(); status != exitOK && status != exitInvalid {
				t.Errorf("exit status %d\n%s", status, &output)
			}

			w.mu.Lock()
			defer w.mu.Unlock()
			if w.authorised < 20 || w.answers < 5 {
				t.Errorf("%d requests with the key, %d kinds of answers; want at least 20, and 5", w.authorised, w.answers)
			}
			found := map[string][]byte{"the output": output.Bytes(), "the command line": arguments, "what went elsewhere": w.other.Bytes()}
			err = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || name == key {
					return err
				}
				found[name], err = os.ReadFile(name)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for where, content := range found {
				if where != "the command line" && len(content) == 0 {
					t.Errorf("%s is empty: nothing was tested", where)
				}
				for _, secret := range []string{canary, canary[:20], canary[len(canary)-20:]} {
					if bytes.Contains(content, []byte(secret)) {
						t.Errorf("%s contains the key", where)
					}
				}
			}
			if !bytes.Contains(found[filepath.Join(folder, "out", "requests.jsonl")], []byte("[hidden]")) {
				t.Error("no record quotes the engine's words about the key: nothing was tested")
			}
		})
	}
}

const canary = "sk-canary-7Gq0vJ2mWx9bTz4LpRfYc8"

// witness records what a replay sends to the engine and what it sends elsewhere.
type witness struct {
	mu         sync.Mutex
	authorised int // requests to the engine with the key
	answers    int // kinds of answers given
	other      bytes.Buffer
}

// elsewhere keeps every request to a server that is not the engine: the OTLP receiver, and the target of redirects.
func (w *witness) elsewhere(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintln(&w.other, r.Method, r.URL, r.Header)
	w.other.Write(body)
}

// engine answers in all ways in which a server can repeat a key to its sender.
func (w *witness) engine(elsewhere string) http.HandlerFunc {
	const stream = "text/event-stream"
	answers := []func(rw http.ResponseWriter, r *http.Request, key string){
		func(rw http.ResponseWriter, _ *http.Request, key string) {
			rw.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(rw, `{"error": {"message": "the key %s is not for this model", "code": %q}}`, key, key)
		},
		func(rw http.ResponseWriter, _ *http.Request, key string) {
			http.Error(rw, "Authorization: "+key, http.StatusUnauthorized)
		},
		func(rw http.ResponseWriter, r *http.Request, _ string) {
			http.Redirect(rw, r, elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
		},
		func(rw http.ResponseWriter, _ *http.Request, key string) {
			rw.Header().Set("Content-Type", stream)
			fmt.Fprintf(rw, "data: {\"error\": {\"message\": \"%s has no credit\", \"type\": %q}}\n\n", key, key)
		},
		func(rw http.ResponseWriter, _ *http.Request, key string) {
			rw.Header().Set("Content-Type", stream)
			rw.Header().Set("X-Request-Id", key)
			fmt.Fprintf(rw, "data: {\"id\": %q, \"model\": %q, \"choices\": [{\"text\": \"a\", \"finish_reason\": %q}]}\n\ndata: [DONE]\n\n", key, key, key)
		},
		func(rw http.ResponseWriter, _ *http.Request, key string) {
			c, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", key)
		},
	}
	given := map[int]bool{}
	return func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/v1/models" {
			answers[1](rw, r, r.Header.Get("Authorization"))
			return
		}
		w.mu.Lock()
		if r.Header.Get("Authorization") == "Bearer "+canary {
			w.authorised++
		}
		kind := w.authorised % len(answers)
		given[kind] = true
		w.answers = len(given)
		w.mu.Unlock()
		answers[kind](rw, r, r.Header.Get("Authorization")[len("Bearer "):])
	}
}
