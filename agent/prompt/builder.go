// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// MaxPromptTokens is the maximum length of a row's prompt.
const MaxPromptTokens = 1 << 32

// ErrRow is wrapped by every error about a row that cannot become a request with these options.
var ErrRow = errors.New("row cannot be sent")

// Prompt is a row as a request.
type Prompt struct {
	// Request is the request to send, without headers. It is zero if Skip is set.
	Request send.Request
	// Tokens is the number of prompt tokens that the server should count, including overhead: the row's input length, unless TooShort. It
	// is 0 if unknown: for text, messages and payloads, for bodies whose prompt an extra replaced, and for later turns of a session,
	// because only the server counts their earlier replies.
	Tokens int64
	// Added is the number of words or token ids that were generated for this row.
	Added int64
	// OutputTokens is the limit on the reply in the body; 0 if there is none.
	OutputTokens int64

	// Model is the model in the body; empty if there is none.
	Model string
	// Priority is the priority in the body; absent if there is none.
	Priority mooncake.Opt[int64]
	// Assumed is set if another model's overhead was assumed, because this model's was not measured.
	Assumed bool
	// TooShort is set if the overhead alone is longer than the row; Skip if the row must therefore not be sent.
	TooShort, Skip bool
	// TailCut is set if the row's whole last block had to make room for the overhead. This request, or one that
	// shares the block before it, may hit fewer tokens than in the row, by up to the overhead.
	TailCut bool
	// Carried is the number of prompt tokens in live replies, Invented that in invented words instead of replies. NoRoom is set if the row
	// has replies but no room for its messages: the whole prompt was invented, in one message.
	Carried, Invented int64
	NoRoom            bool

	// turn is what a session remembers of the row; nil for rows that are complete by themselves.
	turn     []part
	system   []byte // the text of a row's system messages, if the endpoint has a separate field for it
	endpoint Endpoint
}

// Builder makes requests from rows. It has no state between rows and may be used by any number of goroutines: the same options, index, row
// and history give the same bytes in every process.
type Builder struct {
	opt     Options // with the defaults filled in
	scheme  scheme
	dialect dialect
	extra   object
	model   string // for every row, unless it is empty

	gallery *gallery
	done    <-chan struct{} // see Until

	path        string
	api         send.API
	promptField string // the member of a body that has the prompt
}

// Options returns the builder's options, with defaults filled in.
func (b *Builder) Options() Options { return b.opt }

// Model returns the model that a row requests: the one for every row if there is one, else its own, else the default. A payload, or the
// row's extra, may override it; see Prompt.Model.
func (b *Builder) Model(row *mooncake.Row) string {
	return cmp.Or(b.model, row.Model, b.opt.DefaultModel)
}

// NewBuilder checks the options. Its error lists everything that is wrong with them.
func NewBuilder(o Options) (*Builder, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	b := &Builder{path: "/v1/chat/completions", promptField: "messages", gallery: new(gallery)}
	switch o.Endpoint {
	case Completions:
		b.path, b.promptField = "/v1/completions", "prompt"
	case Responses:
		b.path, b.promptField = "/v1/responses", "input"
	case Messages:
		b.path, b.api = "/v1/messages", send.Messages
	case Embeddings:
		b.path, b.promptField, b.api = "/v1/embeddings", "input", send.Embeddings
	case Generate:
		b.path, b.promptField, b.api = "/generate", "inputs", send.Generate
	case Chat:
	}
	b.scheme = scheme{alphabet: o.alphabet(), seed: o.Seed, block: o.BlockSize, fine: o.FineBlockSize, text: o.Text}
	if o.Form == Words {
		o.Overhead = max(AnchorTokens, o.Overhead)
	}
	o.TurnOverhead = max(AnchorTokens, o.TurnOverhead)
	o.Measured = maps.Clone(o.Measured)
	for model, over := range o.Measured {
		o.Measured[model] = Overhead{max(AnchorTokens, over.Prompt), max(AnchorTokens, over.Turn)}
	}
	b.opt = o
	b.dialect, _ = o.dialect()
	b.extra, _ = parseObject(oneLine(jsontext.Value(o.ExtraInputs)))
	b.model = o.Model
	if name := unquoted(b.extra.get("model")); name != "" {
		b.model = name
	}
	return b, nil
}

// Build makes the request of a row. The index is the row's position in its trace, from 0 and below 2^32; tokens without a hash id are
// derived from it. The row must not change while the prompt or a history is in use.
//
// A history is given for the turns of a delta session, else it is nil. Rows that are complete by themselves (payloads, and messages that
// are not deltas) ignore it.
//
// The error wraps [ErrRow] or [ErrHistoryFull].
func (b *Builder) Build(index int64, row *mooncake.Row, history *History) (Prompt, error) {
	return b.build(index, row, history, Live{})
}

