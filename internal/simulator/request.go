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

// api is one of the two generation endpoints.
type api uint8

const (
	chat api = iota
	completions
)

// request is a decoded request body. The raw values alias the body.
type request struct {
	facts           Facts
	includeUsage    bool
	continuousUsage bool
	toolChoiceNone  bool
	returnIDs       bool
	cacheSalt       string
	toolNames       []string

	prompt, messages, tools jsontext.Value
}

// parseRequest decodes a body in one pass over its top level. The prompt stays raw: see [request.render].
func parseRequest(a api, like Like, body []byte) (*request, *apiError) {
	q := &request{facts: Facts{MaxTokens: Absent, MinTokens: Absent}}
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	if dec.PeekKind() != '{' {
		if _, err := dec.ReadValue(); err != nil {
			return nil, notJSON(err)
		}
		return nil, badRequest("", "the body must be a JSON object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, notJSON(err)
	}
	var completionLimit bool
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return nil, notJSON(err)
		}
		name := token.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, notJSON(err)
		}
		end := dec.InputOffset()
		value = body[end-int64(len(value)) : end : end] // the decoder's own slice is only good until its next call
		if value.Kind() == 'n' {
			continue // null is absent
		}
		ok := true
		if name == "return_token_ids" && like == LikeVLLM {
			if !decode(value, &q.returnIDs) {
				return nil, badRequest(name, "field %s has the wrong type or is out of range", name)
			}
			continue
		}
		switch name {
		case "model":
			ok = decode(value, &q.facts.Model)
		case "stream":
			ok = decode(value, &q.facts.Stream)
		case "max_tokens":
			if n := q.facts.MaxTokens; completionLimit {
				ok = decode(value, &n) // max_completion_tokens wins, in either order
			} else {
				ok = decode(value, &q.facts.MaxTokens)
			}
		case "max_completion_tokens":
			completionLimit = true
			ok = decode(value, &q.facts.MaxTokens)
		case "min_tokens":
			ok = decode(value, &q.facts.MinTokens)
		case "ignore_eos":
			ok = decode(value, &q.facts.IgnoreEOS)
		case "cache_salt":
			ok = decode(value, &q.cacheSalt)
			q.facts.CacheSalt = true
		case "stream_options":
			var o struct {
				IncludeUsage         bool `json:"include_usage"`
				ContinuousUsageStats bool `json:"continuous_usage_stats"`
			}
			ok = decode(value, &o)
			q.includeUsage, q.continuousUsage = o.IncludeUsage, o.ContinuousUsageStats
		case "n":
			n := 1
			if ok = decode(value, &n); ok && n != 1 {
				return nil, badRequest("n", "n is %d: the simulator makes one choice only", n)
			}
		case "prompt":
			q.prompt = value
		case "messages":
			q.messages = value
		case "tools":
			if apiErr := q.readTools(value); apiErr != nil {
				return nil, apiErr
			}
		case "tool_choice":
			var s string
			q.toolChoiceNone = value.Kind() == '"' && decode(value, &s) && s == "none"
		default:
			if len(q.facts.Extra) < maxExtra {
				q.facts.Extra = append(q.facts.Extra, cut(name, maxName))
			}
		}
		if !ok {
			return nil, badRequest(name, "field %s has the wrong type or is out of range", name)
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, notJSON(err)
	}
	if rest := bytes.TrimLeft(body[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, badRequest("", "the body has data after the JSON object, at byte %d", len(body)-len(rest))
	}
	return q, q.check(a)
}

const (
	maxExtra = 64  // fields without effect that a record names
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
	case !f.Stream && (q.includeUsage || q.continuousUsage):
		return badRequest("stream_options", "stream_options is only allowed with stream = true")
	case a == chat && q.messages == nil:
		return badRequest("messages", "messages is missing")
	case a == completions && q.prompt == nil:
		return badRequest("prompt", "prompt is missing")
	}
	return nil
}

const (
	maxModelName = 1024
	maxOutput    = 1 << 20 // tokens of a reply
)

func (q *request) readTools(value jsontext.Value) *apiError {
	var tools []struct {
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
		if t.Function.Name == "" {
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
