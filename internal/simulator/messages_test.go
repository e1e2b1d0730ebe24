// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestReplies: each endpoint replies as requested, whole and streamed, with text, with a tool call, and with reasoning before the text. In
// test/clients, the vendors' clients read the same replies, but without the race detector.
func TestReplies(t *testing.T) {
	e, url := serve(t, Config{Cache: Cache{BlockSize: 16}})
	const messages = `"messages":[{"role":"user","content":"go word word word"}]`
	for path, body := range map[string]string{
		"/v1/chat/completions": messages + `,"max_completion_tokens":7,"tools":[{"type":"function","function":{"name":"look"}}]`,
		"/v1/completions":      `"prompt":"go word word word","max_tokens":7`,
		pathResponses:          `"input":"go word word word","max_output_tokens":7,"tools":[{"type":"function","name":"look"}]`,
		pathMessages:           messages + `,"max_tokens":7,"tools":[{"name":"look","input_schema":{"type":"object"}}]`,
	} {
		for _, stream := range []bool{false, true} {
			for _, header := range [][]string{nil, {HeaderToolCalls, "1"}, {HeaderFault, "reasoning"}, {HeaderFault, "stream-error"}} {
				what := fmt.Sprint(path, stream, header)
				resp, reply := post(t, url+path, fmt.Sprintf(`{"model":"m","ignore_eos":true,"stream":%t,%s}`, stream, body), header...)
				r := lastRecord(t, e)
				if resp.StatusCode != r.Status || r.Path != path || r.Request.Stream != stream || reply == "" {
					t.Errorf("%s: status %d, record %+v, reply %q", what, resp.StatusCode, r, reply)
				}
				fault, call := "", len(header) > 0 && header[0] == HeaderToolCalls && path != "/v1/completions"
				if len(header) > 0 && header[0] == HeaderFault {
					fault = header[1]
				}
				if string(r.Fault) != fault || call != (r.FinishReason == "tool_calls") || call != strings.Contains(reply, `"look"`) {
					t.Errorf("%s: record %+v, reply %q", what, r, reply)
				}
				if fault != "stream-error" && (r.Status != http.StatusOK || r.OutputTokens != 7) {
					t.Errorf("%s: record %+v", what, r)
				}
			}
		}
	}
}

// TestMessagesWithoutLimit: the Messages API requires a limit of tokens; without one, the error has the shape that its clients know.
func TestMessagesWithoutLimit(t *testing.T) {
	_, url := serve(t, Config{APIKey: "test"})
	resp, reply := post(t, url+pathMessages, `{"model":"m","messages":[{"role":"user","content":"x"}]}`, "X-Api-Key", "test")
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(reply, `"type":"error"`) || !strings.Contains(reply, "max_tokens") {
		t.Errorf("%d %s", resp.StatusCode, reply)
	}
}
