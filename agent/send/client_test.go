// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/clock"
)

func TestConfigHidesSecrets(t *testing.T) {
	c := Config{URL: "http://user:canary@h/v1?k=canary", APIKey: "canary", Header: http.Header{"X-Key": {"canary"}}}
	j, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{c.String(), fmt.Sprintf("%v", c), fmt.Sprintf("%+v", &c), fmt.Sprintf("%#v", c), string(j)} {
		if strings.Contains(s, "canary") || !strings.Contains(s, "X-Key") {
			t.Error(s)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "want http://host:port"},
		{Config{URL: "127.0.0.1:8000"}, "cannot be read"},
		{Config{URL: "ftp://h"}, "want http://host:port"},
		{Config{URL: "http://u:canary@h"}, "user name"},
		{Config{URL: "http://h", APIKey: "canary\n"}, "no header can carry"},
		{Config{URL: "http://h", IdleTimeout: -1}, "idle timeout: it is below 0"},
		{Config{URL: "http://h", Retries: -1}, "retries: it is below 0"},
		{Config{URL: "http://h", Retries: -1, MaxReply: -1, MaxLine: -1, IdleTimeout: -1}, strings.Join([]string{
			"send: idle timeout: it is below 0; want 0 or more", "send: max line: it is below 0; want 0 or more",
			"send: max reply: it is below 0; want 0 or more", "send: retries: it is below 0; want 0 or more",
		}, "\n")},
		{Config{URL: "http://h", Reuse: "never"}, `connections "never": want kept, fresh or session`},
	} {
		_, err := New(c.cfg, clock.New())
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%v: %v, want …%s…", c.cfg, err, c.want)
		}
	}
}

func TestJoin(t *testing.T) {
	for _, c := range [][3]string{
		{"http://h:1", "/v1/models", "http://h:1/v1/models"},
		{"http://h:1/", "/v1/models", "http://h:1/v1/models"},
		{"http://h:1/v1", "/v1/models", "http://h:1/v1/models"},
		{"http://h:1/v1/", "/v1/models", "http://h:1/v1/models"},
		{"http://h:1/v1", "/health", "http://h:1/health"},
		{"http://h:1/openai/v1?api-version=2", "/v1/models", "http://h:1/openai/v1/models?api-version=2"},
		{"http://h:1/xv1", "/v1/models", "http://h:1/xv1/v1/models"},
		{"http://h:1/v1/chat/completions", "/v1/models", "http://h:1/v1/models"},
		{"http://h:1/openai/v1/completions/", "/v1/completions", "http://h:1/openai/v1/completions"},
		{"http://h:1/v1/embeddings", "/health", "http://h:1/health"},
	} {
		u, err := url.Parse(c[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := join(u, c[1]); got != c[2] {
			t.Errorf("%s and %s: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

// TestRequestOnTheWire checks what the server gets.
func TestRequestOnTheWire(t *testing.T) {
	type seen struct {
		Line, Host, Body string
		Length           int64
		Header           http.Header
	}
	got := make(chan seen, 1)
	base := serve(t, func(c net.Conn) {
		requests(c, func(r *http.Request, body string) bool {
			got <- seen{r.Method + " " + r.RequestURI, r.Host, body, r.ContentLength, r.Header}
			_, err := io.WriteString(c, sse(chunkA, finish, done))
			return err == nil
		})
	})
	c := client(t, Config{URL: base + "/v1", APIKey: "k", Header: http.Header{"x-team": {"a"}, "User-Agent": {"other"}}})
	body := strings.Repeat("0123456789", 10_000)
	req := post(body)
	req.Header = []Field{{"Traceparent", "00-1"}, {"X-Team", "b"}}
	var x Exchange
	c.Do(t.Context(), req, &x)
	if x.Err != nil {
		t.Fatal(x.Err)
	}
	want := seen{"POST /v1/chat/completions", strings.TrimPrefix(base, "http://"), body, 100_000, http.Header{
		"Accept": {"text/event-stream"}, "Authorization": {"Bearer k"}, "Content-Length": {"100000"}, "Content-Type": {"application/json"},
		"Traceparent": {"00-1"}, "User-Agent": {"other"}, "X-Team": {"b"},
	}}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if x.Model != "m" || x.ResponseID != "c1" || x.Status != 200 || x.Reused || x.Phases.Connect == 0 {
		t.Errorf("%+v", x)
	}
}

func TestFirstAnswerComesAfterReasoning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		steps := []step{
			{s, sseHead + oneEvent(roleOnly)},
			{s, oneEvent(`{"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}`)},
			{s, oneEvent(chunkA)},
			{s, oneEvent(finish) + lastChunk},
		}
		c, err := New(Config{URL: "http://engine", DialContext: piped(play(steps))}, clock.New())
		if err != nil {
			t.Fatal(err)
		}
		defer synctest.Wait()
		defer c.Close()
		var x Exchange
		c.Do(t.Context(), post("{}"), &x)
		if x.Err != nil || len(x.At) != 2 {
			t.Fatalf("%d chunks: %v", len(x.At), x.Err)
		}
		got := [3]time.Duration{x.FirstEvent - x.Start, time.Duration(x.At[0]) - x.Start, x.FirstAnswer - x.Start}
		if got != [3]time.Duration{s, 2 * s, 3 * s} {
			t.Errorf("first event, first token, first answer = %v", got)
		}
	})
}

func TestAPI(t *testing.T) {
	var n atomic.Int32
	url := serve(t, func(c net.Conn) {
		requests(c, func(r *http.Request, body string) bool {
			reply := answer("404 Not Found", "text/plain", "no "+body)
			switch {
			case r.URL.Path == "/v1/models" && n.Add(1) < 3:
				reply = answer("503 Service Unavailable", "application/json", `{"error":{"message":"Loading model"}}`)
			case r.URL.Path == "/v1/models":
				reply = answer("200 OK", "application/json", `{"data":[{"id":"m"}]}`)
			case r.URL.Path == "/v1/chat/completions":
				reply = answer("200 OK", "application/json", `{"usage":{"prompt_tokens":`+fmt.Sprint(len(body))+`}}`)
			case r.URL.Path == "/html":
				reply = answer("200 OK", "text/html", `<html>`)
			}
			_, err := io.WriteString(c, reply)
			return err == nil
		})
	})
	c := client(t, Config{URL: url, RetryWait: time.Millisecond})
	var models struct{ Data []struct{ ID string } }
	if err := c.Get(t.Context(), "/v1/models", &models); err != nil || len(models.Data) != 1 || models.Data[0].ID != "m" || n.Load() != 3 {
		t.Errorf("%v after %d requests: %v", models, n.Load(), err)
	}
	var reply struct {
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	if err := c.JSON(t.Context(), "/v1/chat/completions", nil, post("12345").Body, &reply); err != nil || reply.Usage.Prompt != 5 {
		t.Errorf("%+v: %v", reply, err)
	}
	for path, want := range map[string]Class{"/nothing": ClassHTTP, "/html": ClassProtocol} {
		var e *Error
		if err := c.Get(t.Context(), path, &models); !errors.As(err, &e) || e.Class != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	gone := client(t, Config{URL: "http://127.0.0.1:1", RetryWait: time.Millisecond})
	var e *Error
	var op *net.OpError
	if err := gone.Get(t.Context(), "/v1/models", &models); !errors.As(err, &e) || e.Class != ClassConnect || !errors.As(err, &op) {
		t.Errorf("%v", err)
	}
}
