// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"errors"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// identity identifies a prompt. It shares its slices with the worker.
type identity struct {
	kind   string // [semconv.IdentityNone], ...
	domain string
	ids    []uint64
	size   int // tokens per id
	cells  []byte
	prefix bool  // the cells cover only the beginning of the prompt
	media  int64 // see [Written]
	ends   []byte
	reply  []byte
}

// identify returns the identity of a request's prompt: the engine's hashes, else the tokens, else the text. The scope of an engine's
// hashes is the name of its service. The ids of blocks that no engine has hashed are derived from the ids of their span.
func (w *worker) identify(rec *genai.Record, scope, span string) identity {
	if rec.Engine.BlockSize > 0 {
		if id, ok := w.engine(rec, scope, span); ok {
			return id
		}
	}
	model := rec.Model()
	if tokens, ok := rec.Content.Tokens(w.tokens[:0]); ok {
		d := w.domain(semconv.IdentityTokens, "", model)
		w.tokens = tokens
		w.ids = d.hasher.Tokens(w.ids[:0], tokens, w.config.BlockSize)
		return identity{kind: semconv.IdentityTokens, domain: d.name, ids: w.ids, size: w.config.BlockSize}
	}
	if !rec.Content.Present() {
		return identity{kind: semconv.IdentityNone}
	}
	d := w.domain(semconv.IdentityText, "", "")
	id := w.text(d, Prompt(d.hasher, &rec.Content))
	w.addReply(&id, d, &rec.Reply)
	return id
}

// engine converts an engine's blocks to blocks of our size, or keeps them if they are a larger multiple of it.
func (w *worker) engine(rec *genai.Record, scope, span string) (identity, bool) {
	if !rec.Engine.Complete {
		w.counts.Drop(ReasonHashesPartial, 1)
		return identity{}, false
	}
	d := w.domain(semconv.IdentityEngine, scope, rec.Model())
	size := w.config.BlockSize
	if from := rec.Engine.BlockSize; from > size && from <= mooncake.BlockSize && from%size == 0 {
		size = from // finer blocks are not known; the compiler makes the trace's blocks from these
	}
	ids, err := d.hasher.Reblock(w.ids[:0], rec.Engine.Hashes, rec.Engine.BlockSize, size, rec.InputTokens.V, span)
	if err != nil {
		reason := ReasonHashesLength
		if errors.Is(err, blockhash.ErrBlockSize) {
			reason = ReasonHashesBlockSize
		}
		w.counts.Drop(reason, 1)
		return identity{}, false
	}
	w.ids = ids
	return identity{kind: semconv.IdentityEngine, domain: d.name, ids: ids, size: size}, true
}

// text returns the identity of the prompt that has been written to the hasher of a domain.
func (w *worker) text(d *domain, seen Written) identity {
	chain := d.hasher.Chain()
	if len(chain.Cells) > keepCells {
		clear(w.domains) // which also frees the memory of the hasher, after this call
	}
	switch seen.Extent {
	case genai.ExtentNone:
		w.counts.Drop(ReasonPromptTextless, 1)
		return identity{kind: semconv.IdentityNone}
	case genai.ExtentGaps:
		w.counts.Drop(ReasonPromptGaps, 1)
		return identity{kind: semconv.IdentityNone}
	case genai.ExtentCut:
		w.counts.Truncated++
	case genai.ExtentComplete:
	}
	w.cells, _ = chain.AppendBinary(w.cells[:0]) // never fails
	id := identity{kind: semconv.IdentityText, domain: d.name, cells: w.cells, prefix: seen.Extent == genai.ExtentCut, media: seen.MediaEnd}
	if !w.config.OmitMessageEnds {
		chain.Ends = chain.KeptEnds()
		w.ends = chain.AppendEnds(w.ends[:0])
		id.ends = w.ends
	}
	return id
}

// addReply adds the end of the reply to the identity of a whole prompt, which has just been written to the hasher of a domain.
func (w *worker) addReply(id *identity, d *domain, reply *genai.Reply) {
	if !w.takesReply(id) || !reply.Present() {
		return
	}
	end, ok := Reply(d.hasher, reply)
	if !ok {
		w.counts.Drop(ReasonReplyPartial, 1)
		return
	}
	w.reply, _ = end.AppendBinary(w.reply[:0]) // a hasher's value always encodes
	id.reply = w.reply
}

// takesReply reports whether an identity can have a reply: only that of a whole text can.
func (w *worker) takesReply(id *identity) bool {
	return id.kind == semconv.IdentityText && !id.prefix && !w.config.OmitMessageEnds
}

// putIdentity writes an identity to the attributes of a span.
func (w *worker) putIdentity(id identity, attributes pcommon.Map) {
	attributes.RemoveIf(func(name string, _ pcommon.Value) bool { // left by a sender that annotates incompletely
		switch name {
		case semconv.Identity, semconv.HashIDs, semconv.BlockSize, semconv.HashDomain, semconv.HashKey, semconv.Cells,
			semconv.CellsPrefix, semconv.CellsMedia, semconv.CellsEnds, semconv.CellsReply, semconv.HashRanges, semconv.FineBlockSize,
			semconv.Replies, semconv.PromptOrder, semconv.ToolCalls, semconv.ToolResults:
			w.removed(ownPrefix + "*")
			return true
		}
		return false
	})
	attributes.PutStr(semconv.Identity, id.kind)
	if id.domain == "" {
		return
	}
	attributes.PutStr(semconv.HashDomain, id.domain)
	attributes.PutStr(semconv.HashKey, w.fingerprint)
	if id.kind == semconv.IdentityText {
		attributes.PutEmptyBytes(semconv.Cells).FromRaw(id.cells)
		if id.prefix {
			attributes.PutBool(semconv.CellsPrefix, true)
		}
		if id.media > 0 {
			attributes.PutInt(semconv.CellsMedia, id.media)
		}
		if len(id.ends) > 0 {
			attributes.PutEmptyBytes(semconv.CellsEnds).FromRaw(id.ends)
		}
		if len(id.reply) > 0 {
			attributes.PutEmptyBytes(semconv.CellsReply).FromRaw(id.reply)
		}
		return
	}
	attributes.PutInt(semconv.BlockSize, int64(id.size))
	ids := attributes.PutEmptySlice(semconv.HashIDs)
	ids.EnsureCapacity(len(id.ids))
	for _, v := range id.ids {
		ids.AppendEmpty().SetInt(int64(v)) //nolint:gosec // the same 64 bits: OTLP has no unsigned integers
	}
}

// isAnnotated reports whether another receiver has annotated a span or read a log record, or a replay made it.
func isAnnotated(attributes pcommon.Map) bool {
	for name, value := range attributes.All() {
		switch name {
		case semconv.Identity:
			if value.Type() == pcommon.ValueTypeStr && isIdentity(value.Str()) {
				return true
			}
		case semconv.Row:
			if value.Type() == pcommon.ValueTypeInt {
				return true
			}
		}
	}
	return false
}
