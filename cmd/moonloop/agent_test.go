// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testcert"
)

// TestRunOptions: a request has the options of a replay, under the same rules, except those that touch the service's files, keys or
// memory.
func TestRunOptions(t *testing.T) {
	var f agentFlags
	base := agent.Config{RunID: "id", Out: "out", Trace: agent.Trace{Name: "trace.jsonl"}, Target: agent.Target{URL: "http://127.0.0.1:1"}}
	prepare := func(options string) (agent.Config, map[string]any, error) {
		t.Helper()
		var given map[string]json.RawMessage
		if err := json.Unmarshal([]byte(options), &given); err != nil {
			t.Fatal(err)
		}
		p, err := f.prepare(t.Context(), base, given)
		return p.Config, p.Options, err
	}
	c, shown, err := prepare(`{"speedup": 2.5, "max-requests": 7, "strict": true, "slo": "ttft=1s", "extra-inputs": {"user": "` + planted + `"}, "start": "5m"}`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Schedule.Speedup != 2.5 || c.Trace.MaxRows != 7 || !c.Trace.Strict || !c.SLO.Any() || !strings.Contains(string(c.Prompt.Extra), planted) || c.Trace.Start != 5*time.Minute {
		t.Errorf("the options make %+v", c)
	}
	if c.RunID != "id" || c.Out != "out" || c.Target.URL != base.Target.URL || c.Trace.Name != base.Trace.Name {
		t.Errorf("the options change what is the service's: %+v", c)
	}
	if content, _ := json.Marshal([]any{shown, c.Command}); bytes.Contains(content, []byte(planted)) || !bytes.Contains(content, []byte("max-requests")) {
		t.Errorf("shown: %s", content)
	}
	for options, want := range map[string]string{
		`{"speedup": "2"}`:            "speedup: want a number",
		`{"speedup": null}`:           "speedup: want a number",
		`{"speedup": 1e400}`:          `speedup "1e400": want a number from`,
		`{"max-requests": 1.5}`:       "want a whole number",
		`{"strict": "true"}`:          "strict: want true or false",
		`{"model": ""}`:               "its value is empty",
		`{"model": "a\nb"}`:           "control character",
		`{"extra-inputs": "x"}`:       "extra-inputs: want a JSON object",
		`{"endpoint": "chats"}`:       "want chat, completions, responses, messages, embeddings or generate",
		`{"spedup": 1}`:               "did you mean speedup?",
		`{"num-prompts": 1}`:          "a run has no such option",
		`{"transform": "--first 7"}`:  "make the trace with moonloop transform first",
		`{"from": "otlp"}`:            "make the trace with moonloop convert first",
		`{"shard": "0/2"}`:            "start the shards with moonloop replay",
		`{"goodput-goal": 0.5}`:       "it needs a service level, such as slo",
		`{"` + planted + `\n": 1}`:    "a run has no such option",
		`{"strict":true,"lenient":1}`: "lenient: want true or false",
	} {
		if _, _, err := prepare(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", options, err, want)
		}
	}
	// No request can set a flag of the service, and each name in the list is a flag.
	for name := range strings.FieldsSeq(servicesOwn) {
		if newRunRequest(nil).cmd.Flags().Lookup(name) == nil && name != "help" {
			t.Errorf("--%s is the service's own, and there is no such flag", name)
		}
		if _, _, err := prepare(`{"` + name + `": "x"}`); err == nil || !strings.Contains(err.Error(), "no such option") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A client that fills in what the description of the API has as defaults gets the run that it would get without them.
	filled := map[string]any{}
	for _, o := range runOptions() {
		if strings.Contains(o.About, "repeatable") {
			t.Errorf("%s: a member of JSON cannot be repeated: %s", o.Name, o.About)
		}
		if o.Default != nil {
			filled[o.Name] = o.Default
			one, _ := json.Marshal(map[string]any{o.Name: o.Default})
			if _, _, err := prepare(string(one)); err != nil {
				t.Errorf("the default %s is refused: %v", one, err)
			}
		}
	}
	all, err := json.Marshal(filled)
	if err != nil {
		t.Fatal(err)
	}
	with, _, err := prepare(string(all))
	if err != nil {
		t.Errorf("the defaults together are refused: %v", err)
	}
	without, _, err := prepare(`{}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", with.Schedule), fmt.Sprintf("%+v", without.Schedule); got != want {
		t.Errorf("the defaults make the schedule %s, and without them it is %s", got, want)
	}
	newRunRequest(nil).cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if rule := ruleOf(f); isRunOption(f) && (rule.want == aFile.want || rule.want == aPEMFile.want || rule.want == aVariable.want || strings.Contains(rule.want, "folder") || strings.Contains(rule.want, "host")) {
			t.Errorf("a request can name a file or an address by %s", f.Name)
		}
	})
}

// served is a service in this process.
type served struct {
	url    string
	end    func() (status int)
	stderr *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serveHere runs "moonloop agent" until end is called, at the latest at the end of the test.
func serveHere(t *testing.T, flags ...string) served {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr lockedBuffer
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, append([]string{"agent", "--listen", "127.0.0.1:0"}, flags...), strings.NewReader(""), &stdout, &stderr)
	}()
	s := served{stderr: &stderr, end: sync.OnceValue(func() int { cancel(); return <-status })}
	t.Cleanup(func() { s.end() })
	listening := regexp.MustCompile(`listening on (\S+)\n`)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if m := listening.FindStringSubmatch(stdout.String()); m != nil {
			s.url = m[1]
			return s
		}
		if time.Now().After(deadline) || len(status) > 0 {
			t.Fatalf("the service does not begin: %s", stderr.String())
		}
	}
}

func request(t *testing.T, client *http.Client, method, address, body string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+planted)
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, content
}

// TestAgentServes runs a replay through HTTPS against an engine that needs a key. Neither the key nor the token is in an answer, a file or
// on standard error.
func TestAgentServes(t *testing.T) {
	withoutOTel(t)
	key := planted + "engine"
	e, err := simulator.New(simulator.Config{Models: []string{"sim"}, APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewServer(e)
	t.Cleanup(func() {
		engine.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	folder := t.TempDir()
	authority := testcert.New(t)
	cert, certKey := testcert.Files(t, authority.Sign(t, "127.0.0.1"))
	for name, content := range map[string]string{"trace.jsonl": rowOfSix, "\x1b[2J.jsonl": "{", "token": planted + "\n", "key": key} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(folder, "runs")
	s := serveHere(t, "--token-file", filepath.Join(folder, "token"), "--tls-cert", cert, "--tls-key", certKey,
		"--allow-target", engine.URL, "--traces", folder, "--out", out, "--api-key-file", filepath.Join(folder, "key"), "--otlp-protocol", "grpc")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}}
	defer client.CloseIdleConnections()
	var seen [][]byte
	do := func(method, path, body string, want int) []byte {
		t.Helper()
		status, content := request(t, client, method, s.url+path, body)
		if status != want {
			t.Fatalf("%s %s: %d %s", method, path, status, content)
		}
		seen = append(seen, content)
		return content
	}
	var run struct{ ID, State, Error string }
	if err := json.Unmarshal(do("POST", "/v1/runs", `{"trace": "trace.jsonl", "endpoint": "completions", "token-events": "none"}`, http.StatusCreated), &run); err != nil {
		t.Fatal(err)
	}
	events := do("GET", "/v1/runs/"+run.ID+"/events", "", http.StatusOK)
	if err := json.Unmarshal(do("GET", "/v1/runs/"+run.ID, "", http.StatusOK), &run); err != nil || run.State != "finished" {
		t.Errorf("the run is %+v (%v) after %s", run, err, events)
	}
	var failed struct{ ID string }
	if err := json.Unmarshal(do("POST", "/v1/runs", `{"trace": "\u001b[2J.jsonl"}`, http.StatusCreated), &failed); err != nil {
		t.Fatal(err)
	}
	do("GET", "/v1/runs/"+failed.ID+"/events", "", http.StatusOK)
	do("GET", "/metrics", "", http.StatusOK)
	do("GET", "/v1/runs", "", http.StatusOK)
	do("POST", "/v1/runs", `{"trace": "trace.jsonl", "api-key-file": "/etc/passwd"}`, http.StatusBadRequest)
	if status := s.end(); status != exitOK {
		t.Errorf("exit status %d: %s", status, s.stderr)
	}
	if said := s.stderr.String(); strings.Contains(said, "\x1b") || !strings.Contains(said, `failed: \x1b[2J.jsonl:1: `) {
		t.Errorf("the name of a trace controls the terminal, or is not there: %q", said)
	}
	for _, file := range []string{"run.json", "summary.json", "requests.jsonl", "report.html"} {
		content, err := os.ReadFile(filepath.Join(out, run.ID, file))
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, content)
		if off := "telemetry is off, so --token-events and --otlp-protocol had no effect"; file == "summary.json" && !bytes.Contains(content, []byte(off)) {
			t.Errorf("the summary does not warn: %s", off)
		}
	}
	for _, content := range append(seen, []byte(s.stderr.String())) {
		if bytes.Contains(content, []byte(planted)) {
			t.Errorf("a secret is in %.300s", content)
		}
	}
}

// TestAgentRefuses: a service that would be open to others, or to everything, does not begin.
func TestAgentRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("token", []byte("a-token-of-enough-letters"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flags, want string }{
		{"--allow-target http://e", "no token: put one into MOONLOOP_TOKEN"},
		{"--no-auth", "--allow-target: none given"},
		{"--no-auth --allow-target http://e --listen 0.0.0.0:0", `--no-auth: other machines can reach "0.0.0.0:0"`},
		{"--no-auth --allow-target http://e --listen example.com:0", "--no-auth: other machines"},
		{"--token-file token --no-auth --allow-target http://e", "--no-auth with a token"},
		{"--token-file token --allow-target http://e --listen :0", "would listen on every network"},
		{"--token-env SHORT --allow-target http://e", "fewer than 16 characters"},
		{"--token-env MISSING --allow-target http://e", "--token-env: environment variable MISSING is empty or not set"},
		{"--token-file token --allow-target http://u:p@e", "without user, query and fragment"},
		{"--token-file token --allow-target http://e --tls-cert token", "--tls-cert without --tls-key"},
		{"--token-file token --allow-target http://e --ca-file token", "--ca-file token: it holds no PEM certificate"},
		{"--token-file token --allow-target http://e --api-key-env MISSING", "--api-key-env: environment variable MISSING"},
		{"--token-file token --allow-target http://e --traces missing", "folder of traces"},
		{"--token-file token --allow-target http://e --out token", "folder of results"},
		{"trace.jsonl", "agent takes no argument"},
	} {
		t.Setenv("SHORT", "short")
		t.Setenv(tokenEnv, "")
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), append([]string{"agent", "--listen", "127.0.0.1:0"}, strings.Fields(c.flags)...), strings.NewReader(""), &stdout, &stderr)
		if strings.Contains(c.flags, "--listen") {
			stdout.Reset()
			stderr.Reset()
			status = run(t.Context(), append([]string{"agent"}, strings.Fields(c.flags)...), strings.NewReader(""), &stdout, &stderr)
		}
		if status != exitUsage || !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
			t.Errorf("%s: status %d, %s%s; want %q", c.flags, status, stdout.String(), stderr.String(), c.want)
		}
	}
}

// TestOpenAPI: docs/openapi.json is what the service serves, except for its version.
func TestOpenAPI(t *testing.T) {
	s := serveHere(t, "--no-auth", "--allow-target", "http://127.0.0.1:1", "--out", filepath.Join(t.TempDir(), "runs"))
	defer http.DefaultClient.CloseIdleConnections()
	status, content := request(t, http.DefaultClient, "GET", s.url+"/openapi.json", "")
	if status != http.StatusOK {
		t.Fatal(status)
	}
	quotedVersion, _ := json.Marshal(version())
	checkText(t, filepath.Join("..", "..", "docs", "openapi.json"), strings.Replace(string(content), string(quotedVersion), `""`, 1))
}
