// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"errors"
	"math"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// Endpoints that only some engines have.
const (
	pathTokenize = "/tokenize"
	pathReset    = "/reset_prefix_cache"
)

// serveTokenize replies with the tokens of a text, or of a chat, in the format of the imitated engine.
func (e *Engine) serveTokenize(w http.ResponseWriter, r *http.Request) {
	body, err := e.readBody(w, r, http.NewResponseController(w), nil)
	if refusal, ok := errors.AsType[*apiError](err); ok {
		refusal.write(w)
	}
	if err != nil {
		return
	}
	var q struct {
		Content  jsontext.Value `json:"content"`
		Prompt   jsontext.Value `json:"prompt"`
		Messages jsontext.Value `json:"messages"`
		Tools    jsontext.Value `json:"tools"`
	}
	if !decode(body, &q) {
		badRequest("", "the body must be a JSON object").write(w)
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
		refusal.write(w)
		return
	}
	reply := map[string]any{"tokens": c.ids}
	if e.config.Like == LikeVLLM {
		reply["count"], reply["max_model_len"], reply["token_strs"] = c.tokens, cmp.Or(e.config.MaxModelLen, math.MaxInt32), nil
	}
	respondJSON(w, reply)
}
