// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"strconv"

	"github.com/moonloop/moonloop/mooncake"
)

// OutputTokens returns the reply length that a row asks for, 0 for none. An extra may say otherwise.
func (b *Builder) OutputTokens(row *mooncake.Row) int64 {
	if b.opt.Endpoint == Embeddings {
		return 0
	}
	n := row.OutputLength.Or(int64(b.opt.DefaultOutput))
	if !row.OutputLength.Set && n == 0 {
		return 0
	}
	n = max(1, n) // engines refuse 0
	if b.opt.OutputCap > 0 {
		n = min(n, int64(b.opt.OutputCap))
	}
	return n
}

// unstatedCap is what the Messages API, which takes no request without a cap, is told for rows that have no output length. Every
// model there is can do that much.
const unstatedCap = 4096

// complete adds the fields that depend on what the extras have said. The length of a reply to generated words means
// nothing by itself, so hold asks the engine to keep it; that of a reply to a real text is only capped.
func (b *Builder) complete(body *object, output int64, hold bool) {
	if b.opt.Endpoint == Generate {
		b.parameters(body, output)
		return
	}
	if b.dialect.streamOptions && string(body.get("stream")) == "true" {
		options, err := parseObject(body.get("stream_options"))
		if err == nil && !options.has("include_usage") {
			options.set("include_usage", []byte("true"))
			body.setParts("stream_options", options.parts())
		}
	}
	if output > 0 && !body.has(maxField) && !body.has(maxCompletionField) && !body.has(b.dialect.maxTokens) {
		body.set(b.dialect.maxTokens, strconv.AppendInt(nil, output, 10))
	}
	if b.opt.Endpoint == Messages && b.stated(*body) == 0 && !body.has(maxField) { // which has no other end
		body.set(maxField, strconv.AppendInt(nil, unstatedCap, 10))
	}
	if n := b.stated(*body); hold && n > 0 && string(body.get("ignore_eos")) != "false" {
		if b.dialect.ignoreEOS && !body.has("ignore_eos") {
			body.set("ignore_eos", []byte("true"))
		}
		if b.dialect.minTokens != "" && !body.has(b.dialect.minTokens) {
			body.set(b.dialect.minTokens, strconv.AppendInt(nil, n, 10))
		}
	}
	if b.opt.CacheSalt != "" && !body.has("cache_salt") {
		body.set("cache_salt", quote(nil, b.opt.CacheSalt))
	}
}

// parametersField holds what [Generate] is told beside the prompt.
const parametersField = "parameters"

// parameters completes those of [Generate]: the cap on the reply, and that its end is to say how long it was. Nothing there holds a
// reply to its length. What is no object goes out as it is, and the engine says so.
func (b *Builder) parameters(body *object, output int64, more ...string) {
	options, err := parseObject(body.get(parametersField))
	if err != nil {
		return
	}
	for _, name := range append(more, "details") {
		if !options.has(name) {
			options.set(name, []byte("true"))
		}
	}
	if output > 0 && !options.has(b.dialect.maxTokens) {
		options.set(b.dialect.maxTokens, strconv.AppendInt(nil, output, 10))
	}
	body.setParts(parametersField, options.parts())
}

// stated returns the cap on the reply that a body states, 0 when it states none.
func (b *Builder) stated(body object) int64 {
	switch b.opt.Endpoint {
	case Embeddings:
		return 0
	case Generate:
		options, _ := parseObject(body.get(parametersField)) // what is no object caps nothing
		return options.integer(b.dialect.maxTokens)
	default:
	}
	for _, name := range []string{b.dialect.maxTokens, maxCompletionField, maxField, maxOutputField} {
		if n := body.integer(name); n > 0 {
			return n
		}
	}
	return 0
}