func (b *Builder) build(index int64, row *mooncake.Row, history *History, live Live) (p Prompt, err error) {
	defer func() {
		if err != nil {
			p, err = Prompt{}, fmt.Errorf("row %d: %w", index, err)
		}
	}()
	extra, err := parseObject(row.Extra)
	if err != nil {
		return p, fmt.Errorf("%w: extra: %w", ErrRow, err)
	}
	kind := row.Kind()
	if kind == mooncake.KindPayload {
		return b.payload(row, extra)
	}
	whole := kind == mooncake.KindMessages && row.MessageMode != "delta"
	if whole {
		history = nil
	}
	past := cmp.Or(history, new(History))
	replaced := b.extra.has(b.promptField) || extra.has(b.promptField)
	images := len(row.Images)
	if images == 0 && kind <= mooncake.KindText {
		images = b.opt.Images.Each
	}
	switch {
	case past.full():
		return p, ErrHistoryFull
	case history != nil && b.opt.Endpoint == Embeddings:
		return p, fmt.Errorf("%w: a delta session carries replies, and an embedding has none", ErrRow)
	case replaced && history != nil:
		return p, fmt.Errorf("%w: extra replaces %q, which a delta session builds from its turns", ErrRow, b.promptField)
	case b.scheme.ids && len(past.parts) > 0:
		return p, fmt.Errorf("%w: a delta session carries replies, which are text, not token ids: send words", ErrRow)
	case images > 0 && !b.opt.Endpoint.OfMessages():
		return p, fmt.Errorf("%w: images go to the endpoints chat, responses and messages only", ErrRow)
	}
	var turn []part
	if !replaced { // else merge sets the prompt
		if turn, err = b.ownTurn(index, row, images, len(past.parts) > 0, live.Replies, &p); err != nil || p.Skip {
			return p, err
		}
	}
	body := drafts.Get().(*draft)                                         // the pool has nothing else
	if model := b.Model(row); model != "" && b.opt.Endpoint != Generate { // such an engine serves one model, which has no name
		body.setModel(model)
	}
	switch {
	case replaced:
	case whole && b.opt.Endpoint != Messages && b.opt.Endpoint != Responses: // these have other forms
		body.set(b.promptField, row.Messages)
	default:
		body.prompt = b.join(body.prompt, past.parts, turn)
		body.setParts(b.promptField, body.prompt)
	}
	if err := b.setTools(&body.object, row, past, p.system); err != nil {
		return p, err
	}
	if b.opt.Endpoint != Embeddings && b.opt.Endpoint != Generate {
		body.set("stream", booleans[b.opt.Stream])
	}
	if n := b.Priority(row); n.Set {
		body.set(priorityField, body.number(n.V))
	}
	body.merge(b.extra)
	body.merge(extra)
	b.complete(body, b.OutputTokens(row), kind == mooncake.KindLength && !replaced)
	if live.Keep && b.scheme.ids && b.dialect.returnsIDs && !body.has(returnField) {
		body.set(returnField, []byte("true"))
	}
	b.finish(&p, body.object)
	body.free()
	if b.opt.Endpoint == Generate {
		p.Model = b.Model(row)
	}
	p.Request.KeepReply = live.Keep
	if history != nil {
		p.turn, p.endpoint, p.Request.KeepReply = turn, b.opt.Endpoint, true
	}
	return p, nil
}

// ownTurn returns the parts of a row's own turn.
func (b *Builder) ownTurn(index int64, row *mooncake.Row, images int, follows bool, replies []Reply, p *Prompt) (turn []part, err error) {
	switch kind := row.Kind(); {
	case kind == mooncake.KindMessages && b.opt.Endpoint == Messages:
		turn, p.system, err = blocksOf(row.Messages)
	case kind == mooncake.KindMessages && b.opt.Endpoint == Responses:
		turn, err = itemsOf(row.Messages)
	case kind == mooncake.KindMessages:
		turn, err = b.messages(row)
	case kind == mooncake.KindText:
		turn = b.text(row.TextInput.V)
	default:
		turn, err = b.generated(index, row, images, follows, replies, p)
	}
	if images > 0 && err == nil && !p.Skip {
		made, err := b.images(index, row)
		if err != nil {
			return nil, err
		}
		turn = b.withImages(turn, made)
		if b.opt.Images.Tokens == 0 {
			p.Tokens = 0
		}
	}
	return turn, err
}

// setTools sets the tools and the system prompt: those of this row, else those of the session's last turn that had any.
func (b *Builder) setTools(body *object, row *mooncake.Row, past *History, system []byte) (err error) {
	tools := past.tools
	if row.Tools != nil {
		tools = row.Tools
	}
	switch b.opt.Endpoint {
	case Messages:
		tools, err = toolsOf(tools)
	case Responses:
		tools, err = functionsOf(tools)
	default:
	}
	if system == nil {
		system = past.system
	}
	if system != nil {
		body.set("system", system)
	}
	if tools != nil && err == nil {
		body.set("tools", tools)
	}
	return err
}

// payload makes the request of a row with a whole body. It is sent byte for byte, whatever the options for model, stream and lengths,
// unless the row's own extra changes it.
func (b *Builder) payload(row *mooncake.Row, extra object) (p Prompt, err error) {
	body, err := parseObject(row.Payload)
	if err == nil && body == nil {
		err = errors.New("an empty object")
	}
	if err != nil {
		return p, fmt.Errorf("%w: payload: %w", ErrRow, err)
	}
	body.merge(extra)
	b.finish(&p, body)
	if extra == nil {
		p.Request.Body = newBody(&b.scheme, []part{{raw: row.Payload}})
	}
	return p, nil
}

// finish makes a request from a body.
func (b *Builder) finish(p *Prompt, body object) {
	path, stream := b.path, string(body.get("stream")) == "true"
	switch b.opt.Endpoint {
	case Embeddings:
		stream = false
	case Generate: // here the path selects streaming, not the body
		if stream = b.opt.Stream; stream {
			path += "_stream"
		}
	default:
	}
	p.OutputTokens = b.stated(body)
	p.Model = unquoted(body.get("model"))
	p.Priority = statedPriority(body)
	p.Request = send.Request{
		Path:         path,
		API:          b.api,
		Body:         newBody(&b.scheme, body.parts()),
		Stream:       stream,
		ExpectTokens: int(p.OutputTokens),
	}
}
