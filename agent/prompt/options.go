// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// Endpoint is the kind of request in which prompts are sent.
type Endpoint string

// The endpoints: those of the OpenAI API, Anthropic's, and TGI's own.
const (
	Chat        Endpoint = "chat"        // POST /v1/chat/completions
	Completions Endpoint = "completions" // POST /v1/completions
	Responses   Endpoint = "responses"   // POST /v1/responses
	Messages    Endpoint = "messages"    // POST /v1/messages
	Embeddings  Endpoint = "embeddings"  // POST /v1/embeddings: no stream, and no tokens of output
	Generate    Endpoint = "generate"    // POST /generate_stream, or /generate for whole replies
)

// Endpoints returns all endpoints, the default first.
func Endpoints() []Endpoint {
	return []Endpoint{Chat, Completions, Responses, Messages, Embeddings, Generate}
}

// OfMessages reports whether prompts are messages, which the engine's chat template renders; else they are one text.
func (e Endpoint) OfMessages() bool { return e == Chat || e == Responses || e == Messages }

// Form is the form of a generated prompt.
type Form string

// The forms.
const (
	Words  Form = "words"  // text, a word a token
	Tokens Form = "tokens" // an array of token ids; only on Completions and Embeddings
)

// TooShort says what happens to a row whose input length leaves no room for a word in addition to the overhead.
type TooShort string

// The policies.
const (
	SendOneWord TooShort = "send" // it is sent, longer than the row says, and flagged
	Skip        TooShort = "skip" // it is not sent
)

// Options are the settings of a replay that determine the content of its requests. The zero Options send words to the chat endpoint of a
// server like vLLM and do not stream.
type Options struct {
	Endpoint Endpoint // default Chat
	Form     Form     // default Words
	Profile  Profile  // default Auto
	Model    string   // of every row; empty = the row's own
	// DefaultModel is the model of rows without one, if Model is empty; empty = none is requested.
	DefaultModel string
	Stream       bool // request a stream, with its usage if the profile supports that

	Seed      uint64 // combined with ids by xor: spread a user's number with [Seed] first
	BlockSize int    // tokens per hash id; default [mooncake.BlockSize], at least 8
	// FineBlockSize is the number of tokens per id of hash_ranges, at least 8; 0 = the trace has none, and ranges have no effect.
	FineBlockSize int

	// Words are the words of prompts; nil = [CommonLexicon].
	Words *Lexicon
	// Text is the text from which blocks are made, in addition to words; nil = only words. Only with Form Words.
	Text *Passages
	// TokenIDs are the ids of prompts, one of [TokenRanges]; zero = the first.
	TokenIDs TokenRange

	// Images says how images in prompts are made; only if prompts are messages.
	Images Images

	// Overhead is the number of tokens that the server adds to the words of a prompt, including the anchor, as returned by [Solve]. With
	// words, less than 1 counts as 1, for the anchor.
	Overhead int
	// TurnOverhead is the number of tokens that the server adds for a later turn of a chat session, around the reply before it and around
	// its own words, including the anchor, as returned by [SolveTurn]. Less than 1 counts as 1.
	TurnOverhead int
	// Measured has both overheads for the models that were measured, by name. If it is not nil, the rows of other models use the two above
	// and are flagged (Prompt.Assumed).
	Measured map[string]Overhead
	TooShort TooShort // default SendOneWord

	// DefaultOutput is the reply length of rows without an output length; 0 requests none.
	DefaultOutput int
	// OutputCap is the maximum of every requested reply length; 0 = no maximum.
	OutputCap int
	// MaxTokensField is the name of the field that limits the reply; empty = the profile's.
	MaxTokensField string
	// CacheSalt is sent as cache_salt: runs with different salts share no cached blocks.
	CacheSalt string
	// Priorities are the priorities of classes. They override those of rows.
	Priorities Priorities
	// ExtraInputs is an object whose members are set in every body except payloads, and replace ours of the same name. A row's own extra
	// overrides it.
	ExtraInputs json.RawMessage
}

// Overhead is the number of tokens that a server adds to prompts of words; see Options.Overhead and Options.TurnOverhead.
type Overhead struct{ Prompt, Turn int }

// ErrOptions is wrapped by every error of [NewBuilder].
var ErrOptions = errors.New("prompt options")

// withDefaults fills in defaults for zeros.
func (o Options) withDefaults() Options {
	o.Endpoint = cmp.Or(o.Endpoint, Chat)
	o.Form = cmp.Or(o.Form, Words)
	o.Profile = cmp.Or(o.Profile, Auto)
	o.TooShort = cmp.Or(o.TooShort, SendOneWord)
	o.BlockSize = cmp.Or(o.BlockSize, mooncake.BlockSize)
	o.Words = cmp.Or(o.Words, usual)
	o.TokenIDs = cmp.Or(o.TokenIDs, TokenRanges()[0])
	o.Images = o.Images.withDefaults()
	return o
}

