// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

// Like names the engine whose ways an [Engine] has where engines differ: in the names of the metrics, in the shape of /tokenize,
// in the errors about a prompt.
type Like uint8

// The engines.
const (
	// LikePlain has metrics named moonloop_simulator_*.
	LikePlain Like = iota
	// LikeVLLM adds metrics as vLLM's, vllm:cache_config_info with the block size among them.
	LikeVLLM
	// LikeLlamaCPP adds metrics as llama.cpp's, and has its shape of /tokenize and of usage.
	LikeLlamaCPP
)

// VLLM returns a configuration with vLLM's ways: a cache of 16-token blocks, kept for prompt and reply, of which at least the last
// token of a prompt is computed again; a vocabulary of 131,072 ids; words of more than 6 bytes are several tokens.
func VLLM() Config {
	return Config{
		Like:      LikeVLLM,
		Cache:     Cache{BlockSize: 16, Replies: true, RecomputeLast: true},
		Tokenizer: Tokenizer{Vocabulary: realVocabulary, WordBytes: realWordBytes},

		ErrorsInStream: true,
	}
}

// LlamaCPP returns a configuration with llama.cpp's ways: four slots, each of which has what its last request left there, to the
// token; and 65,536 tokens for contents that slots lost.
func LlamaCPP() Config {
	return Config{
		Like:      LikeLlamaCPP,
		Cache:     Cache{BlockSize: 1, Replies: true, RecomputeLast: true, Slots: 4, Saved: 1 << 16},
		Tokenizer: Tokenizer{Vocabulary: realVocabulary, WordBytes: realWordBytes},
	}
}

const (
	realVocabulary = 1 << 17 // ids, that of tekken
	realWordBytes  = 6
)
