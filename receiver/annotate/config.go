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
	"github.com/moonloop/moonloop/semconv"
)

// Policy says what happens to text.
type Policy string

// The policies. The zero Policy is ContentDrop.
const (
	ContentDrop Policy = "drop" // text is hashed and removed
	ContentKeep Policy = "keep" // text is hashed and kept
)

// Config configures an [Annotator]. The zero Config works.
type Config struct {
	// BlockSize is the number of tokens per block id, 1 to MaxBlockSize; 0 = [mooncake.BlockSize].
	BlockSize int
	// Key is the key under which prompts and session ids are hashed. The zero Key stands for a random one, the same in the whole process.
	Key     blockhash.Key
	Content Policy
	// SessionKeys are names of attributes with a session id, best first. They take precedence over the known ones, and are kept if they
	// are not longer than an id.
	SessionKeys []string
	// ClassKeys are names of attributes with the class of a request, likewise. Their values are not secret: a class of one word is
	// written unchanged to spans, journals and traces.
	ClassKeys []string
	// Deny are names of attributes that are removed from all telemetry, in addition to the known ones; a trailing * matches all names with
	// that beginning. They are removed after they have been read. Must be empty with ContentKeep, and must not cover the token counts
	// (gen_ai.usage.input_tokens and .output_tokens), because an exporter reads those from the annotated span.
	Deny []string
	// OmitMessageEnds leaves out the ends of the prompt's messages and of the reply: package blockhash says what these reveal.
	OmitMessageEnds bool
	// PromptOrder says, for models, in which order their chat templates write a prompt, if that differs from the order of telemetry, or is
	// known to be the same. The first match applies. Must be empty with OmitMessageEnds.
	PromptOrder []ModelOrder
	Limits      genai.Limits
}

// MaxBlockSize is the largest block, in tokens.
const MaxBlockSize = 1 << 20

// undeniable are the attributes, besides our own, without which an annotated span never becomes a row of a trace.
var undeniable = [...]string{semconv.GenAIUsageInputTokens, semconv.GenAIUsageOutputTokens}

func blockSizeError(size int) error {
	return fmt.Errorf("block_size: is %d, and must be 1 to %d tokens: leave it out for %d, the usual size in traces", size, MaxBlockSize, mooncake.BlockSize)
}

// Validate returns all errors of the configuration, as messages for its author.
func (c *Config) Validate() error {
	var errs []error
	if c.BlockSize < 0 || c.BlockSize > MaxBlockSize {
		errs = append(errs, blockSizeError(c.BlockSize))
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
					"the attribute is not removed, so the name must be exact", of.name, i, maxName))
			}
		}
	}
	for i, name := range c.Deny {
		prefix, _ := strings.CutSuffix(name, "*")
		switch {
		case prefix == "" || len(name) > maxName || strings.Contains(prefix, "*"):
			errs = append(errs, fmt.Errorf("deny[%d]: must be the name of an attribute, or the beginning of names and one * after it", i))
		case strings.HasPrefix(prefix, ownPrefix) || strings.HasPrefix(ownPrefix, prefix) && prefix != name:
			errs = append(errs, fmt.Errorf("deny[%d]: covers %s*, which are the annotations themselves: name more exactly what to delete", i, ownPrefix))
		default:
			for _, needed := range undeniable {
				if name == needed || prefix != name && strings.HasPrefix(needed, prefix) {
					errs = append(errs, fmt.Errorf("deny[%d]: covers %s, without which no request becomes a row of a trace: name more exactly what to delete, "+
						"or delete the counts in the pipeline of the backend that must not get them", i, needed))
				}
			}
		}
	}
	return errors.Join(append(errs, c.validateOrders()...)...)
}

// ParseKey reads a hash key from a configuration. The key is the literal characters, without surrounding white space; nothing is decoded,
// so that the output of "openssl rand -hex 32" is a key of 64 bytes everywhere. An empty text is the zero Key; fewer than
// [blockhash.KeySize] bytes are an error that does not repeat them.
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