// alphabet returns the encoding of blocks. Defaults must be filled in.
func (o *Options) alphabet() alphabet {
	if o.Form == Tokens {
		return o.TokenIDs.alphabet()
	}
	return o.Words.alphabet
}

// Validate joins the errors of everything that is wrong with the options. Zeros are valid.
func (o Options) Validate() error { return o.withDefaults().check() }

// check joins the errors of everything that is wrong with options whose defaults are filled in.
func (o Options) check() error {
	var wrong []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(!slices.Contains(Endpoints(), o.Endpoint), "endpoint %q: want one of %q", o.Endpoint, Endpoints())
	check(o.Form != Words && o.Form != Tokens, "prompt form %q: want %q or %q", o.Form, Words, Tokens)
	check(o.TooShort != SendOneWord && o.TooShort != Skip, "policy for short rows %q: want %q or %q", o.TooShort, SendOneWord, Skip)
	a := o.alphabet()
	header := max(a.header/a.unit, words.header/wordBytes) // a trace that can be replayed in one form can also be replayed in the other
	check(o.BlockSize < header, "block size %d: want at least %d tokens, which encode the id of a block", o.BlockSize, header)
	check(o.FineBlockSize != 0 && o.FineBlockSize < header, "fine block size %d: want at least %d tokens, which encode the id of a block", o.FineBlockSize, header)
	for _, length := range []struct {
		name string
		v    int
	}{
		{"overhead", o.Overhead}, {"turn overhead", o.TurnOverhead}, {"default output", o.DefaultOutput}, {"output cap", o.OutputCap},
	} {
		check(length.v < 0, "%s %d: want 0 or more tokens", length.name, length.v)
	}
	check(o.Text != nil && o.Form != Words, "text cannot be sent as token ids: choose words")
	check(o.Text != nil && max(o.BlockSize, o.FineBlockSize) > MaxTextBlock, "block size %d: want at most %d tokens with text", max(o.BlockSize, o.FineBlockSize), MaxTextBlock)
	check(o.Text != nil && o.Form == Words && o.Words.space == "", "text needs words that are one token with the space before them, and this engine has none")
	if rule := o.Images.check(); rule != "" {
		check(true, "%s", rule)
	}
	check(o.Images.Each > 0 && !o.Endpoint.OfMessages(), "images go to the endpoints chat, responses and messages only, which have messages to show them in")
	d, known := o.dialect()
	check(!known, "profile %q: want one of %q", o.Profile, Profiles())
	check(o.Form == Tokens && (o.Endpoint.OfMessages() || o.Endpoint == Generate), "token ids go to the endpoints completions and embeddings only: choose one of them, or words")
	check(o.Form == Tokens && (o.Endpoint == Completions || o.Endpoint == Embeddings) && known && !d.tokenIDs, "profile %q accepts no token ids as a prompt: choose words", o.Profile)
	check(known && o.CacheSalt != "" && !d.cacheSalt, "profile %q has no cache_salt on %s: change the seed for a cold cache", o.Profile, o.Endpoint)
	check(len(o.CacheSalt) > 128 || strings.ContainsAny(o.CacheSalt, "@/\\\x00"),
		"cache salt: engines take at most 128 bytes without @, /, \\ and NUL")
	check(known && len(o.Priorities) > 0 && !d.priority, "profile %q accepts no priority on %s: choose another endpoint or profile, or leave the priorities out", o.Profile, o.Endpoint)
	extra, err := parseObject(o.ExtraInputs)
	check(len(o.Priorities) > 0 && extra.has(priorityField), "extra inputs: their priority would be that of every class: leave one of the two out")
	check(err != nil, "extra inputs: %w", err)
	for _, field := range []string{maxField, maxCompletionField, maxOutputField} {
		n, err := strconv.ParseFloat(string(extra.get(field)), 64)
		check(err == nil && n < 0, "extra inputs: %s %v: want 1 or more tokens, or leave it out: replies then have the length that their row asks for", field, n)
	}
	return errors.Join(wrong...)
}

// dialect returns the fields that the profile's engine supports on the endpoint.
func (o Options) dialect() (d dialect, known bool) {
	both, known := dialects[o.Profile]
	d = both.chat
	switch o.Endpoint {
	case Completions:
		d = both.completions
	case Responses:
		d = both.responses()
	case Messages:
		d = o.Profile.messages()
	case Embeddings:
		d = dialect{tokenIDs: both.completions.tokenIDs, priority: both.completions.priority}
	case Generate:
		d = dialect{maxTokens: maxNewField}
	case Chat:
	}
	if o.MaxTokensField != "" {
		d.maxTokens = o.MaxTokensField
	}
	return d, known
}
