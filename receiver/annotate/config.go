// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/mooncake"
)

// Policy says what becomes of text.
type Policy string

// The policies. The zero Policy is ContentDrop.
const (
	ContentDrop Policy = "drop" // text is hashed and removed
	ContentKeep Policy = "keep" // text is hashed and stays
)

// Config says how telemetry is annotated. The zero Config works.
type Config struct {
	// BlockSize is the number of tokens per block id, 1 to MaxBlockSize; 0 is [mooncake.BlockSize].
	BlockSize int
	// Key is what prompts and session ids are hashed under. The zero Key is random, and the same in all of the process.
	Key     blockhash.Key
	Content Policy
	// SessionKeys are names of attributes that hold a session id, best first. They come before the known ones, and
	// survive where they are no longer than an id is.
	SessionKeys []string
	// ClassKeys are names of attributes that hold the class of a request, likewise. What they hold is no secret: a class of one word is
	// written to spans, journals and traces as it is.
	ClassKeys []string
	// Deny are names of attributes that are removed from all telemetry, beside the known ones; a trailing *
	// matches all names that begin so. They are removed after they have been read. With ContentKeep there must be none.
	Deny []string
	// OmitMessageEnds leaves out where the messages of a prompt end, and where its reply does: see package blockhash on what these tell.
	OmitMessageEnds bool
	// PromptOrder says of models in which order their chat templates write a prompt, where that is not the order of telemetry, or where
	// it is known to be. The first that matches counts. With OmitMessageEnds there must be none.
	PromptOrder []ModelOrder
	Limits      genai.Limits
}

// MaxBlockSize is the largest block, in tokens.
const MaxBlockSize = 1 << 20

// Validate returns what is wrong with the configuration, all of it, as messages for those who wrote it.
func (c *Config) Validate() error {
	var errs []error
	if c.BlockSize < 0 || c.BlockSize > MaxBlockSize {
		errs = append(errs, fmt.Errorf("block_size: is %d, and must be 1 to %d tokens: leave it out for %d, which traces have",
			c.BlockSize, MaxBlockSize, mooncake.BlockSize))
	}
	switch c.Content {
	case "", ContentDrop, ContentKeep:
	default:
		errs = append(errs, fmt.Errorf("content: must be %q or %q", ContentDrop, ContentKeep))
	}
	if c.Content == ContentKeep && len(c.Deny) > 0 {
		errs = append(errs, fmt.Errorf("deny: has no effect with content %q, which removes nothing: leave one of them out", ContentKeep))
	}
	for _, of := range []struct {
		name string
		keys []string
	}{{"session_keys", c.SessionKeys}, {"class_keys", c.ClassKeys}} {
		for i, key := range of.keys {
			if key == "" || len(key) > maxName || strings.Contains(key, "*") {
				errs = append(errs, fmt.Errorf("%s[%d]: must be the name of one attribute, of 1 to %d bytes and without a *: "+
					"what it names is not removed", of.name, i, maxName))
			}
		}
	}
	for i, name := range c.Deny {
		prefix, _ := strings.CutSuffix(name, "*")
		switch {
		case prefix == "" || len(name) > maxName || strings.Contains(prefix, "*"):
			errs = append(errs, fmt.Errorf("deny[%d]: must be the name of an attribute, or the beginning of names and one * behind it", i))
		case strings.HasPrefix(prefix, ownPrefix) || strings.HasPrefix(ownPrefix, prefix) && prefix != name:
			errs = append(errs, fmt.Errorf("deny[%d]: takes in %s*, which are the annotations themselves: name what is to go more exactly", i, ownPrefix))
		}
	}
	return errors.Join(append(errs, c.validateOrders()...)...)
}

// ParseKey reads a hash key from a configuration. The characters are the key as they stand, without white space around
// them; nothing is decoded, so that "openssl rand -hex 32" makes a key of 64 bytes for whoever reads it. An empty text
// is the zero Key, fewer than [blockhash.KeySize] bytes are an error that does not repeat them.
func ParseKey(text string) (blockhash.Key, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return blockhash.Key{}, nil
	}
	key, err := blockhash.NewKey([]byte(text))
	if err != nil {
		return blockhash.Key{}, fmt.Errorf("hash_key: %w", err)
	}
	return key, nil
}
