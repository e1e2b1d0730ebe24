// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

// This file writes the hashed ids of tool calls, which show which request follows which. Without the key, a hash only shows whether two ids
// are equal.

import (
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// toolIDs are hashed ids of tool calls: made are the calls in the reply of a request, and given those whose results end its prompt. For the
// run of a tool, given is the call that the tool answers.
type toolIDs struct{ made, given []uint64 }

// readTools finds the ids of a span.
func (w *worker) readTools(rec *genai.Record) {
	rec.ReadTools()
	w.tools = toolIDs{w.tools.made[:0], w.tools.given[:0]}
	w.tools.add(w, &rec.Tools)
}

// add adds the ids of a record whose content has been walked. The results in earlier records of the same
// prompt end the prompt only if this record has no message of the assistant.
func (ids *toolIDs) add(w *worker, tools *genai.ToolIDs) {
	if tools.Spoke {
		ids.given = ids.given[:0]
	}
	ids.made, ids.given = w.hashed(ids.made, tools.Made), w.hashed(ids.given, tools.Given)
	w.counts.Drop(ReasonToolIDs, tools.SurplusMade+tools.SurplusGiven)
}

// logTools finds the ids of the calls in the replies of log records.
func (w *worker) logTools(p *logPrompt) {
	for _, r := range p.replies {
		rec := w.reader.Log(r.scope, r.log)
		rec.ReadTools()
		w.tools.add(w, &rec.Tools)
	}
}

// hashed appends the hashes of ids; if there are too many, it keeps the last ones.
func (w *worker) hashed(to []uint64, ids []string) []uint64 {
	for _, id := range ids {
		h, _ := strconv.ParseUint(w.twin("moonloop tool call\x00"+id), 16, 64) // cannot fail: a twin is 16 hexadecimal digits
		to = append(to, h)
	}
	if surplus := len(to) - genai.MaxToolIDs; surplus > 0 {
		w.counts.Drop(ReasonToolIDs, int64(surplus))
		to = append(to[:0], to[surplus:]...)
	}
	return to
}

// empty reports whether there are no ids.
func (ids *toolIDs) empty() bool { return len(ids.made)+len(ids.given) == 0 }

// put writes the ids, unless the span has them: a receiver before this one may have written those of a tool's run.
func (ids *toolIDs) put(attributes pcommon.Map) {
	put := func(name string, hashes []uint64) {
		if _, there := attributes.Get(name); len(hashes) == 0 || there {
			return
		}
		list := attributes.PutEmptySlice(name)
		list.EnsureCapacity(len(hashes))
		for _, h := range hashes {
			list.AppendEmpty().SetInt(int64(h)) //nolint:gosec // the same 64 bits: OTLP has no unsigned integers
		}
	}
	put(semconv.ToolCalls, ids.made)
	put(semconv.ToolResults, ids.given)
}
