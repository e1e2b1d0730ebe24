// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"errors"
	"fmt"

	"github.com/moonloop/moonloop/agent/send"
)

// The calibration requests and what they hold. Their ids lie where those of a trace do not.
const (
	calibrationID    = 1 << 50
	calibrationShort = 16
	calibrationLong  = 528 // one full block of 512 and a part of the next
	calibrationSlope = calibrationLong - calibrationShort
)

// ErrNotStable says that a generated word, or token id, did not cost the server exactly one token.
var ErrNotStable = errors.New("the prompt's units are not one token each on this server")

// Calibration returns the requests whose counted prompt tokens tell the overhead of the server's chat template: 16
// words, 528 words and, with turns, on the chat endpoint, a conversation of three messages of 16. They are not
// streamed and ask for one token of output. Extra inputs are in them, as they may change the template; those that
// concern the reply are not. The builder's own overhead has no part in them. model is the model to measure; empty asks for
// none.
func (b *Builder) Calibration(model string, turns bool) []send.Request {
	short := b.turn("user", true, part{blocks: blocks{ids: []uint64{calibrationID}}, n: calibrationShort})
	long := part{n: calibrationLong}
	for id := uint64(calibrationID + 1); len(long.ids)*b.opt.BlockSize < calibrationLong; id++ {
		long.ids = append(long.ids, id)
	}
	requests := []send.Request{b.calibration(model, short), b.calibration(model, b.turn("user", true, long))}
	if turns && b.opt.Endpoint == Chat {
		comma := part{raw: []byte(",")}
		three := append(append([]part{}, short...), comma)
		three = append(append(three, b.turn("assistant", true, part{blocks: blocks{ids: []uint64{calibrationID + 1<<20}}, n: calibrationShort})...), comma)
		three = append(three, b.turn("user", true, part{blocks: blocks{ids: []uint64{calibrationID + 1<<21}}, n: calibrationShort})...)
		requests = append(requests, b.calibration(model, three))
	}
	return requests
}

// VocabularyProbe returns a request whose prompt is the smallest and the greatest of the token ids that prompts are made of: an
// engine whose vocabulary has fewer refuses it. It is like the calibration requests otherwise.
func (b *Builder) VocabularyProbe(model string) send.Request {
	return b.measuring(model, []part{{raw: fmt.Appendf(nil, "[%d,%d]", firstToken, LastToken)}})
}

func (b *Builder) calibration(model string, turn []part) send.Request {
	return b.measuring(model, b.join(nil, turn))
}

// measuring makes a request of a prompt that is not part of the trace.
func (b *Builder) measuring(model string, prompt []part) send.Request {
	var body object
	if model != "" {
		body.set("model", quote(nil, model))
	}
	body.merge(b.extra)
	body.setParts(b.promptField, prompt)
	body.remove("stream_options", maxField, maxCompletionField, minField, minNewField, "ignore_eos", "n", "best_of")
	body.set("stream", []byte("false"))
	body.set(b.dialect.maxTokens, []byte("1"))
	if b.opt.CacheSalt != "" && !body.has("cache_salt") {
		body.set("cache_salt", quote(nil, b.opt.CacheSalt))
	}
	var p Prompt
	b.finish(&p, body)
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
		return 0, fmt.Errorf("%w: %d of them cost %d tokens; the server may count cached tokens apart or cut prompts",
			ErrNotStable, calibrationShort, p16)
	}
	return int(p16 - calibrationShort), nil
}

// SolveTurn returns the overhead of a later turn from the prompt tokens of the first and the third calibration
// request: what the template puts around a reply and the user message after it, and the anchor of the latter.
func SolveTurn(p16, pTurns int64) (overhead int, err error) {
	// The assistant's message is an anchor and 16 words; a live reply has no anchor.
	o := pTurns - p16 - (calibrationShort + 1) - calibrationShort
	if o < 1 {
		return 0, fmt.Errorf("%w: two more messages of %d cost %d tokens; the template may drop earlier turns",
			ErrNotStable, calibrationShort, pTurns-p16)
	}
	return int(o), nil
}
