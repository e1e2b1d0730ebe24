// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestBadRequests(t *testing.T) {
	e, url := serve(t, Config{BodyLimit: 1 << 16})
	const canary = "SECRETCANARY"
	for _, test := range []struct {
		name, path, body string
		status           int
		message          string // part of it
	}{
		{"no JSON", "chat/completions", "hello " + canary, 400, "not valid JSON"},
		{"cut off", "chat/completions", `{"model":"m","messages":[{"role":"us`, 400, "not valid JSON"},
		{"empty", "chat/completions", "", 400, "not valid JSON"},
		{"not an object", "chat/completions", `["` + canary + `"]`, 400, "JSON object"},
		{"trailing data", "chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]} {}`, 400, "after the JSON object"},
		{"name twice", "chat/completions", `{"model":"m","model":"m"}`, 400, "twice"},
		{"invalid UTF-8", "chat/completions", "{\"model\":\"\xff\"}", 400, "not valid JSON"},
		{"no model", "chat/completions", `{"messages":[]}`, 400, "model is missing"},
		{"no messages", "chat/completions", `{"model":"m"}`, 400, "messages is missing"},
		{"no prompt", "completions", `{"model":"m"}`, 400, "prompt is missing"},
		{"empty messages", "chat/completions", `{"model":"m","messages":[]}`, 400, "empty"},
		{"message not an object", "chat/completions", `{"model":"m","messages":["x"]}`, 400, "messages[0]"},
		{"no role", "chat/completions", `{"model":"m","messages":[{"content":"x"}]}`, 400, "role is missing"},
		{"content a number", "chat/completions", `{"model":"m","messages":[{"role":"user","content":1}]}`, 400, "content"},
		{"wrong type", "chat/completions", `{"model":"m","messages":[],"max_tokens":"` + canary + `"}`, 400, "max_tokens has the wrong type"},
		{"overflow", "chat/completions", `{"model":"m","messages":[],"max_tokens":99999999999999999999}`, 400, "out of range"},
		{"max_tokens 0", "completions", `{"model":"m","prompt":"x","max_tokens":0}`, 400, "at least 1"},
		{"max_tokens huge", "completions", `{"model":"m","prompt":"x","max_tokens":2000000}`, 400, "at most"},
		{"min above max", "completions", `{"model":"m","prompt":"x","max_tokens":1,"min_tokens":2}`, 400, "must not exceed"},
		{"two choices", "completions", `{"model":"m","prompt":"x","n":2}`, 400, "one choice"},
		{"usage without stream", "completions", `{"model":"m","prompt":"x","stream_options":{"include_usage":true}}`, 400, "stream"},
		{"empty prompt", "completions", `{"model":"m","prompt":" "}`, 400, "empty"},
		{"empty ids", "completions", `{"model":"m","prompt":[ ]}`, 400, "empty"},
		{"two prompts", "completions", `{"model":"m","prompt":[[1],[2]]}`, 400, "more than one prompt"},
		{"two texts", "completions", `{"model":"m","prompt":["a","b"]}`, 400, "more than one prompt"},
		{"a text among ids", "completions", `{"model":"m","prompt":[1,"b"]}`, 400, "token 1"},
		{"nested twice", "completions", `{"model":"m","prompt":[[[1]]]}`, 400, "nested"},
		{"negative id", "completions", `{"model":"m","prompt":[1,-2]}`, 400, "token 1"},
		{"fraction", "completions", `{"model":"m","prompt":[1.5]}`, 400, "not an integer"},
		{"exponent", "completions", `{"model":"m","prompt":[1e3]}`, 400, "not an integer"},
		{"id too large", "completions", `{"model":"m","prompt":[2147483648]}`, 400, "out of range"},
		{"prompt a number", "completions", `{"model":"m","prompt":1}`, 400, "prompt must be"},
		{"too large", "completions", `{"model":"m","prompt":"` + strings.Repeat("x ", 1<<15) + `"}`, 413, "larger than 65536 bytes"},
		{"tools no array", "chat/completions", `{"model":"m","messages":[],"tools":{}}`, 400, "tools"},
		{"tool without a name", "chat/completions", `{"model":"m","messages":[],"tools":[{}]}`, 400, "name"},
		{"unknown path", "nothing", `{}`, 404, "unknown path"},
	} {
		t.Run(test.name, func(t *testing.T) {
			resp, reply := post(t, url+"/v1/"+test.path, test.body)
			var body struct {
				Error struct {
					Message, Type string
					Param, Code   *string
				}
			}
			if err := json.Unmarshal([]byte(reply), &body); err != nil {
				t.Fatalf("reply %q: %v", reply, err)
			}
			if resp.StatusCode != test.status || !strings.Contains(body.Error.Message, test.message) || body.Error.Type == "" {
				t.Errorf("%d %s", resp.StatusCode, reply)
			}
			if strings.Contains(reply, canary) {
				t.Error("the reply quotes the request")
			}
		})
	}
	s := e.Stats()
	if s.Outcomes[Rejected] != s.Requests || s.Requests == 0 {
		t.Errorf("stats %+v", s)
	}
	for _, r := range e.Records() {
		if r.Outcome != Rejected || r.Status < 400 || r.Error == "" || strings.Contains(r.Error, canary) || r.Admitted != Never {
			t.Errorf("record %+v", r)
		}
	}
}

func TestOtherEndpoints(t *testing.T) {
	e, url := serve(t, Config{Cache: Cache{BlockSize: 4}})
	for range 2 {
		post(t, url+"/v1/completions", `{"model":"m","prompt":[1,2,3,4,5],"max_tokens":3,"stream":true}`)
	}
	lastRecord(t, e)
	for _, test := range []struct {
		path   string
		status int
		want   []string
	}{
		{"/health", 200, nil},
		{"/v1/models", 200, []string{`"id":"simulated"`}},
		{"/metrics", 200, []string{
			`moonloop_simulator_requests_total{outcome="finished"} 2`, "moonloop_simulator_prompt_tokens_total 10",
			"moonloop_simulator_generation_tokens_total 6", "moonloop_simulator_prefix_cache_hits_total 4",
			"moonloop_simulator_prefix_cache_queries_total 10", "moonloop_simulator_prefix_cache_blocks 1",
			"moonloop_simulator_inter_token_latency_seconds_count 4", "moonloop_simulator_time_to_first_token_seconds_count 2",
			"moonloop_simulator_num_requests_running 0",
		}},
		{"/v1/completions", 405, []string{"not allowed"}},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+test.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		_ = resp.Write(&b)
		_ = resp.Body.Close()
		if resp.StatusCode != test.status {
			t.Errorf("%s: status %d, want %d", test.path, resp.StatusCode, test.status)
		}
		for _, want := range test.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in\n%s", test.path, want, b.String())
			}
		}
	}
}
