// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// client is the official client, which we did not write.
func client(url string, options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(url + "/v1/"), option.WithAPIKey("test"), option.WithMaxRetries(0),
	}, options...)...)
}

var ignoreEOS = option.WithJSONSet("ignore_eos", true)

func chatParams(text string, maxTokens int64) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:               "m",
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
		MaxCompletionTokens: openai.Int(maxTokens),
	}
}

func TestChatWithOfficialClient(t *testing.T) {
	e, url := serve(t, Config{Cache: Cache{BlockSize: 16}})
	c := client(url)
	params := chatParams(words(90), 7) // 91 words + 10 template = 101 tokens = 6 full blocks of 16

	whole, err := c.Chat.Completions.New(t.Context(), params, ignoreEOS)
	if err != nil {
		t.Fatal(err)
	}
	text := whole.Choices[0].Message.Content
	if n := len(strings.Fields(text)); n != 7 || whole.Choices[0].FinishReason != "length" || whole.Object != "chat.completion" || whole.Model != "m" {
		t.Errorf("got %d words, finish %q, object %q, model %q", n, whole.Choices[0].FinishReason, whole.Object, whole.Model)
	}
	if u := whole.Usage; u.PromptTokens != 101 || u.CompletionTokens != 7 || u.TotalTokens != 108 || u.PromptTokensDetails.CachedTokens != 0 {
		t.Errorf("usage %+v", u)
	}
	if !strings.Contains(whole.RawJSON(), `"cached_tokens":0`) {
		t.Error("a count of 0 cached tokens must be written, not left out")
	}

	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.Chat.Completions.NewStreaming(t.Context(), params, ignoreEOS)
	var acc openai.ChatCompletionAccumulator
	var contents int
	var shapes []string
	for stream.Next() {
		chunk := stream.Current()
		acc.AddChunk(chunk)
		switch {
		case len(chunk.Choices) == 0:
			shapes = append(shapes, "usage")
		case chunk.Choices[0].FinishReason != "":
			shapes = append(shapes, "finish")
		case chunk.Choices[0].Delta.Content != "":
			contents++
			if contents == 1 {
				shapes = append(shapes, "content")
			}
		case chunk.Choices[0].Delta.Role == "assistant":
			shapes = append(shapes, "role")
		default:
			shapes = append(shapes, "?")
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(shapes, " "); got != "role content finish usage" || contents != 7 {
		t.Errorf("events %q with %d content chunks", got, contents)
	}
	if acc.Choices[0].Message.Content != text {
		t.Errorf("streamed %q, whole %q: equal prompts must have equal replies", acc.Choices[0].Message.Content, text)
	}
	if u := acc.Usage; u.PromptTokens != 101 || u.CompletionTokens != 7 || u.PromptTokensDetails.CachedTokens != 96 {
		t.Errorf("usage %+v", u)
	}

	r := lastRecord(t, e)
	if r.Seq != 2 || r.Outcome != Finished || r.Status != 200 || r.FinishReason != "length" || r.PromptTokens != 101 || r.CachedTokens != 96 || r.OutputTokens != 7 {
		t.Errorf("record %+v", r)
	}
	f := r.Request
	if !f.Stream || !f.IgnoreEOS || f.MaxTokens != 7 || f.MinTokens != Absent || f.Model != "m" || f.Prompt != PromptMessages {
		t.Errorf("facts %+v", f)
	}
	if m := f.Messages; len(m) != 1 || m[0].Role != "user" || m[0].Tokens != 96 {
		t.Errorf("messages %+v", m)
	}
	if !r.Authorized || r.Header.Get("Authorization") != "" {
		t.Error("the record must say that a key was present, and not which")
	}
}

func TestCompletionsWithOfficialClient(t *testing.T) {
	_, url := serve(t, Config{Cache: Cache{BlockSize: 4}})
	c := client(url)
	ids := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for _, test := range []struct {
		name   string
		prompt openai.CompletionNewParamsPromptUnion
		tokens int64
		cached int64
	}{
		{"text", openai.CompletionNewParamsPromptUnion{OfString: openai.String(words(8))}, 9, 0},
		{"text again", openai.CompletionNewParamsPromptUnion{OfString: openai.String(words(8))}, 9, 8},
		{"white space does not count", openai.CompletionNewParamsPromptUnion{OfString: openai.String("\n go " + words(8)[2:] + "\t ")}, 9, 8},
		{"ids", openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: ids}, 9, 0},
		{"ids, longer", openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: append(ids, 10, 11, 12)}, 12, 8},
		{"ids, other tail", openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: []int64{1, 2, 3, 4, 5, 6, 7, 0}}, 8, 4},
		{"ids, nested", openai.CompletionNewParamsPromptUnion{OfArrayOfTokenArrays: [][]int64{ids}}, 9, 8},
		{"text, nested", openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{words(8)}}, 9, 8},
	} {
		t.Run(test.name, func(t *testing.T) {
			params := openai.CompletionNewParams{Model: "m", Prompt: test.prompt, MaxTokens: openai.Int(3)}
			whole, err := c.Completions.New(t.Context(), params)
			if err != nil {
				t.Fatal(err)
			}
			if u := whole.Usage; u.PromptTokens != test.tokens || u.CompletionTokens != 3 || u.PromptTokensDetails.CachedTokens != test.cached {
				t.Errorf("usage %s", u.RawJSON())
			}
			params.StreamOptions.IncludeUsage = openai.Bool(true)
			stream := c.Completions.NewStreaming(t.Context(), params)
			var text, finish string
			var usage openai.CompletionUsage
			for stream.Next() {
				chunk := stream.Current()
				usage = chunk.Usage
				for _, choice := range chunk.Choices {
					text += choice.Text
					finish += string(choice.FinishReason)
				}
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			if text != whole.Choices[0].Text || finish != "length" || usage.PromptTokens != test.tokens {
				t.Errorf("streamed %q, finish %q, usage %s; whole %q", text, finish, usage.RawJSON(), whole.Choices[0].Text)
			}
		})
	}
}

