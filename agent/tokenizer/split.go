// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/dlclark/regexp2/v2"
)

// matchLimit is the time limit of a search by a file's own pattern: the regular-expression engine backtracks, and a pattern can make that
// take forever.
const matchLimit = 10 * time.Second

// pattern is a text, or a regular expression of Oniguruma, whose look-ahead Go's package does not have.
type pattern struct{ String, Regex *string }

// spans finds the matches of a pattern: pairs of beginning and end.
type spans func(text string) ([][2]int, error)

func (p pattern) compile() (spans, error) {
	switch {
	case p.String != nil && *p.String != "":
		re := regexp.MustCompile(regexp.QuoteMeta(*p.String))
		return func(text string) (list [][2]int, err error) {
			for _, m := range re.FindAllStringIndex(text, -1) {
				list = append(list, [2]int(m))
			}
			return list, nil
		}, nil
	case p.Regex != nil:
		return expression(*p.Regex)
	}
	return nil, fmt.Errorf("a pattern that is empty %w", errUnknown)
}

// without matches Oniguruma's form of a character class minus another one: [a&&[^b]], as in Kimi-K2's pattern. It is converted to [a-[b]].
var without = regexp.MustCompile(`&&\[\^([^\[\]]*)\]\]`)

func expression(source string) (spans, error) {
	re, err := regexp2.Compile(without.ReplaceAllString(source, "-[$1]]"), regexp2.Unicode)
	if err != nil || strings.Contains(without.ReplaceAllString(source, ""), "&&") { // another intersection, which would be read as characters
		return nil, fmt.Errorf("the regular expression %.80q %w", source, errUnknown)
	}
	re.MatchTimeout = matchLimit
	return func(text string) (list [][2]int, err error) {
		// Matches count in characters, pieces in bytes.
		at, chars := 0, 0
		forward := func(to int) int {
			for chars < to {
				at += runeLen(text[at:])
				chars++
			}
			return at
		}
		m, err := re.FindStringMatch(text)
		for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
			from := forward(m.RuneIndex)
			list = append(list, [2]int{from, forward(m.RuneIndex + m.RuneLength)})
		}
		if err != nil {
			return nil, fmt.Errorf("the tokenizer's pattern took too long on a text of %d bytes", len(text)) // the error quotes the text
		}
		return list, nil
	}, nil
}

// runes finds the characters of a kind, each as a separate match.
func runes(is func(rune) bool) spans {
	return func(text string) (list [][2]int, err error) {
		for i, r := range text {
			if is(r) {
				list = append(list, [2]int{i, i + runeLen(text[i:])})
			}
		}
		return list, nil
	}
}

// The treatments of matches.
const (
	isolated = "Isolated"
	removed  = "Removed"
	toPrev   = "MergedWithPrevious"
	toNext   = "MergedWithNext"
	runsOf   = "Contiguous"
)

// cutting splits pieces at matches.
func cutting(find spans, behavior string, invert bool) (splitter, error) {
	switch behavior {
	case isolated, removed, toPrev, toNext, runsOf:
	default:
		return nil, fmt.Errorf("pre-tokenizer with behavior %.40q %w", behavior, errUnknown)
	}
	return func(pieces []piece) (out []piece, err error) {
		for _, p := range pieces {
			matches, err := find(p.text)
			if err != nil {
				return nil, err
			}
			type part struct {
				from, to int
				match    bool
			}
			var parts []part
			add := func(from, to int, match bool) {
				if from == to {
					return
				}
				last := len(parts) - 1
				switch {
				case last >= 0 && behavior == runsOf && parts[last].match == match,
					last >= 0 && behavior == toPrev && match && !parts[last].match,
					last >= 0 && behavior == toNext && !match && parts[last].match:
					parts[last].to = to
					if behavior != runsOf {
						parts[last].match = behavior == toPrev // nothing more is merged with it
					}
				default:
					parts = append(parts, part{from, to, match})
				}
			}
			at := 0
			for _, m := range matches {
				add(at, m[0], invert)
				add(m[0], m[1], !invert)
				at = m[1]
			}
			add(at, len(p.text), invert)
			for _, c := range parts {
				if behavior != removed || !c.match {
					out = append(out, piece{p.text[c.from:c.to], p.first && c.from == 0})
				}
			}
		}
		return out, nil
	}, nil
}

