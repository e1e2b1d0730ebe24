// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

// Like names the engine that an [Engine] imitates in what no other setting covers: metrics, endpoints, and the formats of requests and
// replies.
type Like uint8

// The engines.
const (
	// LikePlain imitates no engine; its metrics are named moonloop_simulator_*.
	LikePlain Like = iota
	// LikeVLLM adds vLLM's metrics, among them vllm:cache_config_info with the block size, answers /tokenize and /reset_prefix_cache, and
	// understands the field return_token_ids.
	LikeVLLM
	// LikeLlamaCPP adds llama.cpp's metrics, answers /tokenize, puts timings next to usage, lists the context length where llama.cpp lists it,
	// and closes the connection after each stream without announcing it.
	LikeLlamaCPP
)

// VLLM returns a configuration that imitates vLLM. Its cache holds prompts and replies in blocks of 16 tokens, and at least the
// last token of a prompt is computed again. The vocabulary has 131,072 ids, and a word of more than 6 bytes is several tokens.
func VLLM() Config {
	return Config{
		Like:      LikeVLLM,
		Cache:     Cache{BlockSize: 16, Replies: true, RecomputeLast: true},
		Tokenizer: Tokenizer{Vocabulary: realVocabulary, WordBytes: realWordBytes},

		ErrorsInStream: true,
	}
}

// LlamaCPP returns a configuration that imitates llama.cpp: four slots, each of which holds every token of its last request,
// and room for 65,536 tokens that slots had to give up.
func LlamaCPP() Config {
	return Config{
		Like:      LikeLlamaCPP,
		Cache:     Cache{BlockSize: 1, Replies: true, RecomputeLast: true, Slots: 4, Saved: 1 << 16},
		Tokenizer: Tokenizer{Vocabulary: realVocabulary, WordBytes: realWordBytes},
	}
}

const (
	realVocabulary = 1 << 17 // as many ids as Mistral's tokenizer tekken has
	realWordBytes  = 6
)
