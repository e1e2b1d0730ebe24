// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/simulator"
)

// startSimulate runs the verb and returns its URL. stop ends it and returns exit status and standard error.
func startSimulate(t *testing.T, args ...string) (url string, stop func() (int, string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	var stderr bytes.Buffer
	status := make(chan int, 1)
	go func() {
		code := run(ctx, append([]string{"simulate", "--listen", "127.0.0.1:0"}, args...), strings.NewReader(""), in, &stderr)
		_ = in.Close()
		status <- code
	}()
	stop = func() (int, string) {
		cancel()
		return <-status, stderr.String()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		code, text := stop()
		t.Fatalf("no address: exit status %d, %s", code, text)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), stop
}

func ask(t *testing.T, url, key string) (status int, reply string) {
	t.Helper()
	body := `{"model":"m","messages":[{"role":"user","content":"go word word"}],"max_tokens":2}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

func TestSimulateServesAndRecords(t *testing.T) {
	t.Setenv("TEST_SIMULATE_KEY", "right")
	record := filepath.Join(t.TempDir(), "truth.jsonl")
	url, stop := startSimulate(t, "--fast", "--api-key-env", "TEST_SIMULATE_KEY", "--record", record, "--template-prompt", "0")
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("listening on %q", url)
	}
	if status, _ := ask(t, url, "wrong"); status != http.StatusUnauthorized {
		t.Errorf("wrong key: status %d", status)
	}
	if status, reply := ask(t, url, "right"); status != http.StatusOK || !strings.Contains(reply, `"prompt_tokens":8`) {
		t.Errorf("status %d, %s", status, reply) // 3 words, 5 for the message, 0 for the prompt
	}
	status, stderr := stop()
	if status != exitOK || !strings.Contains(stderr, "1 requests") {
		t.Errorf("exit status %d, %q", status, stderr)
	}
	content, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	var r simulator.Record
	if err := json.Unmarshal(content, &r); err != nil || r.PromptTokens != 8 || r.OutputTokens != 2 || len(r.Writes) != 1 {
		t.Errorf("record %s: %v", content, err)
	}
	if info, err := os.Stat(record); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the record is not the user's own: %v, %v", info.Mode(), err)
	}
}

func TestSimulateFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fault  string
		status int
		reply  string
	}{
		{"unavailable=1", http.StatusServiceUnavailable, "unavailable"},
		{"not-found=1", http.StatusNotFound, "Not Found"},
		{"html=1", http.StatusOK, "<title>"},
		{"short-prompt=1", http.StatusOK, `"prompt_tokens":7`}, // of 13
		{"cut=0", http.StatusOK, `"prompt_tokens":13`},
	} {
		url, stop := startSimulate(t, "--fast", "--fault", test.fault, "--retry-after", "3s")
		if status, reply := ask(t, url, ""); status != test.status || !strings.Contains(reply, test.reply) {
			t.Errorf("%s: status %d, %s", test.fault, status, reply)
		}
		if status, _ := stop(); status != exitOK {
			t.Errorf("%s: exit status %d", test.fault, status)
		}
	}
}

// The help names every fault.
func TestSimulateHelpNamesFaults(t *testing.T) {
	var out bytes.Buffer
	if status := run(t.Context(), []string{"simulate", "--help"}, strings.NewReader(""), &out, io.Discard); status != exitOK {
		t.Fatalf("exit status %d", status)
	}
	names, about, effects := simulator.FaultNames()
	for i, name := range names {
		if !strings.Contains(out.String(), "  "+string(name)+" ") || about[i] == "" || !strings.Contains(out.String(), about[i]) ||
			!strings.Contains(out.String(), effects[i]+":\n") {
			t.Errorf("the help does not explain %s", name)
		}
	}
}

func TestSimulateUsage(t *testing.T) {
	precious := filepath.Join(t.TempDir(), "truth.jsonl")
	if err := os.WriteFile(precious, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"--nonsense"}, "there is no such flag"},
		{"none of the choices", []string{"--prefill-lane", "fast"}, "parallel or serial"},
		{"a negative number", []string{"--max-running", "-1"}, `--max-running "-1": want`},
		{"fault without a share", []string{"--fault", "cut"}, "such as cut=0.01"},
		{"unknown fault", []string{"--fault", "nonsense=0.1"}, "rate-limit"},
		{"half a certificate", []string{"--tls-cert", "x"}, "give both"},
		{"key from an empty variable", []string{"--api-key-env", "TEST_SIMULATE_UNSET"}, "TEST_SIMULATE_UNSET"},
		{"an invalid port", []string{"--listen", "127.0.0.1:99999"}, "want host:port"},
		{"a record in a directory that is a file", []string{"--listen", "127.0.0.1:0", "--record", filepath.Join(precious, "x")}, "record file"},
		{"flags that exclude each other", []string{"--cache-slots", "2", "--cache-blocks", "4"}, "--cache-blocks is 4: must be 0 with --cache-slots"},
		{"several mistakes at once", []string{"--record", precious, "--early-stop", "2", "--block-size", "-1"}, `--block-size "-1"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stderr bytes.Buffer
			status := run(t.Context(), append([]string{"simulate"}, test.args...), strings.NewReader(""), io.Discard, &stderr)
			if status != exitUsage || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("exit status %d, %q", status, stderr.String())
			}
		})
	}
	if content, err := os.ReadFile(precious); err != nil || string(content) != "kept" {
		t.Errorf("a usage error cost the earlier record: %q, %v", content, err)
	}
}

