// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Endpoints that only some engines have.
const (
	pathTokenize = "/tokenize"
	pathReset    = "/reset_prefix_cache"
)

// serveTokenize says what the tokens of a text, or of a chat, are, in the shape of the engine that this one is like.
func (e *Engine) serveTokenize(w http.ResponseWriter, r *http.Request) {
	refused := func(refusal *apiError) { refusal.write(w) }
	rc := http.NewResponseController(w)
	body, err := e.readBody(w, r, rc, nil)
	if err != nil {
		if refusal, ok := err.(*apiError); ok { //nolint:errorlint // made by readBody itself, never wrapped
			refused(refusal)
		}
		return
	}
	var q struct {
		Content  jsontext.Value `json:"content"`
		Prompt   jsontext.Value `json:"prompt"`
		Messages jsontext.Value `json:"messages"`
		Tools    jsontext.Value `json:"tools"`
	}
	if !decode(body, &q) {
		refused(badRequest("", "the body must be a JSON object"))
		return
	}
	c := newChain(e.config.Cache.BlockSize, e.config.Tokenizer)
	c.keep, c.ids = true, []uint64{}
	text, name := q.Prompt, "prompt"
	if e.config.Like == LikeLlamaCPP {
		text, name = q.Content, "content"
	}
	var refusal *apiError
	switch {
	case text.Kind() == '"':
		refusal = renderText(c, text, name)
	case e.config.Like == LikeVLLM && q.Messages != nil:
		refusal = (&request{messages: q.Messages, tools: q.Tools}).renderChat(c, *e.config.Template)
	default:
		refusal = badRequest(name, "%s must be a text", name)
	}
	if refusal != nil {
		refused(refusal)
		return
	}
	var reply any = map[string]any{"tokens": c.ids}
	if e.config.Like == LikeVLLM {
		limit := e.config.MaxModelLen
		if limit == 0 {
			limit = math.MaxInt32
		}
		reply = map[string]any{"count": c.tokens, "max_model_len": limit, "tokens": c.ids, "token_strs": nil}
	}
	out, err := json.Marshal(reply)
	if err != nil { // numbers always marshal
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mediaJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	_, _ = w.Write(out) // nobody to tell when the client has gone
}
