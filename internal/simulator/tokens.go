// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// Tokenizer says what a text's tokens are. The zero Tokenizer makes one token of each word, with an id below 2^31.
type Tokenizer struct {
	// Vocabulary is the number of ids. The ids of words are below it, and a prompt with an id that is not below it is refused. 0 means
	// 2^31.
	Vocabulary int
	// WordBytes is the length of the longest word, in bytes, that is one token. A longer word is one token for each piece of this many
	// bytes, because texts have more tokens than words in real vocabularies; below 4, this also applies to the words that replays use.
	// Words of replies are cut to this length. 0 = every word is one token.
	WordBytes int
}

const maxVocabulary = 1 << 31

// reduce returns the id of a token's digest.
func (t *Tokenizer) reduce(digest uint64) uint64 {
	if t.Vocabulary > 0 {
		return digest % uint64(t.Vocabulary)
	}
	return digest % maxVocabulary
}

// word calls add with the id of each token of a word.
func (t *Tokenizer) word(word []byte, add func(uint64)) {
	if t.WordBytes <= 0 || len(word) <= t.WordBytes {
		add(t.reduce(xxhash.Sum64(word)))
		return
	}
	for at := 0; at < len(word); at += t.WordBytes {
		h := xxhash.Sum64(word[at:min(at+t.WordBytes, len(word))])
		if at > 0 {
			h = splitmix.Next(h) // a piece within a word is a different token from the same letters at a word's beginning
		}
		add(t.reduce(h))
	}
}

// chain turns a stream of tokens into block ids: the running XXH64 after each full block.
type chain struct {
	tokenizer Tokenizer
	size      int // bytes of a full block: 8 for each token
	tokens    int
	open      []byte // tokens of the current block, little-endian
	digest    *xxhash.Digest
	blocks    []uint64
	// ids are the tokens themselves, if keep is set.
	keep bool
	ids  []uint64
}

func newChain(blockSize int, tokenizer Tokenizer) *chain {
	return &chain{tokenizer: tokenizer, size: 8 * blockSize, open: make([]byte, 0, 8*min(blockSize, DefaultBlockSize)), digest: xxhash.New()}
}

// add appends one token.
func (c *chain) add(token uint64) {
	c.open = binary.LittleEndian.AppendUint64(c.open, token)
	c.tokens++
	if c.keep {
		c.ids = append(c.ids, token)
	}
	if len(c.open) == c.size {
		_, _ = c.digest.Write(c.open) // never fails
		c.blocks = append(c.blocks, c.digest.Sum64())
		c.open = c.open[:0]
	}
}

// words appends the tokens of a text: its words, split at ASCII white space.
func (c *chain) words(text []byte) {
	for i := 0; i < len(text); {
		if isSpace(text[i]) {
			i++
			continue
		}
		start := i
		for i < len(text) && !isSpace(text[i]) {
			i++
		}
		c.tokenizer.word(text[start:i], c.add)
	}
}

func isSpace(b byte) bool { return b == ' ' || b-'\t' < 5 } // \t \n \v \f \r

// special appends n template tokens that stand for a label, such as a role's header.
func (c *chain) special(label string, n int) {
	h := xxhash.Sum64String("\x00" + label) // no word contains a zero byte and a label
	for i := range n {
		c.add(c.tokenizer.reduce(splitmix.Next(h + uint64(i))))
	}
}

// sum returns the digest of all tokens so far.
func (c *chain) sum() uint64 {
	all := *c.digest
	_, _ = all.Write(c.open)
	return all.Sum64()
}

// salted mixes model and cache salt into block ids, in place: prompts of different models or salts share nothing. It is applied to finished
// block ids because model and salt may follow the prompt in the request.
func salted(blocks []uint64, model, salt string) {
	s := splitmix.Next(xxhash.Sum64String(model)) ^ xxhash.Sum64String(salt)
	for i := range blocks {
		blocks[i] = splitmix.Next(blocks[i] ^ s)
	}
}
