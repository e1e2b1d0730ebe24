// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// plainNormalizers are those without settings.
var plainNormalizers = map[string]normalizer{
	"NFC": norm.NFC.String, "NFD": norm.NFD.String, "NFKC": norm.NFKC.String, "NFKD": norm.NFKD.String, "Lowercase": strings.ToLower, "StripAccents": withoutMarks,
}

// normalizers reads the steps that change a text before it is split.
func normalizers(raw json.RawMessage) (list []normalizer, err error) {
	var c struct {
		Type        string
		Normalizers []json.RawMessage
		Prepend     string
		Pattern     pattern
		Content     string

		CleanText    bool  `json:"clean_text"`
		ChineseChars bool  `json:"handle_chinese_chars"`
		StripAccents *bool `json:"strip_accents"`
		Lowercase    bool
		StripLeft    bool `json:"strip_left"`
		StripRight   bool `json:"strip_right"`

		CharsMap string `json:"precompiled_charsmap"`
	}
	if isNull(raw) {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("normalizer: %w", errForm)
	}
	one := func(n normalizer) ([]normalizer, error) { return []normalizer{n}, nil }
	if plain, is := plainNormalizers[c.Type]; is {
		return one(plain)
	}
	switch c.Type {
	case "Sequence":
		for _, raw := range c.Normalizers {
			more, err := normalizers(raw)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
		return list, nil
	case "Strip":
		return one(func(text string) string {
			if c.StripLeft {
				text = strings.TrimLeftFunc(text, unicode.IsSpace)
			}
			if c.StripRight {
				text = strings.TrimRightFunc(text, unicode.IsSpace)
			}
			return text
		})
	case "Prepend":
		return one(func(text string) string {
			if text == "" {
				return text
			}
			return c.Prepend + text
		})
	case "Precompiled":
		m, err := readCharsMap(c.CharsMap)
		if err != nil {
			return nil, err
		}
		return one(m.normalize)
	case "Replace":
		if r := c.Pattern.Regex; r != nil && *r == " {2,}" { // as it occurs after character maps
			spaces := regexp.MustCompile(" {2,}")
			return one(func(text string) string { return spaces.ReplaceAllLiteralString(text, c.Content) })
		}
		if c.Pattern.String == nil || *c.Pattern.String == "" {
			return nil, fmt.Errorf("normalizer Replace with a regular expression %w", errUnknown)
		}
		return one(strings.NewReplacer(*c.Pattern.String, c.Content).Replace)
	case "BertNormalizer":
		if c.CleanText {
			list = append(list, cleanText)
		}
		if c.ChineseChars {
			list = append(list, aroundIdeographs)
		}
		if c.StripAccents != nil && *c.StripAccents || c.StripAccents == nil && c.Lowercase {
			list = append(list, norm.NFD.String, withoutMarks)
		}
		if c.Lowercase {
			list = append(list, strings.ToLower)
		}
		return list, nil
	}
	return nil, fmt.Errorf("normalizer %.40q %w", c.Type, errUnknown)
}

func withoutMarks(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, text)
}

// cleanText removes control characters, and replaces white space by spaces.
func cleanText(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case r == 0 || r == unicode.ReplacementChar || unicode.Is(unicode.C, r):
			return -1
		case unicode.IsSpace(r):
			return ' '
		}
		return r
	}, text)
}

// aroundIdeographs adds spaces around each CJK ideograph.
func aroundIdeographs(text string) string {
	var b strings.Builder
	for _, r := range text {
		if isIdeograph(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isIdeograph(r rune) bool {
	for _, span := range [...][2]rune{
		{0x4e00, 0x9fff}, {0x3400, 0x4dbf}, {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff}, {0x2f800, 0x2fa1f},
	} {
		if r >= span[0] && r <= span[1] {
			return true
		}
	}
	return false
}
