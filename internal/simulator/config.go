// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"slices"
	"time"
)

// Defaults of a zero [Config].
const (
	DefaultBlockSize   = 512      // tokens, the block of a Mooncake trace
	DefaultMaxTokens   = 128      // tokens of a reply whose request gives no limit
	DefaultMaxWaiting  = 100_000  // requests
	DefaultBodyLimit   = 64 << 20 // bytes
	DefaultBodyTimeout = time.Minute
	DefaultKeepRecords = 100_000   // records
	DefaultKeepBytes   = 512 << 20 // bytes
	DefaultRetryAfter  = time.Second
	DefaultModel       = "simulated"
)

// Config says what an [Engine] does. The zero Config works: no latency, an infinite cache, any model, no faults.
type Config struct {
	// Models are the names that are served; other names are answered with 404. Empty = every name is served, and /v1/models lists
	// [DefaultModel].
	Models []string
	// APIKey, if not empty, is the bearer key that /v1/ and the paths of TGI require.
	APIKey string
	// Seed varies replies, early stops and faults. Equal seeds repeat them.
	Seed uint64

	Latency Latency
	// MaxRunning is the number of requests that may run (prefill or decode) at once; 0 means no limit.
	MaxRunning int
	// MaxWaiting is the number of requests that may wait to run; a further one is answered with 429. 0 means [DefaultMaxWaiting].
	MaxWaiting int

	// Like is the engine that this one imitates. [VLLM] and [LlamaCPP] set it, and the settings that belong to it.
	Like Like

	Cache     Cache
	Tokenizer Tokenizer
	// Template is the chat template; nil is [DefaultTemplate].
	Template *Template
	// MaxModelLen bounds prompt plus reply tokens; more is answered with 400; 0 means no limit.
	MaxModelLen int

	// DefaultMaxTokens is the length of replies whose request gives no limit; 0 is [DefaultMaxTokens].
	DefaultMaxTokens int
	// EarlyStop is the share, 0 to 1, of requests without ignore_eos that stop before their limit.
	EarlyStop float64
	// ToolCalls is the share, 0 to 1, of requests with tools that are answered with a tool call.
	ToolCalls float64
	// TokensPerChunk is the number of tokens of each chunk after the first; 0 is 1.
	TokensPerChunk int
	// RoleChunk says when the chunk with the role is sent.
	RoleChunk RoleChunk

	Faults Faults
	// With ErrorsInStream, a streamed request whose prompt has an id outside the vocabulary gets status 200 and an error event. vLLM does
	// the same: it finds this error only after the reply has begun.
	ErrorsInStream bool

	// BodyLimit bounds a request body in bytes: a longer one is answered with 413. 0 is [DefaultBodyLimit].
	BodyLimit int64
	// BodyTimeout bounds the time that a body may take to arrive; 0 is [DefaultBodyTimeout].
	BodyTimeout time.Duration

	Record Recording
}

// Cache describes the block prefix cache.
type Cache struct {
	BlockSize          int  // tokens per block; 0 is [DefaultBlockSize]
	Blocks             int  // capacity; 0 is infinite
	Disabled           bool // nothing is ever cached
	CommitAfterPrefill bool // blocks become visible when their prefill is done, not at admission
	RecomputeLast      bool // at least the last token of a prompt is computed
	// Replies also caches what was generated, when a request ends: the prompt and the reply, except for the reply's last token, which was
	// never computed.
	Replies bool
	// Slots, if not 0, replaces the one cache by llama.cpp's: each of this many slots has the content of its last request, and a prompt
	// can use what it shares with one free slot. It bounds MaxRunning, and requires Blocks = 0.
	Slots int
	// Saved is the maximum number of blocks that are kept of the contents that slots have lost; 0 keeps none. Only with Slots.
	Saved int
}

// Template is how a chat's messages become a prompt: the number of tokens that it adds to their words, and their order.
type Template struct {
	PerMessage int // header and end of each message
	PerPrompt  int // beginning of the prompt and header of the reply
	// SystemLast puts the text of all system messages before that of the last user message, in the same message, like the templates of
	// models without system messages. Without a user message nothing moves.
	SystemLast bool
}

// DefaultTemplate is the size of the Llama-3 template: 10 tokens around a single message.
var DefaultTemplate = Template{PerMessage: 5, PerPrompt: 5}

// RoleChunk says when a streamed chat's first chunk, which has a role and no content, is written.
type RoleChunk uint8

// The choices.
const (
	RoleWithFirstToken RoleChunk = iota // in one write with the first token
	RoleImmediately                     // as soon as the request has been read, before it waits or is prefilled
)

// Recording says what is recorded of each request.
type Recording struct {
	// Keep is the number of records kept in memory, the latest; 0 means [DefaultKeepRecords], a negative number means none.
	Keep int
	// KeepBytes is the approximate limit on the memory of the kept records; the oldest are dropped first. 0 means [DefaultKeepBytes].
	KeepBytes int64
	// NoWrites leaves out the times of the single writes.
	NoWrites bool
	// Bodies keeps the exact request bodies, which contain the prompts.
	Bodies bool
	// Blocks keeps the ids of the prompt's full blocks.
	Blocks bool
	// Headers are further request headers to keep, in addition to Traceparent and X-Request-Id. Authorization is refused: a record only
	// says whether it was present.
	Headers []string
	// To receives each record as one JSON line when its request ends, in a single Write; nil = none. The engine makes one call at a time
	// and never closes it.
	To io.Writer
}

