// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"encoding/json"
	"net/http"
)

// This file reads replies of TGI's own API. A stream has an event for each token; the last one also has the whole text and the counts;
// there is no [DONE]. For a whole reply, a header has the number of prompt tokens.

// promptTokensHeader is the header with the number of prompt tokens of a whole reply.
const promptTokensHeader = "X-Prompt-Tokens" //nolint:gosec // a count, no credential

// generateEvent is an event of a stream, or a whole reply.
type generateEvent struct {
	Token *struct {
		Text    string `json:"text"`
		Special bool   `json:"special"` // such as the end of the text: not part of it
	} `json:"token"`
	Text    *string `json:"generated_text"` // of the last event and of a whole reply
	Details *struct {
		Reason    string `json:"finish_reason"`
		Generated *int64 `json:"generated_tokens"`
		Input     *int64 `json:"input_length"`
	} `json:"details"`
	Error json.RawMessage `json:"error"`
}

// unstated is the finish reason of a reply that ended without one, because details were not requested.
const unstated = "unstated"

// generateEvent reads the data of one event of TGI's API.
func (s *stream) generateEvent(data []byte, at arrival, isError bool) error {
	var e generateEvent
	whole := data
	if s.x.Whole && data[0] == '[' { // its compatible route, "/", replies with a list of one element
		var list []json.RawMessage
		if json.Unmarshal(data, &list) == nil && len(list) == 1 {
			whole = list[0]
		}
	}
	failed := json.Unmarshal(whole, &e) != nil
	if isError || meansFailure(e.Error) {
		s.complain(data)
		s.flight.guard.enter(stageTail)
		return nil
	}
	if failed || e.Token == nil && e.Text == nil {
		s.fail(ClassProtocol, "", s.unit()+" is not a JSON object of TGI's API")
		return nil
	}
	c := &s.chunk
	c.reset()
	c.typ = text("token") // so that usage with a finish reason counts as final; see choices
	var is choice
	switch {
	case s.x.Whole && e.Text != nil:
		is.content = escaped(*e.Text)
	case e.Token != nil && !e.Token.Special:
		is.content = escaped(e.Token.Text)
	}
	if d := e.Details; d != nil {
		is.finish = escaped(d.Reason)
		for _, f := range []struct {
			to   *int64
			from *int64
		}{{&s.x.Usage.Prompt, d.Input}, {&s.x.Usage.Completion, d.Generated}} {
			if f.from != nil && *f.from >= 0 && *f.from <= maxCount {
				*f.to, c.hasUsage = *f.from, true
			}
		}
	}
	if e.Text != nil && len(is.finish) == 0 {
		is.finish = text(unstated)
	}
	c.choices = append(c.choices, is)
	return s.choices(at)
}

// generateHeader reads the length of the prompt, which the body of a whole reply does not have.
func (s *stream) generateHeader(h http.Header) {
	if n := digits([]byte(h.Get(promptTokensHeader))); n != Unknown && n <= maxCount {
		s.x.Usage.Prompt = n
	}
}
