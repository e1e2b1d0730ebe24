// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"strconv"

	"github.com/moonloop/moonloop/mooncake"
)

// OutputTokens returns the reply length that a row requests, 0 for none. An extra may override it.
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

// unstatedCap is the limit in the Messages API, which requires one, for rows without an output length. Every known model accepts it.
const unstatedCap = 4096

// booleans are the JSON texts of false and true.
var booleans = map[bool][]byte{false: []byte("false"), true: []byte("true")}

// includeUsage asks for the usage at the end of a stream.
var includeUsage = []byte(`{"include_usage":true}`)

// complete adds the fields that depend on the extras. The reply to generated words has no natural end, so the parameter hold asks the
// engine to enforce its length; the reply to a real text is only limited.
func (b *Builder) complete(body *draft, output int64, hold bool) {
	if b.opt.Endpoint == Generate {
		b.parameters(&body.object, output)
		return
	}
	if b.dialect.streamOptions && string(body.get("stream")) == "true" {
		own := body.get("stream_options")
		options, err := parseObject(own)
		switch {
		case own == nil:
			body.set("stream_options", includeUsage)
		case err == nil && !options.has("include_usage"):
			options.set("include_usage", []byte("true"))
			body.setParts("stream_options", options.parts())
		}
	}
	if output > 0 && !body.has(maxField) && !body.has(maxCompletionField) && !body.has(b.dialect.maxTokens) {
		body.set(b.dialect.maxTokens, body.number(output))
	}
	if b.opt.Endpoint == Messages && b.stated(body.object) == 0 && !body.has(maxField) { // this API requires a limit
		body.set(maxField, body.number(unstatedCap))
	}
	if n := b.stated(body.object); hold && n > 0 && string(body.get("ignore_eos")) != "false" {
		if b.dialect.ignoreEOS && !body.has("ignore_eos") {
			body.set("ignore_eos", booleans[true])
		}
		if b.dialect.minTokens != "" && !body.has(b.dialect.minTokens) {
			body.set(b.dialect.minTokens, body.number(n))
		}
	}
	if b.opt.CacheSalt != "" && !body.has("cache_salt") {
		body.set("cache_salt", quote(nil, b.opt.CacheSalt))
	}
}

// parametersField is the member with the parameters of [Generate] other than the prompt.
const parametersField = "parameters"

// parameters completes the parameters of [Generate]: the limit on the reply, and the request for details, such as the reply's length, at
// its end. No parameter of that API enforces a length. A value that is not an object is sent unchanged, and the engine reports the error.
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

// stated returns the limit on the reply in a body, 0 if there is none.
func (b *Builder) stated(body object) int64 {
	switch b.opt.Endpoint {
	case Embeddings:
		return 0
	case Generate:
		options, _ := parseObject(body.get(parametersField)) // a value that is not an object limits nothing
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
