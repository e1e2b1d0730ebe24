// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"encoding/binary"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// short reports whether a value under an allowed name is what the name says, and no text: one string or a few, or
// numbers, of 256 bytes in all.
func (r rule) short(value pcommon.Value) bool {
	switch value.Type() {
	case pcommon.ValueTypeStr:
		return len(value.Str()) <= maxName && r.fits(value.Str())
	case pcommon.ValueTypeSlice:
		left := maxName
		for _, member := range value.Slice().All() {
			switch t := member.Type(); {
			case number(t):
				left -= 8
			case t == pcommon.ValueTypeStr && r.fits(member.Str()):
				left -= len(member.Str())
			default:
				return false
			}
			if left < 0 {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// fits reports whether a string is of a rule's shape. A document, such as a list of messages, is of none.
func (r rule) fits(s string) bool {
	const space = " \t\r\n"
	s = strings.Trim(s, space)
	if list, ok := strings.CutPrefix(s, "["); ok && strings.HasPrefix(strings.TrimLeft(list, "["+space), "{") || strings.HasPrefix(s, "{") {
		return false
	}
	switch r.shape {
	case word:
		return s == "" || genai.IsWord(s)
	case reason:
		return !strings.HasPrefix(s, "[") // a list in a string: it stands in the standard attribute, if anybody could read it
	case numeric:
		_, err := strconv.ParseFloat(s, 64)
		return err == nil || s == "" || strings.EqualFold(s, "true") || strings.EqualFold(s, "false")
	default:
		return true
	}
}

// mend takes off a value that stays what may be text.
func (c *cleaner) mend(r rule, value pcommon.Value) {
	if r.shape != address && r.shape != reason {
		return
	}
	switch value.Type() {
	case pcommon.ValueTypeSlice:
		for _, member := range value.Slice().All() {
			if member.Type() == pcommon.ValueTypeStr {
				c.mend(r, member)
			}
		}
	case pcommon.ValueTypeStr:
		s := value.Str()
		switch {
		case r.shape == address:
			s = place(s)
		case s != "" && !genai.IsWord(s):
			s = semconv.ErrorOther
		}
		if s != value.Str() {
			value.SetStr(s)
			c.removed(r.name)
		}
	default:
	}
}

// place returns a URL without its query, its fragment, and the user and password before its host.
func place(url string) string {
	if end := strings.IndexAny(url, "?#"); end >= 0 {
		url = url[:end]
	}
	host := strings.Index(url, "//") + 2
	if host < 2 || host > 2 && url[host-3] != ':' {
		return url // a path
	}
	end := len(url)
	if slash := strings.IndexByte(url[host:], '/'); slash >= 0 {
		end = host + slash
	}
	if at := strings.LastIndexByte(url[host:end], '@'); at >= 0 {
		return url[:host] + url[host+at+1:]
	}
	return url
}

// ours reports whether an attribute of ours is what we write. A session that is too long to be one gets its twin, on
// every span alike, so that those of one session stay together, and so does a run whose id is no word.
func (c *cleaner) ours(name string, value pcommon.Value, how manner) bool {
	switch value.Type() {
	case pcommon.ValueTypeStr:
		s := value.Str()
		switch name {
		case semconv.HashDomain, semconv.HashKey:
			return isFingerprint(s)
		case semconv.Identity:
			return isIdentity(s)
		case semconv.PromptOrder:
			return isPromptOrder(s)
		case semconv.Session:
			if len(s) > maxName {
				value.SetStr(c.twin(s))
				c.removed(name)
			}
			return true
		case semconv.RunID:
			// Without it a replay would be production.
			if len(s) > maxName || s != "" && !genai.IsWord(s) {
				value.SetStr(c.twin(s))
				c.removed(name)
			}
			return true
		default:
			return len(s) <= maxName && genai.IsWord(s)
		}
	case pcommon.ValueTypeBytes:
		switch {
		case how&onSpan == 0:
			return false
		case name == semconv.Cells:
			_, ok := isChain(value.Bytes())
			return ok
		case name == semconv.CellsEnds:
			return c.isEnds(value.Bytes())
		case name == semconv.CellsReply:
			return c.isReply(value.Bytes())
		}
		return false
	case pcommon.ValueTypeSlice:
		return isSeries(name) && how&onSpan != 0 && numbers(value.Slice())
	default:
		return false
	}
}

// noCells stand for the cells of a chain of which only their number matters.
var noCells [blockhash.MaxCells]uint64

// isChain reports whether bytes can be the cells of a prompt, as [blockhash.Chain.UnmarshalBinary] reads them, and of how many bytes
// of text. A text of as many bytes is none: its last eight make a length that nobody sends.
func isChain(b pcommon.ByteSlice) (text int64, ok bool) {
	const word, trailer, maxText = 8, 16, 1 << 40
	n := b.Len()
	if n%word != 0 || n < trailer || n > trailer+word*len(noCells) {
		return 0, false
	}
	var length [word]byte
	for i := range length {
		length[i] = b.At(n - word + i)
	}
	bytes := binary.LittleEndian.Uint64(length[:])
	chain := blockhash.Chain{Cells: noCells[:(n-trailer)/word], Bytes: int64(min(bytes, maxText))}
	return chain.Bytes, bytes <= maxText && chain.Validate() == nil
}

// textOf takes note of how long the text is whose cells a span has, which the ends of its messages have to fit.
func (c *cleaner) textOf(attributes pcommon.Map) {
	if cells, ok := attributes.Get(semconv.Cells); ok && cells.Type() == pcommon.ValueTypeBytes {
		if text, ok := isChain(cells.Bytes()); ok {
			c.chain.Bytes = text
		}
	}
}

// isEnds reports whether bytes can be the ends of the messages of the text at hand. A text of as many bytes is none: its letters make
// places behind the end.
func (c *cleaner) isEnds(b pcommon.ByteSlice) bool {
	const end = 12
	return b.Len() <= end*blockhash.MaxEnds && c.chain.UnmarshalEnds(b.AsRaw()) == nil
}

// isReply reports whether bytes can be the end of the reply to the text at hand. Those of a letter are far behind it.
func (c *cleaner) isReply(b pcommon.ByteSlice) bool {
	const longest = 1 << 24 // bytes of a reply
	var end blockhash.End
	return b.Len() <= 12 && end.UnmarshalBinary(b.AsRaw()) == nil && c.chain.Bytes > 0 && c.chain.ValidateReply(end) == nil &&
		end.Bytes <= c.chain.Bytes+longest
}

func numbers(list pcommon.Slice) bool {
	for _, member := range list.All() {
		if !number(member.Type()) {
			return false
		}
	}
	return true
}

// isSeries reports whether an attribute holds numbers without a bound.
func isSeries(name string) bool {
	switch name {
	case semconv.HashIDs, semconv.HashRanges, semconv.Replies, semconv.TokenGaps, semconv.TokenCounts:
		return true
	}
	return false
}

// isFingerprint reports whether a text is what a key and a domain are called by: 8 hexadecimal digits.
func isFingerprint(s string) bool { return len(s) == 8 && strings.Trim(s, "0123456789abcdef") == "" }

// isIdentity reports whether a text is an identity of a prompt.
func isIdentity(s string) bool {
	switch s {
	case semconv.IdentityNone, semconv.IdentityTrace, semconv.IdentityEngine, semconv.IdentityTokens, semconv.IdentityText,
		semconv.IdentityStructure, semconv.IdentityLengths:
		return true
	}
	return false
}
