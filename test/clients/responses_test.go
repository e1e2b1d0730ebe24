// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	api3 "github.com/openai/openai-go/v3/responses"

	"github.com/moonloop/moonloop/internal/simulator"
)

func responseParams(text string, most int64) api3.ResponseNewParams {
	return api3.ResponseNewParams{
		Model: "m", Instructions: openai.String("be brief"), MaxOutputTokens: openai.Int(most),
		Input: api3.ResponseNewParamsInputUnion{OfString: openai.String(text)},
	}
}

// streamedResponse returns the last response of a stream, the text of its deltas, and the types of its events without repetitions.
func streamedResponse(t *testing.T, c openai.Client, params api3.ResponseNewParams, options ...option.RequestOption) (r api3.Response, said string, kinds []string, err error) {
	t.Helper()
	stream := c.Responses.NewStreaming(t.Context(), params, options...)
	defer func() { _ = stream.Close() }()
	for n := int64(0); stream.Next(); n++ {
		event := stream.Current()
		if event.SequenceNumber != n {
			t.Fatalf("event %d has the number %d", n, event.SequenceNumber)
		}
		kinds = append(kinds, event.Type)
		said += event.Delta
		if event.Response.ID != "" {
			r = event.Response
		}
	}
	return r, said, slices.Compact(kinds), stream.Err()
}

// TestResponsesWithOfficialClient: replies, whole and streamed, are those that OpenAI's client reads.
func TestResponsesWithOfficialClient(t *testing.T) {
	e, url := serve(t, simulator.Config{Cache: simulator.Cache{BlockSize: 16}, APIKey: "test"})
	c := client(url)
	params := responseParams(words(90), 7)
	whole, err := c.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	text := whole.OutputText()
	if n := len(strings.Fields(text)); n != 7 || whole.Status != "incomplete" || whole.IncompleteDetails.Reason != "max_output_tokens" || whole.Model != "m" {
		t.Errorf("%d words, %s", n, whole.RawJSON())
	}
	prompt := whole.Usage.InputTokens
	if u := whole.Usage; prompt < 93 || u.OutputTokens != 7 || u.TotalTokens != prompt+7 || u.InputTokensDetails.CachedTokens != 0 {
		t.Errorf("usage %s", u.RawJSON())
	}
	r, said, kinds, err := streamedResponse(t, c, params)
	want := []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete",
	}
	if diff := cmp.Diff(want, kinds); err != nil || diff != "" {
		t.Errorf("%v, events (-want +got):\n%s", err, diff)
	}
	if r.OutputText() != text || said != text || r.Usage.InputTokens != prompt || r.Usage.InputTokensDetails.CachedTokens != prompt/16*16 || r.Usage.OutputTokens != 7 {
		t.Errorf("%q of %s", said, r.RawJSON())
	}
	if got := lastRecord(t, e); got.PromptTokens != int(prompt) || got.FinishReason != "length" || !got.Authorized || len(got.Request.Messages) != 2 ||
		got.Path != "/v1/responses" || got.Request.MaxTokens != 7 {
		t.Errorf("%+v", got)
	}

	r, said, kinds, err = streamedResponse(t, c, params, option.WithHeader(simulator.HeaderFault, "reasoning"))
	thought := []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
		"response.reasoning_text.done", "response.content_part.done", "response.output_item.done", "response.output_item.added", "response.content_part.added",
		"response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete",
	}
	if diff := cmp.Diff(thought, kinds); err != nil || diff != "" || said != text || len(r.Output) != 2 || r.Usage.OutputTokensDetails.ReasoningTokens != 3 {
		t.Errorf("%v, %s, events (-want +got):\n%s", err, r.RawJSON(), diff)
	}

	params.Tools = []api3.ToolUnionParam{{OfFunction: &api3.FunctionToolParam{Name: "look", Parameters: map[string]any{"type": "object"}}}}
	for _, stream := range []bool{false, true} {
		reply := new(api3.Response)
		if stream {
			*reply, said, kinds, err = streamedResponse(t, c, params, option.WithHeader(simulator.HeaderToolCalls, "1"))
			want := []string{
				"response.created", "response.in_progress", "response.output_item.added", "response.function_call_arguments.delta",
				"response.function_call_arguments.done", "response.output_item.done", "response.completed",
			}
			if diff := cmp.Diff(want, kinds); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		} else {
			reply, err = c.Responses.New(t.Context(), params, option.WithHeader(simulator.HeaderToolCalls, "1"))
		}
		if err != nil || reply.Status != "completed" || len(reply.Output) != 1 {
			t.Fatalf("stream %v: %v, %s", stream, err, reply.RawJSON())
		}
		call := reply.Output[0].AsFunctionCall()
		var input struct{ Text string }
		if err := json.Unmarshal([]byte(call.Arguments), &input); err != nil || len(strings.Fields(input.Text)) != 7 || call.Name != "look" || call.CallID == "" || stream && said != call.Arguments {
			t.Errorf("stream %v: %v, %+v", stream, err, call)
		}
	}
}

// TestResponsesErrors: an error has the form of OpenAI's API; within a stream, it is an event.
func TestResponsesErrors(t *testing.T) {
	_, url := serve(t, simulator.Config{APIKey: "test", Models: []string{"m"}})
	c := client(url)
	params := responseParams("hello", 20)
	params.Model = "other"
	_, err := c.Responses.New(t.Context(), params)
	if failed, is := errors.AsType[*openai.Error](err); !is || failed.StatusCode != http.StatusNotFound || failed.Code != "model_not_found" {
		t.Errorf("%v", err)
	}
	_, _, kinds, err := streamedResponse(t, c, responseParams("hello", 20), option.WithHeader(simulator.HeaderFault, "stream-error"))
	if (err == nil && !slices.Contains(kinds, "error")) || len(kinds) == 0 || kinds[0] != "response.created" || slices.Contains(kinds, "response.completed") {
		t.Errorf("%v, %v", err, kinds)
	}
}