func TestToolCallsWithOfficialClient(t *testing.T) {
	e, url := serve(t, Config{})
	c := client(url, option.WithHeader(HeaderToolCalls, "1"))
	params := chatParams("what is the weather", 6)
	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "get_weather"})}

	whole, err := c.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	choice := whole.Choices[0]
	if choice.FinishReason != "tool_calls" || len(choice.Message.ToolCalls) != 1 || choice.Message.ToolCalls[0].Function.Name != "get_weather" {
		t.Fatalf("choice %s", choice.RawJSON())
	}
	arguments := choice.Message.ToolCalls[0].Function.Arguments
	var decoded map[string]string
	if err := json.Unmarshal([]byte(arguments), &decoded); err != nil || len(strings.Fields(decoded["text"])) != 6 {
		t.Errorf("arguments %q: %v", arguments, err)
	}

	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	call := acc.Choices[0].Message.ToolCalls
	if len(call) != 1 || call[0].Function.Name != "get_weather" || call[0].Function.Arguments != arguments || call[0].ID == "" {
		t.Errorf("streamed %+v, whole arguments %q", call, arguments)
	}
	// The next turn carries the call forward and extends the same prompt.
	params.Messages = append(params.Messages, choice.Message.ToParam(), openai.ToolMessage("sunny", choice.Message.ToolCalls[0].ID))
	if _, err := c.Chat.Completions.New(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	m := lastRecord(t, e).Request.Messages
	if len(m) != 3 || !m[1].ToolCalls || m[2].Role != "tool" {
		t.Errorf("messages %+v", m)
	}
}

func TestErrorsWithOfficialClient(t *testing.T) {
	_, url := serve(t, Config{Models: []string{"m"}, APIKey: "right", MaxModelLen: 100})
	for _, test := range []struct {
		name   string
		key    string
		model  string
		words  int
		status int
		code   string
	}{
		{"served", "right", "m", 10, 0, ""},
		{"wrong key", "wrong", "m", 10, 401, "invalid_api_key"},
		{"unknown model", "right", "other", 10, 404, "model_not_found"},
		{"too long", "right", "m", 90, 400, "context_length_exceeded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := client(url, option.WithAPIKey(test.key))
			params := chatParams(words(test.words), 5)
			params.Model = test.model
			_, err := c.Chat.Completions.New(t.Context(), params)
			var apiErr *openai.Error
			switch {
			case test.status == 0 && err != nil:
				t.Fatal(err)
			case test.status == 0:
			case !errors.As(err, &apiErr):
				t.Fatalf("error %v", err)
			case apiErr.StatusCode != test.status || apiErr.Code != test.code || apiErr.Message == "":
				t.Errorf("error %+v", apiErr)
			}
		})
	}
	c := client(url, option.WithAPIKey("right"))
	models, err := c.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "m" {
		t.Errorf("models %+v, error %v", models, err)
	}
}

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
		{"mixed", "completions", `{"model":"m","prompt":[1,"b"]}`, 400, "token 1"},
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