func TestSimulateTLS(t *testing.T) {
	t.Parallel()
	lender := httptest.NewTLSServer(nil) // lends its certificate
	defer lender.Close()
	own := lender.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: own.Certificate[0]},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: key},
	}
	for name, block := range files {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	url, stop := startSimulate(t, "--fast", "--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"))
	client := lender.Client()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/health", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	client.CloseIdleConnections()
	if !strings.HasPrefix(url, "https://") || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: status %d", url, resp.StatusCode)
	}
	if status, _ := stop(); status != exitOK {
		t.Errorf("exit status %d", status)
	}
}

// --like sets what the engine of that name does, but nothing that a flag sets: blocks of 32, not 16, and replies in the cache.
func TestSimulateLike(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "truth.jsonl")
	url, stop := startSimulate(t, "--fast", "--like", "vllm", "--block-size", "32", "--record", record)
	send := func(prompt string) (text string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions",
			strings.NewReader(`{"model":"m","prompt":"`+prompt+`","max_tokens":33}`))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		var reply struct{ Choices []struct{ Text string } }
		if err := json.NewDecoder(response.Body).Decode(&reply); err != nil || len(reply.Choices) != 1 {
			t.Fatalf("%v: %+v", err, reply)
		}
		return reply.Choices[0].Text
	}
	const prompt = "go word word"
	send(prompt + " " + send(prompt) + " again")
	if status, out := stop(); status != exitOK {
		t.Errorf("exit status %d\n%s", status, out)
	}
	content, err := os.ReadFile(record)
	if lines := strings.Split(string(content), "\n"); err != nil || len(lines) != 3 || !strings.Contains(lines[1], `"cached_tokens":32,`) {
		t.Errorf("%v: the second request did not hit 32 tokens:\n%s", err, content)
	}
}

// If the engine cannot serve, the command of --run is ended: it would wait for an engine that is not there.
func TestSimulateEndsCommand(t *testing.T) {
	t.Parallel()
	f := simulateFlags{run: "exec sleep 20"}
	broken := errors.New("the listener is gone")
	ran, failed := f.serve(t.Context(), "http://127.0.0.1:1", io.Discard, func(context.Context) error { return broken })
	if ran == nil || !errors.Is(failed, broken) {
		t.Errorf("the command: %v, serving: %v", ran, failed)
	}
}
