// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// api is one of the generation endpoints.
type api uint8

const (
	chat api = iota
	completions
	messages
	responses
	generate
	embeddings
)

// ofMessages reports whether prompts are messages of a chat.
func (a api) ofMessages() bool { return a == chat || a == messages || a == responses }

// request is a decoded request body. The raw values alias the body.
type request struct {
	facts Facts
	usage struct {
		Include    bool `json:"include_usage"`
		Continuous bool `json:"continuous_usage_stats"`
	}
	toolChoiceNone bool
	returnIDs      bool
	maxCompletion  int
	choices        int
	cacheSalt      string
	toolNames      []string

	dimensions int  // of an embedding; 0: the usual number
	base64     bool // the embedding is written in base64
	prefill    bool // the reply must list each token of the prompt
	details    bool // of generate: the reply must say how it ended

	prompt, messages, tools, system jsontext.Value
	items                           bool // messages are text, or items of the Responses API
}

// parseRequest decodes a body in one pass over its top level. The prompt stays raw: see [request.render].
func parseRequest(a api, like Like, body []byte) (*request, *apiError) {
	q := &request{facts: Facts{MaxTokens: Absent, MinTokens: Absent}, maxCompletion: Absent, choices: 1}
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	if dec.PeekKind() != '{' {
		if _, err := dec.ReadValue(); err != nil {
			return nil, notJSON(err)
		}
		return nil, badRequest("", "the body must be a JSON object")
	}
	if refusal := members(dec, body, func(name string, value jsontext.Value) *apiError {
		ok := true
		switch name {
		case "model":
			ok = decode(value, &q.facts.Model)
		case "stream":
			ok = decode(value, &q.facts.Stream)
		case "max_tokens":
			ok = decode(value, &q.facts.MaxTokens)
		case "max_completion_tokens":
			ok = decode(value, &q.maxCompletion)
		case "min_tokens":
			ok = decode(value, &q.facts.MinTokens)
		case "ignore_eos":
			ok = decode(value, &q.facts.IgnoreEOS)
		case "cache_salt":
			ok = decode(value, &q.cacheSalt)
			q.facts.CacheSalt = true
		case "stream_options":
			ok = decode(value, &q.usage)
		case "n":
			ok = decode(value, &q.choices)
		case a.promptField():
			q.prompt = value
		case a.parametersField():
			return q.readParameters(value)
		case "dimensions":
			ok = a != embeddings || decode(value, &q.dimensions) && q.dimensions >= 1 && q.dimensions <= maxDimensions
		case "encoding_format":
			var format string
			ok = a != embeddings || decode(value, &format) && (format == "float" || format == "base64")
			q.base64 = format == "base64"
		case a.messagesField():
			q.messages, q.items = value, a == responses
		case "tools":
			return q.readTools(a, value)
		case "tool_choice":
			q.readToolChoice(value)
		default:
			if name == "return_token_ids" && like == LikeVLLM {
				ok = decode(value, &q.returnIDs)
			} else if name == a.systemField() {
				q.system = value
			} else if name == "max_output_tokens" && a == responses {
				ok = decode(value, &q.facts.MaxTokens)
			} else if len(q.facts.Extra) < maxExtra {
				q.facts.Extra = append(q.facts.Extra, cut(name, maxName))
			}
		}
		if !ok {
			return badRequest(name, "field %s has the wrong type or is out of range", name)
		}
		return nil
	}); refusal != nil {
		return nil, refusal
	}
	if rest := bytes.TrimLeft(body[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, badRequest("", "the body has data after the JSON object, at byte %d", len(body)-len(rest))
	}
	if q.choices != 1 {
		return nil, badRequest("n", "n is %d: the simulator makes one choice only", q.choices)
	}
	if q.maxCompletion != Absent { // it has priority over max_tokens
		q.facts.MaxTokens = q.maxCompletion
	}
	if a == embeddings || a == generate { // embeddings are not streamed, and for generate the path decides
		q.facts.Stream, q.usage.Include, q.usage.Continuous = false, false, false
	}
	return q, q.check(a)
}

// promptField returns the name of the member that has the prompt, for APIs whose prompts are not messages.
func (a api) promptField() string {
	switch a {
	case generate:
		return "inputs"
	case embeddings:
		return "input"
	default:
		return "prompt"
	}
}

// messagesField returns the name of the member that has the messages of a chat.
func (a api) messagesField() string {
	if a == responses {
		return "input"
	}
	return "messages"
}

// systemField returns the name of the member that has the system text, for APIs in which no message has it. For other APIs it returns a
// name that no body can have.
func (a api) systemField() string {
	switch a {
	case messages:
		return "system"
	case responses:
		return "instructions"
	default:
		return "\xff"
	}
}

// parametersField returns the name of the member that has the parameters of generate. For other APIs it returns a name that no body can
// have.
func (a api) parametersField() string {
	if a == generate {
		return "parameters"
	}
	return "\xff"
}

// readParameters reads the parameters of generate.
func (q *request) readParameters(value jsontext.Value) *apiError {
	if value.Kind() != '{' {
		return badRequest("parameters", "parameters must be an object")
	}
	return members(jsontext.NewDecoder(bytes.NewBuffer(value)), value, func(name string, value jsontext.Value) *apiError {
		ok := true
		switch name {
		case "max_new_tokens":
			ok = decode(value, &q.facts.MaxTokens)
		case "details":
			ok = decode(value, &q.details)
		case "decoder_input_details":
			ok = decode(value, &q.prefill)
		default:
			if len(q.facts.Extra) < maxExtra {
				q.facts.Extra = append(q.facts.Extra, cut(name, maxName))
			}
		}
		if !ok {
			return badRequest(name, "parameter %s has the wrong type or is out of range", name)
		}
		return nil
	})
}

const (
	maxDimensions   = 1 << 13
	usualDimensions = 64
)

// members calls the function member with each name and value of the object that comes next in a text, except nulls, which count as absent.
// The values are cut out of the text: the decoder's own are valid only until its next call.
func members(dec *jsontext.Decoder, text []byte, member func(name string, value jsontext.Value) *apiError) *apiError {
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() == '"' {
		var token jsontext.Token
		var value jsontext.Value
		if token, err = dec.ReadToken(); err != nil {
			break
		}
		name := token.String()
		if value, err = dec.ReadValue(); err != nil {
			break
		}
		if value.Kind() == 'n' {
			continue
		}
		end := dec.InputOffset()
		if refusal := member(name, text[end-int64(len(value)):end:end]); refusal != nil {
			return refusal
		}
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	if err != nil {
		return notJSON(err)
	}
	return nil
}

const (
	maxExtra = 64  // fields without effect that a record lists
	maxName  = 128 // bytes of such a name, of a role, of a model name in a record
)

// check applies the rules that involve more than one field.
func (q *request) check(a api) *apiError {
	f := &q.facts
	switch {
	case f.Model == "":
		return badRequest("model", "model is missing")
	case len(f.Model) > maxModelName:
		return badRequest("model", "model is %d bytes long: at most %d are allowed", len(f.Model), maxModelName)
	case f.MaxTokens != Absent && f.MaxTokens < 1:
		return badRequest("max_tokens", "max_tokens is %d: must be at least 1", f.MaxTokens)
	case f.MaxTokens > maxOutput:
		return badRequest("max_tokens", "max_tokens is %d: must be at most %d", f.MaxTokens, maxOutput)
	case f.MinTokens != Absent && f.MinTokens < 0:
		return badRequest("min_tokens", "min_tokens is %d: must be 0 or more", f.MinTokens)
	case f.MaxTokens != Absent && f.MinTokens > f.MaxTokens:
		return badRequest("min_tokens", "min_tokens is %d: must not exceed max_tokens, which is %d", f.MinTokens, f.MaxTokens)
	case f.MinTokens > maxOutput:
		return badRequest("min_tokens", "min_tokens is %d: must be at most %d", f.MinTokens, maxOutput)
	case !f.Stream && (q.usage.Include || q.usage.Continuous):
		return badRequest("stream_options", "stream_options is only allowed with stream = true")
	case a == messages && f.MaxTokens == Absent:
		return badRequest("max_tokens", "max_tokens is missing: this endpoint requires it")
	case a == generate && f.Stream && q.prefill:
		return badRequest("decoder_input_details", "decoder_input_details == true is not supported when streaming tokens")
	case a.ofMessages() && q.messages == nil:
		return badRequest(a.messagesField(), "%s is missing", a.messagesField())
	case !a.ofMessages() && q.prompt == nil:
		return badRequest(a.promptField(), "%s is missing", a.promptField())
	}
	return nil
}

const (
	maxModelName = 1024
	maxOutput    = 1 << 20 // tokens of a reply
)

// readToolChoice reads "none", or an object of that type.
func (q *request) readToolChoice(value jsontext.Value) {
	var choice struct {
		Type string `json:"type"`
	}
	q.toolChoiceNone = string(value) == `"none"` || decode(value, &choice) && choice.Type == "none"
}

func (q *request) readTools(a api, value jsontext.Value) *apiError {
	var tools []struct {
		Name     string         `json:"name"`
		Schema   jsontext.Value `json:"input_schema"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if !decode(value, &tools) {
		return badRequest("tools", "tools must be an array of objects with a function")
	}
	q.tools = value
	q.facts.Tools = len(tools)
	for _, t := range tools {
		switch {
		case a == messages && (t.Name == "" || t.Schema == nil):
			return badRequest("tools", "each tool needs a name and an input_schema")
		case a == messages:
			t.Function.Name = t.Name
		case a == responses && t.Name == "":
			return badRequest("tools", "each tool needs a name: only functions are served")
		case a == responses:
			t.Function.Name = t.Name
		case t.Function.Name == "":
			return badRequest("tools", "each tool needs a function with a name")
		}
		q.toolNames = append(q.toolNames, t.Function.Name)
	}
	return nil
}

// decode stores a JSON value and reports whether it has the type of *v.
func decode[T any](value jsontext.Value, v *T) bool { return json.Unmarshal(value, v) == nil }

// notJSON describes a syntax error by its place only; the decoder's own message may quote the body.
func notJSON(err error) *apiError {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return badRequest("", "the body names an object member twice, at byte %d", syntax.ByteOffset)
	case errors.As(err, &syntax):
		return badRequest("", "the body is not valid JSON, at byte %d", syntax.ByteOffset)
	}
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", message: "the body is not valid JSON: it ends too early"}
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
