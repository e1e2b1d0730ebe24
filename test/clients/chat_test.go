// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/moonloop/moonloop/internal/simulator"
)

// client returns OpenAI's official client, which we did not write.
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
	e, url := serve(t, simulator.Config{Cache: simulator.Cache{BlockSize: 16}})
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
	if r.Seq != 2 || r.Outcome != simulator.Finished || r.Status != 200 || r.FinishReason != "length" || r.PromptTokens != 101 || r.CachedTokens != 96 || r.OutputTokens != 7 {
		t.Errorf("record %+v", r)
	}
	f := r.Request
	if !f.Stream || !f.IgnoreEOS || f.MaxTokens != 7 || f.MinTokens != simulator.Absent || f.Model != "m" || f.Prompt != simulator.PromptMessages {
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
	_, url := serve(t, simulator.Config{Cache: simulator.Cache{BlockSize: 4}})
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
	e, url := serve(t, simulator.Config{})
	c := client(url, option.WithHeader(simulator.HeaderToolCalls, "1"))
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
	// The next turn repeats the call, and extends the same prompt.
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
	_, url := serve(t, simulator.Config{Models: []string{"m"}, APIKey: "right", MaxModelLen: 100})
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
