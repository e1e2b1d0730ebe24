// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// short reports whether a value with an allowed name has the right form, and is not text: one string or a few, or numbers, of 256 bytes in
// all.
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

// fits reports whether a string has a rule's form. A document, such as a list of messages, never has it.
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
		return !strings.HasPrefix(s, "[") // a list in a string: the standard attribute has it, if it could be read
	case numeric:
		_, err := strconv.ParseFloat(s, 64)
		return err == nil || s == "" || strings.EqualFold(s, "true") || strings.EqualFold(s, "false")
	default:
		return true
	}
}

// mend removes the parts of a kept value that may be text.
func (w *worker) mend(r rule, value pcommon.Value) {
	if r.shape != address && r.shape != reason {
		return
	}
	switch value.Type() {
	case pcommon.ValueTypeSlice:
		for _, member := range value.Slice().All() {
			if member.Type() == pcommon.ValueTypeStr {
				w.mend(r, member)
			}
		}
	case pcommon.ValueTypeStr:
		s := value.Str()
		switch {
		case r.shape == address:
			s = addressOf(s)
		case s != "" && !genai.IsWord(s):
			s = semconv.ErrorOther
		}
		if s != value.Str() {
			value.SetStr(s)
			w.removed(r.name)
		}
	default:
	}
}

// addressOf returns a URL without its query, its fragment, and the user and password before its host.
func addressOf(url string) string {
	if end := strings.IndexAny(url, "?#"); end >= 0 {
		url = url[:end]
	}
	scheme, rest, ok := strings.Cut(url, "//")
	if !ok || scheme != "" && !strings.HasSuffix(scheme, ":") {
		return url // a path
	}
	host, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		return scheme + "//" + rest[at+1:]
	}
	return url
}

// ownTexts check those of our attributes for which it is not enough to be one word.
var ownTexts = map[string]func(string) bool{
	semconv.HashDomain: isFingerprint, semconv.HashKey: isFingerprint, semconv.Identity: isIdentity, semconv.PromptOrder: isPromptOrder,
}

// isOurs reports whether one of our attributes has the form that we write. A session that is too long is replaced by its keyed hash, on all
// spans alike, so that the spans of a session stay together. So is a run whose id is not a word, because without a run id a replay
// would be taken for production.
func (w *worker) isOurs(name string, value pcommon.Value, how manner) bool {
	switch value.Type() {
	case pcommon.ValueTypeStr:
		s := value.Str()
		if name == semconv.Session || name == semconv.RunID {
			if len(s) > maxName || name == semconv.RunID && s != "" && !genai.IsWord(s) {
				value.SetStr(w.twin(s))
				w.removed(name)
			}
			return true
		}
		if valid := ownTexts[name]; valid != nil {
			return valid(s)
		}
		return len(s) <= maxName && genai.IsWord(s)
	case pcommon.ValueTypeBytes:
		switch bytes := value.Bytes(); {
		case !how.onSpan:
			return false
		case name == semconv.Cells:
			_, ok := isChain(bytes)
			return ok
		case name == semconv.CellsEnds:
			return w.isEnds(bytes)
		default:
			return name == semconv.CellsReply && w.isReply(bytes)
		}
	case pcommon.ValueTypeSlice:
		if name == semconv.WaitEvidence {
			return how.onSpan && isEvidence(value.Slice())
		}
		return how.onSpan && slices.Contains(series, name) && numbers(value.Slice())
	default:
		return false
	}
}

// noCells stand for the cells of a chain of which only the number matters.
var noCells [blockhash.MaxCells]uint64

// isChain reports whether bytes can be the cells of a prompt, as read by [blockhash.Chain.UnmarshalBinary], and the length of its text in
// bytes. A text in place of cells is refused, because its last eight bytes are an impossible length.
func isChain(b pcommon.ByteSlice) (text int64, ok bool) {
	const word, trailer, maxText = 8, 16, 1 << 40
	n := b.Len()
	if n%word != 0 || n < trailer || n > trailer+word*len(noCells) {
		return 0, false
	}
	var bytes uint64
	for i := range word {
		bytes |= uint64(b.At(n-word+i)) << (8 * i)
	}
	chain := blockhash.Chain{Cells: noCells[:(n-trailer)/word], Bytes: int64(min(bytes, maxText))}
	if bytes > maxText || chain.Validate() != nil {
		return 0, false
	}
	return chain.Bytes, true
}

// noteText records the length of the text of a span's cells, which the ends of its messages must fit.
func (w *worker) noteText(attributes pcommon.Map) {
	if cells, ok := attributes.Get(semconv.Cells); ok && cells.Type() == pcommon.ValueTypeBytes {
		w.chain.Bytes, _ = isChain(cells.Bytes())
	}
}

// isEnds reports whether bytes can be the ends of the messages of the current text. A text in place of ends is refused, because its letters
// are positions beyond the end of the text.
func (w *worker) isEnds(b pcommon.ByteSlice) bool {
	const end = 12
	return b.Len() <= end*blockhash.MaxEnds && w.chain.UnmarshalEnds(b.AsRaw()) == nil
}

// isReply reports whether bytes can be the end of the reply to the current text. Letters would be a position far beyond any reply.
func (w *worker) isReply(b pcommon.ByteSlice) bool {
	const longest = 1 << 24 // bytes of a reply
	var end blockhash.End
	return b.Len() <= 12 && end.UnmarshalBinary(b.AsRaw()) == nil && w.chain.Bytes > 0 && w.chain.ValidateReply(end) == nil &&
		end.Bytes <= w.chain.Bytes+longest
}

func numbers(list pcommon.Slice) bool {
	for _, member := range list.All() {
		if !number(member.Type()) {
			return false
		}
	}
	return true
}

// series are the attributes whose value is a list of numbers, of any length.
var series = []string{
	semconv.HashIDs, semconv.HashRanges, semconv.Replies, semconv.TokenGaps, semconv.TokenCounts, semconv.WaitFor,
	semconv.ToolCalls, semconv.ToolResults,
}

// isEvidence reports whether all elements of a list are kinds of evidence for the edges of a graph.
func isEvidence(list pcommon.Slice) bool {
	for _, member := range list.All() {
		if _, ok := mooncake.ParseEvidence(member.Str()); !ok {
			return false
		}
	}
	return true
}

// isFingerprint reports whether a text has the form of a key's or domain's name: 8 hexadecimal digits.
func isFingerprint(s string) bool { return len(s) == 8 && strings.Trim(s, "0123456789abcdef") == "" }

// identities are what may identify a prompt.
var identities = []string{
	semconv.IdentityNone, semconv.IdentityTrace, semconv.IdentityEngine, semconv.IdentityTokens, semconv.IdentityText,
	semconv.IdentityStructure, semconv.IdentityLengths,
}

func isIdentity(s string) bool { return slices.Contains(identities, s) }
