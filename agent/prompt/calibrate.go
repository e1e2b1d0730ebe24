// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/splitmix"
)

// The sizes and ids of the calibration requests. Their ids do not occur in a trace.
const (
	calibrationID    = 1 << 50
	calibrationShort = 16
	calibrationSlope = MostWords // the long request has this many words more: every word at least once
)

// ErrNotStable says that a generated word, or token id, was not exactly one token on the server.
var ErrNotStable = errors.New("the prompt's units are not one token each on this server")

// ErrTurn says that the overhead of a later turn of a chat cannot be determined.
var ErrTurn = errors.New("a later turn of a chat does not have the expected number of tokens on this server")

// Calibration returns the requests whose counted prompt tokens show the overhead of the server's chat template: one of 16 words; one of
// these words and 512 more, which include every word; and, with turns, if prompts are messages, a conversation of three messages of 16
// words. They are not streamed and request one token of output. They include extra inputs, which may change the template, except for those
// about the reply. They do not use the builder's overhead. model is the model to measure; if it is empty, the requests name none.
func (b *Builder) Calibration(model string, turns bool) []send.Request {
	some := part{blocks: &blocks{ids: []uint64{calibrationID}}, n: calibrationShort}
	short := b.turn("user", true, some)
	long := b.turn("user", true, some)
	at := slices.IndexFunc(long, func(p part) bool { return p.raw == nil })
	long = slices.Insert(long, at+1, part{raw: b.every()})
	requests := []send.Request{b.calibration(model, short), b.calibration(model, long)}
	if turns && b.opt.Endpoint.OfMessages() {
		comma := []part{{raw: []byte(",")}}
		reply := b.turn("assistant", true, part{blocks: &blocks{ids: []uint64{calibrationID + 1<<20}}, n: calibrationShort})
		next := b.turn("user", true, part{blocks: &blocks{ids: []uint64{calibrationID + 1<<21}}, n: calibrationShort})
		requests = append(requests, b.calibration(model, slices.Concat(short, comma, reply, comma, next)))
	}
	return requests
}

// VocabularyProbe returns a request whose prompt is the smallest and the greatest of some token ids: an engine with a smaller vocabulary
// refuses it. Otherwise it is like the calibration requests.
func (b *Builder) VocabularyProbe(model string, ids TokenRange) send.Request {
	return b.measuring(model, []part{{raw: fmt.Appendf(nil, "[%d,%d]", ids.First, ids.Last())}})
}

// every returns calibrationSlope units that can follow others, with every word equally often, in an order that depends on the seed.
func (b *Builder) every() []byte {
	a := &b.scheme.alphabet
	var out []byte
	var unit [8]byte
	stride := splitmix.Mix(b.scheme.seed^calibrationID) | 1 // it is odd, and the number of units is a power of two, so it reaches all of them
	for i := range uint64(calibrationSlope) {
		binary.LittleEndian.PutUint64(unit[:], a.all[i*stride%uint64(len(a.all))])
		out = append(out, unit[:a.unit]...)
	}
	if a.ids { // a comma stands between ids
		return append([]byte(","), out[:len(out)-1]...)
	}
	return out
}

// TextProbe returns a request whose prompt is a text, unchanged; see [Builder.Calibration].
func (b *Builder) TextProbe(model, text string) send.Request {
	return b.calibration(model, b.text(text))
}

func (b *Builder) calibration(model string, turn []part) send.Request {
	return b.measuring(model, b.join(nil, nil, turn))
}

// measuring makes a request for a prompt that is not part of the trace.
func (b *Builder) measuring(model string, prompt []part) send.Request {
	body := new(draft)
	if model != "" {
		body.setModel(model)
	}
	body.merge(b.extra)
	body.setParts(b.promptField, prompt)
	body.remove("stream_options", b.dialect.maxTokens, maxField, maxCompletionField, maxOutputField, minField, minNewField, "ignore_eos", "n", "best_of")
	switch b.opt.Endpoint {
	case Embeddings:
	case Generate: // it returns the number of prompt tokens only together with each token
		body.remove("model", parametersField)
		b.parameters(&body.object, 1, "decoder_input_details")
	default:
		body.set("stream", booleans[false])
		b.complete(body, 1, false)
	}
	var p Prompt
	b.finish(&p, body.object)
	p.Request.Path, p.Request.Stream = b.path, false
	return p.Request
}

// Solve returns the overhead from the prompt tokens that the server counted for the first two calibration requests:
// BOS, template, system prompt and anchor. The error wraps [ErrNotStable].
func Solve(p16, p528 int64) (overhead int, err error) {
	if p528-p16 != calibrationSlope {
		return 0, fmt.Errorf("%w: %d of them cost %d tokens; send token ids to the completions endpoint, which need no tokenizer",
			ErrNotStable, calibrationSlope, p528-p16)
	}
	if p16 < calibrationShort {
		return 0, fmt.Errorf("%w: %d of them cost %d tokens; the server may count cached tokens separately, or cut prompts",
			ErrNotStable, calibrationShort, p16)
	}
	return int(p16 - calibrationShort), nil
}

// SolveTurn returns the overhead of a later turn from the prompt tokens of the first and the third calibration request: what the template
// adds around a reply and the next user message, and the anchor of the latter.
func SolveTurn(p16, pTurns int64) (overhead int, err error) {
	// The assistant's message is an anchor and 16 words; a live reply has no anchor.
	o := pTurns - p16 - (calibrationShort + 1) - calibrationShort
	if o < 1 {
		return 0, fmt.Errorf("%w: two more messages of %d words cost %d tokens; the template may drop earlier turns",
			ErrTurn, calibrationShort, pTurns-p16)
	}
	return int(o), nil
}
