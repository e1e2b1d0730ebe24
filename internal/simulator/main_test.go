// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts an engine behind a real server on loopback. Everything is closed when the test ends.
func serve(t testing.TB, config Config) (*Engine, string) {
	t.Helper()
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = e.NewServer()
	server.Start()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return e, server.URL
}

// answer is what the head of a reply contains.
type answer struct {
	StatusCode int
	Header     http.Header
}

// post sends a body and returns status and reply. headers are pairs of name and value.
func post(t testing.TB, url, body string, headers ...string) (answer, string) {
	t.Helper()
	resp, reply, err := tryPost(t, url, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return resp, reply
}

func tryPost(t testing.TB, url, body string, headers ...string) (answer, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	reply, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header}, string(reply), err
}

// lastRecord waits for the requests in flight and returns the record with the highest number.
func lastRecord(t testing.TB, e *Engine) *Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	records := e.Records()
	if len(records) == 0 {
		t.Fatal("no record")
	}
	return records[len(records)-1]
}

// idsPrompt writes token ids as a JSON array.
func idsPrompt(ids []int) string {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, id)
	}
	b.WriteByte(']')
	return b.String()
}

// words returns a text of n+1 words.
func words(n int) string { return "go" + strings.Repeat(" word", n) }

// sharedData returns the path of a file of the shared data, or skips the test if it is absent.
func sharedData(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		t.Fatal("no go.mod above the package")
	}
	path := filepath.Join(dir, "..", "shared", "data", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the public trace is not here (%s); put it next to the checkout to run this test", name)
	}
	return path
}