// Validate reports everything that is wrong with the configuration, or nil.
func (c *Config) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("simulator: "+format, args...))
		}
	}
	checkIntegers("", reflect.ValueOf(c).Elem(), bad)
	bad(c.Cache.BlockSize > maxBlockSize, "Cache.BlockSize is %d: must be at most %d", c.Cache.BlockSize, maxBlockSize)
	bad(c.Cache.Blocks > math.MaxInt32-1, "Cache.Blocks is %d: must be below 2^31-1", c.Cache.Blocks)
	bad(c.Cache.Slots > maxSlots, "Cache.Slots is %d: must be at most %d", c.Cache.Slots, maxSlots)
	bad(c.Cache.Slots > 0 && c.MaxRunning > c.Cache.Slots, "MaxRunning is %d: must be at most Cache.Slots, which is %d", c.MaxRunning, c.Cache.Slots)
	bad(c.Cache.Slots > 0 && c.Cache.Blocks > 0, "Cache.Blocks is %d: must be 0 with Cache.Slots; Cache.Saved bounds what is kept outside the slots", c.Cache.Blocks)
	bad(c.Cache.Slots == 0 && c.Cache.Saved > 0, "Cache.Saved is %d: must be 0 without Cache.Slots", c.Cache.Saved)
	bad(c.Tokenizer.Vocabulary > maxVocabulary, "Tokenizer.Vocabulary is %d: must be at most %d", c.Tokenizer.Vocabulary, maxVocabulary)
	bad(c.Tokenizer.WordBytes > maxWordBytes, "Tokenizer.WordBytes is %d: must be at most %d", c.Tokenizer.WordBytes, maxWordBytes)
	bad(c.Like > LikeLlamaCPP, "Like is %d: unknown", c.Like)
	bad(c.RoleChunk > RoleImmediately, "RoleChunk is %d: unknown", c.RoleChunk)
	if t := c.Template; t != nil {
		bad(t.PerMessage < 0 || t.PerMessage > maxTemplate, "Template.PerMessage is %d: must be between 0 and %d", t.PerMessage, maxTemplate)
		bad(t.PerPrompt < 0 || t.PerPrompt > maxTemplate, "Template.PerPrompt is %d: must be between 0 and %d", t.PerPrompt, maxTemplate)
	}
	bad(!isShare(c.EarlyStop), "EarlyStop is %v: must be a share between 0 and 1", c.EarlyStop)
	bad(!isShare(c.ToolCalls), "ToolCalls is %v: must be a share between 0 and 1", c.ToolCalls)
	for _, h := range c.Record.Headers {
		bad(http.CanonicalHeaderKey(h) == "Authorization", "Record.Headers must not name Authorization: keys are never recorded")
	}
	for _, m := range c.Models {
		bad(m == "", "Models must not hold an empty name")
	}
	c.Faults.validate(bad)
	return errors.Join(errs...)
}

// checkIntegers finds numbers below 0 in a structure and in those within it, but not behind pointers: only Record.Keep may be negative. It
// names fields by their paths.
func checkIntegers(path string, v reflect.Value, bad func(wrong bool, format string, args ...any)) {
	for field, value := range v.Fields() {
		switch name := path + field.Name; {
		case value.Kind() == reflect.Struct:
			checkIntegers(name+".", value, bad)
		case value.CanInt():
			bad(value.Int() < 0 && name != "Record.Keep", "%s is %d: must be 0 or more", name, value.Int())
		}
	}
}

const (
	maxBlockSize = 1 << 20
	maxTemplate  = 1 << 16
	maxSlots     = 1 << 12

	maxWordBytes = 1 << 10
)

func isShare(x float64) bool { return x >= 0 && x <= 1 } // false for NaN

// withDefaults returns a copy in which every zero that means a default is filled in.
func (c Config) withDefaults() Config {
	def(&c.MaxWaiting, DefaultMaxWaiting)
	def(&c.MaxRunning, c.Cache.Slots)
	def(&c.Cache.BlockSize, DefaultBlockSize)
	def(&c.DefaultMaxTokens, DefaultMaxTokens)
	def(&c.TokensPerChunk, 1)
	def(&c.BodyLimit, DefaultBodyLimit)
	def(&c.BodyTimeout, DefaultBodyTimeout)
	def(&c.Record.Keep, DefaultKeepRecords)
	def(&c.Record.KeepBytes, DefaultKeepBytes)
	def(&c.Faults.RetryAfter, DefaultRetryAfter)
	template := DefaultTemplate
	if c.Template != nil {
		template = *c.Template
	}
	c.Template = &template
	c.Models = slices.Clone(c.Models)
	headers := []string{"Traceparent", "X-Request-Id"}
	for _, h := range c.Record.Headers {
		headers = append(headers, http.CanonicalHeaderKey(h))
	}
	c.Record.Headers = headers
	return c
}

func def[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
