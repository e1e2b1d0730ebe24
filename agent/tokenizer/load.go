// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

const (
	// maxFile is the maximum size of a tokenizer.json, in bytes: several times the largest known one.
	maxFile = 256 << 20
	// unkPenalty is by how much the score of an unknown character is below that of the least probable token.
	unkPenalty = 10
)

var (
	errForm    = errors.New("it does not have the expected form")
	errUnknown = errors.New("is not supported, and its tokens would be a guess")
)

// file is a tokenizer.json.
type file struct {
	Added []struct {
		ID                 uint32
		Content            string
		Normalized, Lstrip bool
		Rstrip             bool
		SingleWord         bool `json:"single_word"`
	} `json:"added_tokens"`
	Normalizer   json.RawMessage
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`
	Model        *struct {
		Type         string
		Vocab        json.RawMessage
		Merges       []mergeRule
		UnkToken     *string `json:"unk_token"`
		UnkID        *uint32 `json:"unk_id"`
		FuseUnk      bool    `json:"fuse_unk"`
		ByteFallback bool    `json:"byte_fallback"`
		IgnoreMerges bool    `json:"ignore_merges"`
		Dropout      *float64
		Prefix       *string `json:"continuing_subword_prefix"`
		Suffix       *string `json:"end_of_word_suffix"`
		MaxChars     *int    `json:"max_input_chars_per_word"`
	}
}

// mergeRule is "a b" or ["a", "b"].
type mergeRule [2]string

// UnmarshalJSON implements [json.Unmarshaler].
func (m *mergeRule) UnmarshalJSON(data []byte) error {
	if data[0] == '[' {
		var both []string
		if err := json.Unmarshal(data, &both); err != nil || len(both) != 2 {
			return errForm
		}
		*m = mergeRule(both)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errForm
	}
	a, b, found := strings.Cut(text, " ")
	if !found {
		return errForm
	}
	*m = mergeRule{a, b}
	return nil
}

// Load reads a tokenizer.json, compressed or not. Its error names the part that is not supported.
func Load(ctx context.Context, name string) (*Tokenizer, error) {
	in, err := mooncake.OpenInput(ctx, name, mooncake.OpenOptions{})
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer func() { _ = in.Close() }() // it was only read
	if err := in.Text(); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("tokenizer: %s cannot be read to its end: %w; use a complete copy of the file", in.Label, err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("tokenizer: %s is longer than %d MiB: name a tokenizer.json", in.Label, maxFile>>20)
	}
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w; name the tokenizer.json of a model, as its repository has it", in.Label, err)
	}
	return t, nil
}

func parse(data []byte) (*Tokenizer, error) {
	var c file
	if err := json.Unmarshal(data, &c); err != nil || c.Model == nil {
		return nil, errForm
	}
	t := new(Tokenizer)
	for _, a := range c.Added {
		switch {
		case a.Content == "":
			return nil, fmt.Errorf("added token %d: %w", a.ID, errForm)
		case a.SingleWord:
			return nil, fmt.Errorf("added token %d with single_word %w", a.ID, errUnknown)
		case a.Normalized:
			t.normal.add(added{a.Content, a.ID, a.Lstrip, a.Rstrip})
		default:
			t.raw.add(added{a.Content, a.ID, a.Lstrip, a.Rstrip})
		}
	}
	t.raw.sort()
	t.normal.sort()
	var err error
	if t.normalize, err = normalizers(c.Normalizer); err != nil {
		return nil, err
	}
	if t.split, err = splitters(c.PreTokenizer); err != nil {
		return nil, err
	}
	t.model, err = c.model()
	return t, err
}

// model builds the model.
func (c *file) model() (model, error) {
	m := c.Model
	if m.Type == "Unigram" {
		return c.unigram()
	}
	var vocab map[string]uint32
	if json.Unmarshal(m.Vocab, &vocab) != nil || len(vocab) == 0 {
		return nil, fmt.Errorf("vocabulary: %w", errForm)
	}
	unk := int64(-1)
	if m.UnkToken != nil {
		if id, is := vocab[*m.UnkToken]; is {
			unk = int64(id)
		}
	}
	switch kind := m.Type; {
	case kind == "WordPiece":
		if unk < 0 {
			return nil, fmt.Errorf("unknown token: %w", errForm)
		}
		w := &wordPiece{vocab: vocab, prefix: "##", unk: uint32(unk), maxChars: 100}
		if m.Prefix != nil {
			w.prefix = *m.Prefix
		}
		if m.MaxChars != nil {
			w.maxChars = *m.MaxChars
		}
		for token := range vocab {
			w.longest = max(w.longest, len(token))
		}
		return w, nil
	case kind != "BPE" && (kind != "" || m.Merges == nil): // early files do not have the type
		return nil, fmt.Errorf("model %.40q %w", kind, errUnknown)
	case m.Dropout != nil && *m.Dropout > 0:
		return nil, fmt.Errorf("dropout %w", errUnknown)
	case m.Prefix != nil && *m.Prefix != "", m.Suffix != nil && *m.Suffix != "":
		return nil, fmt.Errorf("a prefix or suffix of subwords %w", errUnknown)
	}
	b := &bpe{vocab: vocab, merges: make(map[uint64]merge, len(m.Merges)), unk: unk, fuseUnk: m.FuseUnk, ignoreMerges: m.IgnoreMerges}
	if m.ByteFallback {
		b.bytes = byteTokens(vocab)
	}
	for rank, rule := range m.Merges {
		left, one := vocab[rule[0]]
		right, two := vocab[rule[1]]
		id, both := vocab[rule[0]+rule[1]]
		if !one || !two || !both {
			return nil, fmt.Errorf("merge %d: %w", rank, errForm)
		}
		b.merges[pair(left, right)] = merge{uint32(rank), id}
	}
	return b, nil
}

func (c *file) unigram() (model, error) {
	var list [][2]json.RawMessage
	if json.Unmarshal(c.Model.Vocab, &list) != nil || len(list) == 0 {
		return nil, fmt.Errorf("vocabulary: %w", errForm)
	}
	u := &unigram{ids: make(map[string]uint32, len(list)), scores: make([]float64, len(list))}
	for i, entry := range list {
		var text string
		if json.Unmarshal(entry[0], &text) != nil || json.Unmarshal(entry[1], &u.scores[i]) != nil {
			return nil, fmt.Errorf("vocabulary, token %d: %w", i, errForm)
		}
		u.ids[text] = uint32(i)
		u.longest = max(u.longest, len(text))
	}
	if c.Model.UnkID == nil || int(*c.Model.UnkID) >= len(list) {
		return nil, fmt.Errorf("unknown token: %w", errForm)
	}
	u.unk, u.penalty = *c.Model.UnkID, least(u.scores)-unkPenalty
	if c.Model.ByteFallback {
		u.bytes = byteTokens(u.ids)
	}
	return u, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }
