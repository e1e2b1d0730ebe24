// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// plan describes a reply. It is made before the first token, and depends only on the seed, the prompt and the request.
type plan struct {
	tokens int
	finish string // finish_reason
	tool   string // the function to call; empty: the reply is text
	key    uint64 // determines the words
	bytes  int    // maximum number of bytes of a word, so that each word is one token; 0: no limit
}

// The finish reasons.
const (
	finishLength    = "length"
	finishStop      = "stop"
	finishToolCalls = "tool_calls"
)

// plan decides the length, finish reason and kind of the reply to a prompt.
func (c *Config) plan(q *request, promptHash uint64, header http.Header) plan {
	key := splitmix.Next(promptHash ^ splitmix.Next(c.Seed))
	f := &q.facts
	p := plan{tokens: f.MaxTokens, finish: finishLength, key: key, bytes: c.Tokenizer.WordBytes}
	if f.MaxTokens == Absent {
		p.tokens, p.finish = max(c.DefaultMaxTokens, f.MinTokens), finishStop
	}
	if !f.IgnoreEOS && splitmix.Uniform(splitmix.Next(key+1)) < c.EarlyStop {
		least := max(1, f.MinTokens)
		if n := least + int(splitmix.Uniform(splitmix.Next(key+2))*float64(p.tokens-least+1)); n < p.tokens {
			p.tokens, p.finish = n, finishStop
		}
	}
	asked := header.Get(HeaderToolCalls) == "1" || splitmix.Uniform(splitmix.Next(key+3)) < c.ToolCalls
	if len(q.toolNames) > 0 && asked && !q.toolChoiceNone {
		p.tool, p.finish = q.toolNames[splitmix.Next(key+4)%uint64(len(q.toolNames))], finishToolCalls
	}
	return p
}

// appendToken appends the text of token i, escaped for a JSON string: a word, with a space before all but the first. The tokens
// of a tool call together make the JSON object {"text":"word word …"}.
func (p *plan) appendToken(b []byte, i int) []byte {
	switch {
	case i > 0:
		b = append(b, ' ')
	case p.tool != "":
		b = append(b, `{\"text\":\"`...)
	}
	b = append(b, p.word(i)...)
	if p.tool != "" && i == p.tokens-1 {
		b = append(b, `\"}`...)
	}
	return b
}

// tokenIDs calls add with the id of token i; each word of a reply is one token.
func (p *plan) tokenIDs(i int, t *Tokenizer, add func(uint64)) {
	t.word([]byte(p.word(i)), add)
}

// word returns the word of token i.
func (p *plan) word(i int) string {
	word := replyWords[splitmix.Next(p.key^uint64(i))%uint64(len(replyWords))] //nolint:gosec // i is never negative
	if p.bytes > 0 {
		return cut(word, p.bytes)
	}
	return word
}

// replyWords are the words of all replies.
var replyWords = [...]string{
	"moon", "tide", "sand", "wind", "rain", "leaf", "root", "seed", "bark", "pine", "fern", "moss", "rock", "clay", "lake",
	"pond", "reef", "wave", "surf", "gull", "crab", "fish", "seal", "boat", "sail", "mast", "rope", "knot", "port", "dock",
	"town", "road", "path", "gate", "wall", "roof", "door", "lamp", "bell", "book", "page", "word", "line", "song", "drum",
	"harp", "coin", "ring", "gold", "iron", "salt", "milk", "corn", "rice", "plum", "pear", "rose", "lily", "star", "dawn",
	"dusk", "noon", "year", "week",
}