// gpt2 is the pattern of byte-level pre-tokenizers that have none of their own.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// splitters reads the steps that split a text into pieces.
func splitters(raw json.RawMessage) (list []splitter, err error) {
	var c struct {
		Type          string
		Pretokenizers []json.RawMessage
		Pattern       pattern
		Behavior      string
		Invert        bool
		PrefixSpace   bool  `json:"add_prefix_space"`
		UseRegex      *bool `json:"use_regex"`
		Replacement   string
		Scheme        string `json:"prepend_scheme"`
		Split         *bool
		Individual    bool `json:"individual_digits"`
	}
	if isNull(raw) {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("pre-tokenizer: %w", errForm)
	}
	cut := func(find spans, behavior string, invert bool) error {
		s, err := cutting(find, behavior, invert)
		list = append(list, s)
		return err
	}
	switch c.Type {
	case "Sequence":
		for _, raw := range c.Pretokenizers {
			more, err := splitters(raw)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
	case "Split":
		find, err := c.Pattern.compile()
		if err != nil {
			return nil, err
		}
		return list, cut(find, c.Behavior, c.Invert)
	case "ByteLevel":
		if c.PrefixSpace {
			list = append(list, each(func(p piece) string {
				if !strings.HasPrefix(p.text, " ") {
					return " " + p.text
				}
				return p.text
			}))
		}
		if c.UseRegex == nil || *c.UseRegex {
			find, err := expression(gpt2)
			if err != nil {
				return nil, err
			}
			if err := cut(find, isolated, false); err != nil {
				return nil, err
			}
		}
		list = append(list, each(func(p piece) string { return visible(p.text) }))
	case "Metaspace":
		mark := c.Replacement
		if mark == "" {
			return nil, fmt.Errorf("pre-tokenizer: %w", errForm)
		}
		always, first := c.Scheme == "always" || c.Scheme == "" && c.PrefixSpace, c.Scheme == "first"
		list = append(list, each(func(p piece) string {
			text := strings.ReplaceAll(p.text, " ", mark)
			if (always || first && p.first) && !strings.HasPrefix(text, mark) {
				text = mark + text
			}
			return text
		}))
		if c.Split == nil || *c.Split {
			find, err := pattern{String: &mark}.compile()
			if err != nil {
				return nil, err
			}
			return list, cut(find, toNext, false)
		}
	case "Digits":
		behavior := runsOf
		if c.Individual {
			behavior = isolated
		}
		return list, cut(runes(unicode.IsNumber), behavior, false)
	case "Punctuation":
		if c.Behavior == "" {
			c.Behavior = isolated
		}
		return list, cut(runes(isPunctuation), c.Behavior, false)
	case "WhitespaceSplit":
		return list, cut(runes(unicode.IsSpace), removed, false)
	case "Whitespace":
		find, err := expression(`\w+|[^\w\s]+`)
		if err != nil {
			return nil, err
		}
		return list, cut(find, removed, true)
	case "BertPreTokenizer":
		if err := cut(runes(unicode.IsSpace), removed, false); err != nil {
			return nil, err
		}
		return list, cut(runes(isPunctuation), isolated, false)
	default:
		return nil, fmt.Errorf("pre-tokenizer %.40q %w", c.Type, errUnknown)
	}
	return list, nil
}

// each changes every piece.
func each(change func(piece) string) splitter {
	return func(pieces []piece) ([]piece, error) {
		for i, p := range pieces {
			pieces[i].text = change(p)
		}
		return pieces, nil
	}
}

func isPunctuation(r rune) bool {
	return unicode.IsPunct(r) || r < 0x80 && unicode.IsSymbol(r)
}

// visible replaces each byte by a visible character: GPT-2's alphabet.
func visible(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteRune(alphabet[text[i]])
	}
	return b.String()
}

var alphabet = func() (chars [256]rune) {
	next := rune(256)
	for b := range chars {
		switch r := rune(b); {
		case r >= '!' && r <= '~', r >= 0xa1 && r <= 0xac, r >= 0xae && r <= 0xff:
			chars[b] = r
		default:
			chars[b] = next
			next++
		}
	}
	return chars
}()
