// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"strings"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
)

// worker does the work of one call, and counts it. Its buffers and values derived from the key are kept for the next call.
type worker struct {
	*Annotator
	counts  Counts
	reader  *genai.Reader
	domains map[domainKey]*domain
	twins   map[string]string // keyed hashes, by session id or tool call
	chain   blockhash.Chain   // its length is that of the text of the span that is being cleaned

	tokens []uint32
	ids    []uint64
	cells  []byte
	ends   []byte
	reply  []byte
	tools  toolIDs // of the current span or log records
}

// The limits of what a worker keeps.
const (
	maxDomains = 64
	maxTwins   = 1024
	keepCells  = 4096 // of one prompt: 512 KiB of text
	keepTokens = 1 << 16
)

// domainKey has the inputs of a domain, except for the hash key.
type domainKey struct{ kind, scope, model string }

// domain is a domain's name, and its hasher.
type domain struct {
	name   string
	hasher *blockhash.Hasher
}

// domain returns a domain, whose hasher is reset for a new prompt. Text has one domain, [blockhash.TextDomain], without scope or model.
func (w *worker) domain(kind, scope, model string) *domain {
	key := domainKey{kind, scope, model}
	d := w.domains[key]
	if d == nil {
		name := blockhash.Domain(kind, w.fingerprint, scope, model)
		hasher, err := blockhash.NewHasher(w.config.Key, name)
		if err != nil {
			panic("annotate: " + err.Error()) // cannot happen, whatever the input: the name is that of a domain
		}
		if len(w.domains) == maxDomains {
			clear(w.domains)
		}
		d = &domain{name, hasher}
		w.domains[domainKey{kind, strings.Clone(scope), strings.Clone(model)}] = d
	}
	d.hasher.Reset()
	return d
}

// twin returns the keyed hash of a session id, or of another id.
func (w *worker) twin(id string) string {
	if len(id) > maxName {
		return w.config.Key.Session(id)
	}
	twin, ok := w.twins[id]
	if !ok {
		if len(w.twins) == maxTwins {
			clear(w.twins)
		}
		twin = w.config.Key.Session(id)
		w.twins[strings.Clone(id)] = twin
	}
	return twin
}

// worker returns a worker for a call; the caller must release it.
func (a *Annotator) worker() *worker {
	w := a.pool.Get().(*worker) //nolint:forcetypeassert // the pool has nothing else
	w.counts = Counts{}
	return w
}

// release returns a worker to the pool, without the telemetry that it has read.
func (w *worker) release() {
	w.reader.Reset()
	w.tokens, w.ids, w.cells = kept(w.tokens), kept(w.ids), kept(w.cells)
	clear(w.tokens[:cap(w.tokens)])
	w.pool.Put(w)
}

// kept returns a buffer for the next call, unless it is huge.
func kept[T any](buffer []T) []T {
	if cap(buffer) > keepTokens {
		return nil
	}
	return buffer
}
