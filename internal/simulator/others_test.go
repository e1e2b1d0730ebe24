// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// ask posts a body and returns the reply's status, header and body.
func ask(t *testing.T, url, body string) (int, http.Header, string) {
	t.Helper()
	r, err := http.Post(url, mediaJSON, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header, string(text)
}

// TestEmbeddings: a vector for each prompt, equal for equal prompts, as numbers or in base64, and no tokens.
func TestEmbeddings(t *testing.T) {
	e, url := serve(t, Config{Models: []string{"m"}})
	url += pathEmbeddings
	type reply struct {
		Data []struct {
			Embedding json.RawMessage
		}
		Usage struct {
			Prompt     int  `json:"prompt_tokens"`
			Total      int  `json:"total_tokens"`
			Completion *int `json:"completion_tokens"`
		}
	}
	get := func(body string) reply {
		status, _, text := ask(t, url, body)
		var r reply
		if err := json.Unmarshal([]byte(text), &r); err != nil || status != http.StatusOK || len(r.Data) != 1 {
			t.Fatalf("%s: %d, %v, %s", body, status, err, text)
		}
		return r
	}
	one := get(`{"model":"m","input":"a b c","stream":true}`)
	var vector []float32
	if err := json.Unmarshal(one.Data[0].Embedding, &vector); err != nil || len(vector) != usualDimensions || one.Usage.Prompt != 3 || one.Usage.Total != 3 || one.Usage.Completion != nil {
		t.Errorf("%v, %d numbers, %+v", err, len(vector), one.Usage)
	}
	if again := get(`{"model":"m","input":["a b c"]}`); !bytes.Equal(again.Data[0].Embedding, one.Data[0].Embedding) {
		t.Error("the same prompt has another vector")
	}
	if other := get(`{"model":"m","input":"a b d"}`); bytes.Equal(other.Data[0].Embedding, one.Data[0].Embedding) {
		t.Error("another prompt has the same vector")
	}
	var text string
	var raw []byte
	short := get(`{"model":"m","input":[1,2,3,4],"dimensions":8,"encoding_format":"base64"}`)
	if err := json.Unmarshal(short.Data[0].Embedding, &text); err != nil || short.Usage.Prompt != 4 {
		t.Errorf("%v, %+v", err, short.Usage)
	}
	if err := json.Unmarshal([]byte(`"`+text+`"`), &raw); err != nil || len(raw) != 4*8 {
		t.Errorf("%v, %d bytes", err, len(raw))
	}
	for body, want := range map[string]string{
		`{"model":"m"}`:                                            "input is missing",
		`{"model":"m","input":""}`:                                 "empty",
		`{"model":"m","input":["a","b"]}`:                          "more than one prompt",
		`{"model":"m","input":"a","dimensions":0}`:                 "dimensions",
		`{"model":"m","input":"a","dimensions":99999999}`:          "dimensions",
		`{"model":"m","input":"a","encoding_format":"xml"}`:        "encoding_format",
		`{"model":"none","input":"a"}`:                             "not served",
		`{"model":"m","prompt":"a"}`:                               "input is missing",
		`{"model":"m","messages":[{"role":"user","content":"a"}]}`: "input is missing",
	} {
		if status, _, text := ask(t, url, body); status/100 != 4 || !strings.Contains(text, want) {
			t.Errorf("%s: %d, %s", body, status, text)
		}
	}
	for _, rec := range e.Records() {
		if rec.OutputTokens != 0 || rec.Request.Stream || rec.Outcome == Finished && rec.FinishReason != "" {
			t.Errorf("%+v", rec)
		}
	}
}

// TestGenerate: TGI's events and replies, and its errors.
func TestGenerate(t *testing.T) {
	_, url := serve(t, Config{})
	_, _, text := ask(t, url+pathGenerateStream, `{"inputs":"a b c","parameters":{"max_new_tokens":2,"details":true,"top_p":0.5}}`)
	events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	if len(events) != 2 || !strings.HasPrefix(events[0], `data:{"index":1,"token":{"id":`) || !strings.Contains(events[0], `"generated_text":null,"details":null}`) ||
		!strings.Contains(events[1], `"details":{"finish_reason":"length","generated_tokens":2,"seed":null,"input_length":3}}`) {
		t.Errorf("%q", events)
	}
	if _, _, text := ask(t, url+pathGenerateStream, `{"inputs":"a b c","parameters":{"max_new_tokens":2}}`); !strings.Contains(text, `","details":null}`) {
		t.Errorf("nobody asked for details: %s", text)
	}
	status, header, text := ask(t, url+pathGenerate, `{"inputs":"a b c","parameters":{"max_new_tokens":2,"decoder_input_details":true}}`)
	var whole struct {
		Text    string `json:"generated_text"`
		Details struct {
			Prefill []any
			Tokens  int `json:"generated_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(text), &whole); err != nil || status != http.StatusOK || header.Get("X-Prompt-Tokens") != "3" ||
		len(strings.Fields(whole.Text)) != 2 || len(whole.Details.Prefill) != 3 || whole.Details.Tokens != 2 {
		t.Errorf("%d, %v, %v, %s", status, header, err, text)
	}
	for path, bodies := range map[string]map[string]string{
		pathGenerate:       {`{}`: "inputs is missing", `{"inputs":"a","parameters":7}`: "parameters must be an object", `{"inputs":"a","parameters":{"max_new_tokens":0}}`: "at least 1", `{"inputs":["a","b"]}`: "more than one", `[`: "JSON"},
		pathGenerateStream: {`{"inputs":"a","parameters":{"decoder_input_details":true}}`: "not supported when streaming"},
	} {
		for body, want := range bodies {
			status, _, text := ask(t, url+path, body)
			var e struct{ Error, Kind string }
			if err := json.Unmarshal([]byte(strings.Replace(text, "error_type", "kind", 1)), &e); err != nil || status != http.StatusUnprocessableEntity || !strings.Contains(e.Error, want) || e.Kind != "validation" {
				t.Errorf("%s: %d, %v, %s", body, status, err, text)
			}
		}
	}
}
