// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"math"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/mooncake"
)

// A record is its kind, trace id and span id, then the fields that are set: a tag and a value each, tags ascending. A record has only one
// encoding, so equal records are equal bytes.
const (
	KindInference Kind = 'I'
	KindContent   Kind = 'C'
	KindLink      Kind = 'L'

	kindResume = 'R' // a writer continued here; no ids, no fields
	headLength = 1 + 16 + 8
)

// Kind is the kind of a record.
type Kind byte

// AppendRecord appends the encoding of a record, which [Decoder.Decode] reads.
func AppendRecord(dst []byte, r Record) []byte { return r.appendTo(dst).b }

// Tags of fields. A tag is never given a new meaning; the version of the journal changes instead.
const (
	tagParent = 1 + iota
	tagStart
	tagEnd // − start
	tagFailed
	tagFirstToken // − start
	tagInputTokens
	tagOutputTokens
	tagCachedTokens
	tagIdentity
	tagHashIDs
	tagBlockSize
	tagDomain
	tagCells
	tagTail
	tagBytes
	tagSession
	tagModel
	tagResponse
	tagRun
	tagRow
	tagTimestamp
	tagInputLength
	tagOutputLength
	tagOffset
	tagSpread
	tagLink
	tagWarmup
	tagSynthetic
	tagKey
	tagPrefix
	tagMedia
	tagCacheWrite
	tagExclusive
	tagOutputEstimate
	tagAnswered // "" means the name of tagModel
	tagJoined
	tagProducer
	tagClock
	tagRemote
	tagBorder
	tagEnds
	tagReply
	tagHashRanges
	tagFineBlockSize
	tagReplies
	tagFinish
	tagOrder
	tagFollows
	tagActor
	tagStep
	tagWaits
	tagToolsMade
	tagToolsGiven
	tagClass
	tagPriority
	tagTurn
	tagSampled
	tagEnding
	tagLast = tagEnding
)

type encoder struct {
	b     []byte
	lists [listCount]extent // in b
}

func (e *encoder) head(kind Kind, s mooncake.SpanRef) {
	e.b = append(e.b, byte(kind))
	e.b = append(e.b, s.TraceID[:]...)
	e.b = append(e.b, s.SpanID[:]...)
}

func (e *encoder) bytes(tag byte, set bool, v []byte) {
	if set {
		e.b = append(append(e.b, tag), v...)
	}
}

func (e *encoder) signed(tag byte, set bool, v int64) {
	if set {
		e.b = binary.AppendVarint(append(e.b, tag), v)
	}
}

func (e *encoder) fixed(tag byte, set bool, v uint64) {
	if set {
		e.b = binary.LittleEndian.AppendUint64(append(e.b, tag), v)
	}
}

func (e *encoder) float(tag byte, v mooncake.Opt[float64]) {
	e.fixed(tag, v.Set, math.Float64bits(v.V))
}

func (e *encoder) integer(tag byte, v mooncake.Opt[int64]) { e.signed(tag, v.Set, v.V) }

func (e *encoder) flag(tag byte, v bool) {
	if v {
		e.b = append(e.b, tag)
	}
}

func (e *encoder) name(tag byte, n Name) {
	if !n.IsZero() {
		e.b = binary.AppendUvarint(append(e.b, tag), uint64(len(n.s)))
		e.b = append(e.b, n.s...)
	}
}

// list writes the number of values, the width of the widest one in bytes, and the values with this width.
func (e *encoder) list(tag byte, v []uint64, which int) {
	if v == nil {
		return
	}
	width := widthOf(v)
	e.b = append(e.b, tag)
	from := len(e.b)
	e.b = append(binary.AppendUvarint(e.b, uint64(len(v))), byte(width)) //nolint:gosec // at most 8
	e.b = appendValues(e.b, v, width)
	e.lists[which] = extent{from, len(e.b)}
}

func (e *encoder) prompt(p *Prompt) {
	e.bytes(tagIdentity, p.Identity != NoIdentity, []byte{byte(p.Identity)})
	e.list(tagHashIDs, p.HashIDs, listIDs)
	e.signed(tagBlockSize, p.BlockSize != 0, int64(p.BlockSize))
	e.signed(tagDomain, p.Domain != 0, int64(p.Domain))
	e.list(tagCells, p.Chain.Cells, listCells)
	e.fixed(tagTail, p.Chain.Tail != 0, p.Chain.Tail)
	e.signed(tagBytes, p.Chain.Bytes != 0, p.Chain.Bytes)
}

