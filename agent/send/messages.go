// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import "encoding/json"

// This file reads replies of the Messages API, which Anthropic made and vLLM and others also have: typed events instead of chunks, usage in
// two of them, and cached tokens that are counted separately from the rest of the prompt.

// API is the form in which a server replies.
type API uint8

// The forms.
const (
	OpenAI     API = iota // chunks with choices, or the events of /v1/responses
	Messages              // the events of /v1/messages
	Generate              // the events of TGI's /generate_stream, and the reply of its /generate
	Embeddings            // the reply of /v1/embeddings
)

// messagePart is one block of content, or a piece of one.
type messagePart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Partial  string          `json:"partial_json"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Reason   *string         `json:"stop_reason"`
}

// messageUsage has the counts of the Messages API. The tokens of a prompt are the sum of the three kinds of input tokens.
type messageUsage struct {
	Input   *int64 `json:"input_tokens"`
	Read    *int64 `json:"cache_read_input_tokens"`
	Created *int64 `json:"cache_creation_input_tokens"`
	Output  *int64 `json:"output_tokens"`
}

// message is a whole reply, or the beginning of a stream.
type message struct {
	ID      string        `json:"id"`
	Model   string        `json:"model"`
	Content []messagePart `json:"content"`
	Reason  *string       `json:"stop_reason"`
	Usage   *messageUsage `json:"usage"`
}

// messageEvent is one event of a stream, or a whole reply, whose type is "message".
type messageEvent struct {
	message

	Type  string          `json:"type"`
	Start *message        `json:"message"`
	Index int             `json:"index"`
	Block *messagePart    `json:"content_block"`
	Delta *messagePart    `json:"delta"`
	Error json.RawMessage `json:"error"`
}

// update replaces the counts that a later usage has; the others are unchanged.
func (u *messageUsage) update(more *messageUsage) {
	if more == nil {
		return
	}
	for _, f := range []struct{ to, from **int64 }{{&u.Input, &more.Input}, {&u.Read, &more.Read}, {&u.Created, &more.Created}, {&u.Output, &more.Output}} {
		if n := *f.from; n != nil && *n >= 0 && *n <= maxCount {
			*f.to = n
		}
	}
}

// counts converts usage to the meaning that it has elsewhere: prompt tokens include cached ones.
func (u *messageUsage) counts() Usage {
	known := func(n *int64) int64 {
		if n == nil {
			return Unknown
		}
		return *n
	}
	c := Usage{Prompt: known(u.Input), Completion: known(u.Output), Cached: known(u.Read), Reasoning: Unknown}
	if c.Prompt != Unknown {
		c.Prompt += max(0, c.Cached) + max(0, known(u.Created))
	}
	return c
}

// messageEvent reads the data of one event of the Messages API.
func (s *stream) messageEvent(data []byte, at arrival, isError bool) error {
	var e messageEvent
	if json.Unmarshal(data, &e) != nil {
		if isError {
			s.complain(data)
			return nil
		}
		s.fail(ClassProtocol, "", s.unit()+" is not a JSON object of the Messages API")
		return nil
	}
	c := &s.chunk
	c.reset()
	if isError || e.Type == "error" || meansFailure(e.Error) {
		s.complain(data)
		s.flight.guard.enter(stageTail)
		return nil
	}
	switch e.Type {
	case "ping", "content_block_stop":
		return nil
	case "message_stop":
		s.flight.guard.enter(stageOver)
		return nil
	case "message_start":
		if e.Start != nil {
			if e.Start.Usage != nil {
				e.Start.Usage.Output = nil // nothing has been generated yet
			}
			s.said(e.Start)
		}
		return nil
	case "content_block_start":
		if e.Block != nil {
			e.Block.Input = nil // its pieces follow
			s.part(e.Index, e.Block)
		}
	case "content_block_delta":
		if e.Delta != nil {
			s.part(e.Index, e.Delta)
		}
	case "message_delta":
		s.said(&e.message)
		if e.Delta != nil && e.Delta.Reason != nil {
			c.choices = append(c.choices, choice{finish: escaped(*e.Delta.Reason)})
		}
		c.hasUsage = e.Usage != nil
	case "message":
		s.said(&e.message)
		for i := range e.Content {
			s.part(i, &e.Content[i])
		}
		if e.Reason != nil {
			c.choices = append(c.choices, choice{finish: escaped(*e.Reason)})
		}
	}
	c.typ = text(e.Type)
	return s.choices(at)
}

// said reads the id, model and usage of a message.
func (s *stream) said(m *message) {
	if s.x.ResponseID == "" {
		s.x.ResponseID = decoded(escaped(m.ID))
	}
	if s.x.Model == "" {
		s.x.Model = s.names.model.of(escaped(m.Model))
	}
	s.messages.update(m.Usage)
	s.x.Usage = s.messages.counts()
}

// part converts a block, or a piece of one, to the form of a choice.
func (s *stream) part(index int, p *messagePart) {
	c := choice{content: escaped(p.Text), reasoning: escaped(p.Thinking)}
	arguments := p.Partial
	if len(p.Input) > 0 {
		arguments = string(p.Input)
	}
	if c.called = p.Name != "" || arguments != ""; c.called {
		call := toolPiece{Index: &index}
		call.ID, call.Function.Name, call.Function.Arguments = p.ID, p.Name, arguments
		c.tools, _ = json.Marshal([]toolPiece{call}) // texts always marshal
	}
	s.chunk.choices = append(s.chunk.choices, c)
}

// escaped returns a text in the form of JSON, like the texts of chunks.
func escaped(s string) text {
	if s == "" {
		return nil
	}
	b, _ := json.Marshal(s) // texts always marshal
	return text(b[1 : len(b)-1])
}
