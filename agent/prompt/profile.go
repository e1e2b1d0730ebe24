// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"cmp"
	"maps"
	"slices"
)

// Profile names an engine, and by that the request fields that it takes.
type Profile string

// The profiles.
const (
	// Auto takes what vLLM takes. Engines that pass over fields they do not know accept it too, and may
	// end a reply before its length; those that refuse unknown fields need their own profile.
	Auto     Profile = "auto"
	VLLM     Profile = "vllm"
	SGLang   Profile = "sglang"
	TRTLLM   Profile = "trtllm"
	LMDeploy Profile = "lmdeploy"
	LlamaCPP Profile = "llamacpp"
	Ollama   Profile = "ollama"
	TGI      Profile = "tgi"
	OpenAI   Profile = "openai"
)

// Profiles returns the names of all profiles, sorted.
func Profiles() []Profile { return slices.Sorted(maps.Keys(dialects)) }

// TakesTokenIDs reports whether an engine of the profile takes token ids for a prompt at the endpoint.
func (p Profile) TakesTokenIDs(e Endpoint) bool {
	d, _ := Options{Endpoint: e, Profile: cmp.Or(p, Auto)}.dialect()
	return d.tokenIDs && !e.OfMessages()
}

// dialect is what one endpoint of an engine understands.
type dialect struct {
	maxTokens     string // the field that caps the reply
	ignoreEOS     bool   // takes ignore_eos
	minTokens     string // the field that holds the reply to a length; empty: none
	tokenIDs      bool   // takes token ids for a prompt
	streamOptions bool   // takes stream_options
	cacheSalt     bool   // takes cache_salt
	returnsIDs    bool   // returns token ids when asked with return_token_ids
	priority      bool   // takes priority
}

// The names that the cap and the length held go by.
const (
	maxField           = "max_tokens"
	maxCompletionField = "max_completion_tokens"
	maxOutputField     = "max_output_tokens"
	maxNewField        = "max_new_tokens" // of Generate, in its parameters
	minField           = "min_tokens"
	minNewField        = "min_new_tokens"
	returnField        = "return_token_ids"
	priorityField      = "priority"
)

// both are the dialects of an engine's own endpoints.
type both struct{ chat, completions dialect }

// responses is the dialect of /v1/responses, which all have from OpenAI: usage comes unasked, and no minimum is known. Engines that take
// ignore_eos, cache_salt and priority in a chat take them here.
func (b both) responses() dialect {
	return dialect{maxTokens: maxOutputField, ignoreEOS: b.chat.ignoreEOS, cacheSalt: b.chat.cacheSalt, priority: b.chat.priority}
}

// messages is the dialect of /v1/messages: usage comes unasked, and nothing holds a reply to its length. vLLM passes over ignore_eos
// there, and takes cache_salt; what others refuse or pass over is not known.
func (p Profile) messages() dialect {
	return dialect{maxTokens: maxField, cacheSalt: p == Auto || p == VLLM}
}

// dialects is the one place that knows engines apart. A field that an engine silently ignores is left out, because
// sending it would look as if it held. The columns are those of dialect.
var dialects = map[Profile]both{
	Auto: {
		chat:        dialect{maxCompletionField, true, minField, false, true, true, true, true},
		completions: dialect{maxField, true, minField, true, true, true, true, true},
	},
	VLLM: {
		chat:        dialect{maxCompletionField, true, minField, false, true, true, true, true},
		completions: dialect{maxField, true, minField, true, true, true, true, true},
	},
	// min_tokens on the OpenAI endpoints; min_new_tokens is the name on /generate.
	SGLang: {
		chat:        dialect{maxCompletionField, true, minField, false, true, true, false, true},
		completions: dialect{maxField, true, minField, true, true, true, false, true},
	},
	// Refuses every field that it does not know; cache_salt is known to chat alone.
	TRTLLM: {
		chat:        dialect{maxCompletionField, true, minField, false, true, true, false, false},
		completions: dialect{maxField, true, minField, true, true, false, false, false},
	},
	LMDeploy: {
		chat:        dialect{maxCompletionField, true, minNewField, false, true, false, false, false},
		completions: dialect{maxField, true, "", false, true, false, false, false},
	},
	LlamaCPP: {
		chat:        dialect{maxField, true, "", false, true, false, false, false},
		completions: dialect{maxField, true, "", true, true, false, false, false},
	},
	// Ignores ignore_eos and max_completion_tokens; a prompt of ids is an error.
	Ollama: {
		chat:        dialect{maxField, false, "", false, true, false, false, false},
		completions: dialect{maxField, false, "", false, true, false, false, false},
	},
	TGI: {
		chat:        dialect{maxField, false, "", false, true, false, false, false},
		completions: dialect{maxField, false, "", false, true, false, false, false},
	},
	OpenAI: {
		chat:        dialect{maxCompletionField, false, "", false, true, false, false, false},
		completions: dialect{maxField, false, "", true, true, false, false, false},
	},
}