// promptEnd writes the fields of a prompt whose tags follow tagSynthetic.
func (e *encoder) promptEnd(p *Prompt) {
	e.signed(tagKey, p.Key != 0, int64(p.Key))
	e.flag(tagPrefix, p.Prefix)
	e.signed(tagMedia, p.MediaEnd != 0, p.MediaEnd)
}

// roleBits is the number of bits of a role in the encoding of an end.
const roleBits = 3

// end writes an end of a message: the distance from the position before it together with its role, and its value.
func (e *encoder) end(end blockhash.End, from int64) {
	e.b = binary.LittleEndian.AppendUint64(appendPlace(e.b, end, from), end.Value)
}

func appendPlace(dst []byte, end blockhash.End, from int64) []byte {
	return binary.AppendUvarint(dst, uint64(end.Bytes-from)<<roleBits|uint64(end.Role)) //nolint:gosec // ends ascend
}

// promptLast writes the last fields of a prompt.
func (e *encoder) promptLast(p *Prompt) {
	if ends := p.Chain.Ends; len(ends) > 0 {
		e.b = append(e.b, tagEnds)
		start := len(e.b)
		e.b = binary.AppendUvarint(e.b, uint64(len(ends)))
		from := int64(0)
		for _, end := range ends {
			e.end(end, from)
			from = end.Bytes
		}
		e.lists[listEnds] = extent{start, len(e.b)}
	}
	if p.Reply != (blockhash.End{}) {
		e.b = append(e.b, tagReply)
		e.end(p.Reply, p.Chain.Bytes)
	}
	if p.HashRanges != nil {
		e.b = binary.AppendUvarint(append(e.b, tagHashRanges), uint64(len(p.HashRanges)))
		next := uint64(0)
		for _, r := range p.HashRanges {
			e.b = binary.AppendVarint(e.b, int64(r.First-next)) //nolint:gosec // modulo 2^64
			e.b = binary.AppendUvarint(e.b, uint64(r.Count))    //nolint:gosec // not negative
			next = r.First + uint64(r.Count)                    //nolint:gosec // modulo 2^64
		}
	}
	e.signed(tagFineBlockSize, p.FineBlockSize != 0, int64(p.FineBlockSize))
	if p.Replies != nil {
		e.b = binary.AppendUvarint(append(e.b, tagReplies), uint64(len(p.Replies)))
		for _, r := range p.Replies {
			for _, n := range [...]int64{r.Back, r.At, r.Tokens} {
				e.b = binary.AppendUvarint(e.b, uint64(n)) //nolint:gosec // not negative
			}
		}
	}
}

func (e *encoder) span(tag byte, s mooncake.SpanRef) {
	if !s.IsZero() {
		e.b = append(e.b, tag)
		e.b = append(e.b, s.TraceID[:]...)
		e.b = append(e.b, s.SpanID[:]...)
	}
}

func (r *Inference) appendTo(dst []byte) encoder {
	e := encoder{b: dst}
	e.head(KindInference, r.Span)
	e.bytes(tagParent, r.Parent != SpanID{}, r.Parent[:])
	e.fixed(tagStart, r.Start != 0, uint64(r.Start)) //nolint:gosec // the bit pattern
	e.signed(tagEnd, r.End != r.Start, r.End-r.Start)
	e.flag(tagFailed, r.Failed)
	e.signed(tagFirstToken, r.FirstToken.Set, r.FirstToken.V-r.Start)
	e.integer(tagInputTokens, r.InputTokens)
	e.integer(tagOutputTokens, r.OutputTokens)
	e.integer(tagCachedTokens, r.CachedTokens)
	e.prompt(&r.Prompt)
	e.fixed(tagSession, r.Session != 0, uint64(r.Session))
	e.name(tagModel, r.Model)
	e.bytes(tagResponse, r.Response != Response{}, r.Response[:])
	e.name(tagRun, r.Run)
	e.integer(tagRow, r.Row)
	e.float(tagTimestamp, r.Timestamp)
	e.integer(tagInputLength, r.InputLength)
	e.integer(tagOutputLength, r.OutputLength)
	e.float(tagOffset, r.Offset)
	e.float(tagSpread, r.Spread)
	e.span(tagLink, r.Link)
	e.flag(tagWarmup, r.Warmup)
	e.flag(tagSynthetic, r.Synthetic)
	e.promptEnd(&r.Prompt)
	e.integer(tagCacheWrite, r.CacheWriteTokens)
	e.flag(tagExclusive, r.Exclusive)
	e.integer(tagOutputEstimate, r.OutputEstimate)
	if r.Answered == r.Model && !r.Model.IsZero() {
		e.b = append(e.b, tagAnswered, 0)
	} else {
		e.name(tagAnswered, r.Answered)
	}
	e.span(tagJoined, r.Joined)
	e.fixed(tagProducer, r.Producer != 0, r.Producer)
	e.fixed(tagClock, r.Clock != 0, r.Clock)
	e.flag(tagRemote, r.Remote)
	e.promptLast(&r.Prompt)
	e.name(tagFinish, r.Finish)
	e.bytes(tagOrder, r.Order != "", []byte{r.Order.number()})
	e.follows(r.Follows)
	e.step(&r.Step)
	e.waits(&r.Waits)
	e.tools(&r.Tools)
	e.name(tagClass, r.Class)
	e.integer(tagPriority, r.Priority)
	e.turn(&r.Step.Turn)
	if r.Sampled.PerMillion != 0 {
		n := uint64(r.Sampled.PerMillion) << 1
		if r.Sampled.ByPrefix {
			n |= 1
		}
		e.b = binary.AppendUvarint(append(e.b, tagSampled), n)
		e.b = binary.LittleEndian.AppendUint32(e.b, uint32(r.Sampled.List))
	}
	e.bytes(tagEnding, r.Ending != NoEnding, []byte{byte(r.Ending)})
	return e
}

