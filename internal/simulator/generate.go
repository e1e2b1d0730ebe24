// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// The paths of TGI's own API.
const (
	pathGenerate       = "/generate"
	pathGenerateStream = "/generate_stream"
)

// generateFormat writes replies in the shapes of TGI's own API: an event for each token, of which the last has the whole text, too. It
// ignores faults that concern events that exist only in OpenAI's API, such as the role and [DONE].
type generateFormat struct{ *format }

func (f generateFormat) role(b []byte) []byte { return b }
func (f generateFormat) call(b []byte) []byte { return b }
func (f generateFormat) done(b []byte) []byte { return b }

// text returns the text of all tokens, as inside a JSON string.
func (f generateFormat) text() (b []byte) {
	for i := range f.plan.tokens {
		b = f.plan.appendToken(b, i)
	}
	return b
}

// ending returns how the reply ended, or null if that was not requested.
func (f generateFormat) ending(more string) string {
	if !f.request.details && !f.request.prefill {
		return "null"
	}
	reason := f.plan.finish
	if reason == finishStop {
		reason = "eos_token"
	}
	return fmt.Sprintf(`{"finish_reason":%q,"generated_tokens":%d,"seed":null%s}`, reason, f.plan.tokens, more)
}

// token appends one token of a reply.
func (f generateFormat) token(b []byte, i int) []byte {
	id := uint64(0)
	f.plan.tokenIDs(i, &f.config.Tokenizer, func(v uint64) { id = v })
	b = append(strconv.AppendUint(append(b, `{"id":`...), id%(1<<31), 10), `,"text":"`...)
	return append(f.plan.appendToken(b, i), `","logprob":-0.5,"special":false}`...)
}

func (f generateFormat) tokens(b []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		b = fmt.Appendf(b, `data:{"index":%d,"token":`, i+1)
		b = f.token(b, i)
		if i == f.plan.tokens-1 && f.shape.usage != usageNone {
			b = fmt.Appendf(b, `,"generated_text":"%s","details":%s}`, f.text(), f.ending(`,"input_length":`+strconv.Itoa(f.promptTokens)))
		} else {
			b = append(b, `,"generated_text":null,"details":null}`...)
		}
		b = append(b, plainEnd...)
	}
	return b
}

// finish appends nothing: the event of the last token has everything.
func (f generateFormat) finish(b []byte) []byte { return b }

func (f generateFormat) failure(b []byte, e *apiError) []byte {
	return append(append(append(b, "data:"...), e.ofGenerate()...), plainEnd...)
}

func (f generateFormat) whole() []byte {
	more := `,"prefill":[`
	if f.request.prefill {
		more += strings.TrimSuffix(strings.Repeat(`{"id":1,"text":"x","logprob":null},`, f.promptTokens), ",")
	}
	return fmt.Appendf(nil, `{"generated_text":"%s","details":%s}`, f.text(), f.ending(more+`],"tokens":[]`))
}

// ofGenerate returns the error in the shape of TGI's own API.
func (e *apiError) ofGenerate() []byte {
	kind := "generation"
	switch {
	case e.status == http.StatusTooManyRequests:
		kind = "overloaded"
	case e.status/100 == 4:
		kind = "validation"
	}
	b, _ := json.Marshal(map[string]string{"error": e.message, "error_type": kind}) // texts always marshal
	return b
}

// inGenerate returns the refusal with the shape and the status of TGI's own API. A refusal with a body of its own stays as it is.
func (e *apiError) inGenerate() *apiError {
	if e.media != "" {
		return e
	}
	other := *e
	if e.status == http.StatusBadRequest {
		other.status = http.StatusUnprocessableEntity
	}
	other.media, other.raw = mediaJSON, string(e.ofGenerate())
	return &other
}
