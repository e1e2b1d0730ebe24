// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"cmp"
	"maps"
	"slices"
)

// Profile names an engine, and thereby the request fields that it supports.
type Profile string

// The profiles.
const (
	// Auto sends the fields that vLLM supports. Engines that ignore unknown fields accept them too, and may end a reply early; engines that
	// refuse unknown fields need their own profile.
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

// TakesTokenIDs reports whether an engine with the profile accepts token ids as a prompt at the endpoint.
func (p Profile) TakesTokenIDs(e Endpoint) bool {
	d, _ := Options{Endpoint: e, Profile: cmp.Or(p, Auto)}.dialect()
	return d.tokenIDs && !e.OfMessages()
}

// dialect has the fields that one endpoint of an engine supports.
type dialect struct {
	maxTokens     string // the field that limits the reply
	ignoreEOS     bool   // takes ignore_eos
	minTokens     string // the field that sets the minimum length of the reply; empty: none
	tokenIDs      bool   // accepts token ids as a prompt
	streamOptions bool   // takes stream_options
	cacheSalt     bool   // takes cache_salt
	returnsIDs    bool   // returns token ids when asked with return_token_ids
	priority      bool   // takes priority
}

// The names of the fields for the maximum and the minimum length.
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

// responses returns the dialect of /v1/responses, which all engines copy from OpenAI: usage is always sent, and no field for a minimum is
// known. Engines that support ignore_eos, cache_salt and priority in a chat support them here, too.
func (b both) responses() dialect {
	return dialect{maxTokens: maxOutputField, ignoreEOS: b.chat.ignoreEOS, cacheSalt: b.chat.cacheSalt, priority: b.chat.priority}
}

// messages returns the dialect of /v1/messages: usage is always sent, and no field enforces the length of a reply. vLLM ignores ignore_eos
// there, and supports cache_salt; what other engines do is not known.
func (p Profile) messages() dialect {
	return dialect{maxTokens: maxField, cacheSalt: p == Auto || p == VLLM}
}

// dialects is the one table of the differences between engines. Fields that an engine silently ignores are left out, because sending them
// would look as if they had an effect. The columns are those of dialect.
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
	// Refuses every unknown field; only chat knows cache_salt.
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