func (e *encoder) follows(spans []SpanID) {
	if len(spans) == 0 {
		return
	}
	e.b = append(e.b, tagFollows, byte(len(spans))) //nolint:gosec // at most MaxFollows
	for _, s := range spans {
		e.b = append(e.b, s[:]...)
	}
}

func (e *encoder) tools(ids *ToolIDs) {
	for i, list := range [...][]uint64{ids.Made, ids.Given} {
		if len(list) == 0 {
			continue
		}
		e.b = append(e.b, tagToolsMade+byte(i), byte(len(list))) //nolint:gosec // at most MaxToolIDs
		for _, id := range list {
			e.b = binary.LittleEndian.AppendUint64(e.b, id)
		}
	}
}

func (e *encoder) step(s *Step) {
	if s.ID == 0 {
		return
	}
	e.fixed(tagStep, true, s.ID)
	e.b = binary.AppendUvarint(e.b, uint64(len(s.WaitFor)))
	for _, w := range s.WaitFor {
		e.b = append(binary.LittleEndian.AppendUint64(e.b, w.ID), byte(w.Evidence))
	}
	tools := s.ToolWait
	if s.Endless {
		tools = ^tools // below 0
	}
	e.b = binary.AppendVarint(binary.AppendVarint(e.b, s.Delay), tools)
}

func (e *encoder) turn(t *Turn) {
	if *t == (Turn{}) {
		return
	}
	e.fixed(tagTurn, true, t.ID)
	for _, at := range [...]int64{t.Begin, t.End, t.From, t.To} {
		e.b = binary.AppendVarint(e.b, at)
	}
	flags := byte(0)
	for i, set := range [...]bool{t.Acts, t.Waited} {
		if set {
			flags |= 1 << i
		}
	}
	e.b = append(e.b, flags)
}

func (r *Content) appendTo(dst []byte) encoder {
	e := encoder{b: dst}
	e.head(KindContent, r.Span)
	e.bytes(tagParent, r.Parent != SpanID{}, r.Parent[:])
	e.fixed(tagStart, r.Start != 0, uint64(r.Start)) //nolint:gosec // the bit pattern
	e.prompt(&r.Prompt)
	e.promptEnd(&r.Prompt)
	e.promptLast(&r.Prompt)
	e.tools(&r.Tools)
	return e
}

func (r *Link) appendTo(dst []byte) encoder {
	e := encoder{b: dst}
	e.head(KindLink, r.Span)
	e.bytes(tagParent, r.Parent != SpanID{}, r.Parent[:])
	e.fixed(tagStart, r.Start != 0, uint64(r.Start)) //nolint:gosec // the bit pattern
	e.signed(tagEnd, r.End != r.Start, r.End-r.Start)
	e.fixed(tagSession, r.Session != 0, uint64(r.Session))
	e.flag(tagBorder, r.Border)
	e.follows(r.Follows)
	e.bytes(tagActor, r.Acts != NoActor, []byte{byte(r.Acts)})
	e.tools(&r.Tools)
	e.name(tagClass, r.Class)
	e.integer(tagPriority, r.Priority)
	return e
}
