// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// HeaderSeq is the reply header with the request's [Record].Seq.
const HeaderSeq = "X-Simulator-Seq"

// exchange is one request on its way through the engine.
type exchange struct {
	engine *Engine
	api    api
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	rec    *Record
	fault  *faultKind // nil: none
	shape  shape      // of the reply
	pacer  pacer
	plan   plan
	format *format
	form   form // that writes the reply
	stream bool
	opened bool   // the reply's headers have been sent
	met    bool   // the fault has taken effect
	buf    []byte // events that have not been sent
	held   int    // chunks of tokens in buf
	unsent int    // tokens in buf
	asked  *request
	chain  *chain   // of the prompt, and then of the reply
	wanted []uint64 // ids of the full blocks of the prompt, and in the end of prompt and reply
	slot   int      // with Cache.Slots: the number of the request's slot, from 1; 0 if it has none
	// planned is the instant of the latest token, by the latency model.
	planned time.Duration
}

// generate serves a generation endpoint and records it, however it ends.
func (e *Engine) generate(a api, w http.ResponseWriter, r *http.Request) {
	headers := e.now()
	conn := connOf(r.Context())
	rec := &Record{
		Seq: e.seq.Add(1), Conn: conn.number, Path: r.URL.Path, Proto: r.Proto, Header: make(Header),
		Authorized: r.Header.Get("Authorization")+r.Header.Get("X-Api-Key") != "", Time: e.start.Add(headers),
		ConnAccepted: conn.accepted, Headers: headers, Received: Never, BodyRead: Never, Admitted: Never, PrefillDone: Never, Ended: Never,
		Request: Facts{MaxTokens: Absent, MinTokens: Absent},
	}
	for _, name := range e.config.Record.Headers {
		if v := r.Header.Values(name); len(v) > 0 {
			rec.Header[name] = v
		}
	}
	x := &exchange{engine: e, api: a, w: w, r: r, rc: http.NewResponseController(w), rec: rec}
	w.Header().Set(HeaderSeq, strconv.FormatUint(rec.Seq, 10))

	ctx, cancel := context.WithCancel(r.Context())
	x.pacer = pacer{ctx: ctx, now: e.now}
	unblocked := make(chan struct{})
	stop := context.AfterFunc(e.closing, func() {
		defer close(unblocked)
		cancel()
		// A handler that blocks in a read or a write does not see the context. A connection without deadlines, such as a test's recorder,
		// does not block.
		_ = x.rc.SetReadDeadline(time.Now())
		_ = x.rc.SetWriteDeadline(time.Now())
	})
	err := x.serve()
	if !stop() {
		<-unblocked // it must not touch the connection once the handler has returned
	}
	cancel()
	x.end(err)
	e.log.add(rec)
	e.metric.observe(rec)
	e.count.add(rec)
	if errors.Is(err, errAbort) {
		panic(http.ErrAbortHandler) // net/http's way to drop a connection
	}
}

// serve does the work in the order of the latency model. Its error says why the reply is not complete.
func (x *exchange) serve() error {
	e := x.engine
	if err := x.read(); err != nil {
		return err
	}
	if x.fault != nil && x.fault.refuse != nil {
		x.met = true
		return x.fault.refuse
	}
	if x.stream {
		if err := x.greet(); err != nil {
			return err
		}
	}
	admitted, err := e.queue.acquire(x.pacer.ctx, e.now)
	if err != nil {
		if errors.Is(err, errFull) {
			return &apiError{status: http.StatusTooManyRequests, kind: "rate_limit_error", code: "queue_full", message: "too many requests wait already"}
		}
		return err
	}
	// The place is free from now, not from the planned end: a client that reads slowly delays the writes, and
	// the next request must not start in the past.
	defer func() { e.queue.release(e.now()) }()
	x.rec.Admitted = e.now()
	defer x.commitReply() // before the next request is admitted
	if x.stream && x.api == responses {
		x.buf = x.form.role(x.buf)
		if err := x.write(); err != nil {
			return err
		}
	}
	if err := x.prefill(admitted); err != nil {
		return err
	}
	e.decoding.Add(1)
	defer e.decoding.Add(-1)
	if err := x.decode(); err != nil {
		return err
	}
	if x.stream {
		x.buf = x.form.finish(x.buf)
	} else {
		x.buf, x.unsent = x.form.whole(), x.plan.tokens
	}
	if err := x.write(); err != nil {
		return err
	}
	x.rec.FinishReason = x.plan.finish
	if x.shape.closes || x.stream && e.config.Like == LikeLlamaCPP {
		e.closeWhenIdle(x.r.Context())
	}
	return nil
}

// greet writes what is sent before the request waits or is prefilled. It has no token.
func (x *exchange) greet() error {
	if x.shape.comment {
		x.buf = append(x.buf, ":\n\n"...)
	}
	if x.api == chat && (x.engine.config.RoleChunk == RoleImmediately || x.shape.earlyRole) {
		x.buf = x.form.role(x.buf)
	}
	if len(x.buf) == 0 {
		return nil
	}
	return x.write()
}

// read reads the body and prepares everything that follows from it, and then releases the body.
func (x *exchange) read() error {
	e := x.engine
	fault, unknown := e.config.fault(x.rec.Seq, x.r.Header)
	if fault != nil {
		x.fault, x.shape, x.rec.Fault = fault, fault.shape, fault.name
	}
	if x.shape.slowAccept {
		if err := x.delay(); err != nil {
			return err
		}
	}
	buf := bodies.Get().(*[]byte)
	body, err := e.readBody(x.w, x.r, x.rc, (*buf)[:0])
	defer func() {
		if cap(body) <= maxPooledBody {
			*buf = body
			bodies.Put(buf)
		}
	}()
	x.rec.BytesIn = int64(len(body))
	if err != nil {
		return err
	}
	x.rec.BodyRead = e.now()
	x.rec.Received = e.received(x.r)
	if e.config.Record.Bodies {
		x.rec.Body = append([]byte(nil), body...)
	}
	if unknown != nil {
		return unknown
	}
	q, refusal := parseRequest(x.api, e.config.Like, body)
	if q != nil && x.api == generate { // this API serves one model, and the path says whether the reply is a stream
		q.facts.Model, q.facts.Stream = e.modelNames()[0], x.r.URL.Path == pathGenerateStream
		refusal = q.check(x.api)
	}
	if q != nil {
		defer func() {
			x.rec.Request = q.facts
			x.rec.Request.Model = cut(q.facts.Model, maxName)
		}()
	}
	if refusal != nil {
		return refusal
	}
	return x.prepare(q)
}

// prepare tokenises the prompt and plans the reply.
func (x *exchange) prepare(q *request) error {
	c := &x.engine.config
	if len(c.Models) > 0 && !slices.Contains(c.Models, q.facts.Model) {
		return &apiError{status: http.StatusNotFound, kind: "invalid_request_error", param: "model", code: "model_not_found", message: "this model is not served: see /v1/models"}
	}
	x.stream = q.facts.Stream
	chain := newChain(c.Cache.BlockSize, c.Tokenizer)
	chain.keep = q.returnIDs
	if refusal := q.render(x.api, chain, *c.Template); refusal != nil {
		return refusal
	}
	hash := chain.sum()
	x.rec.PromptTokens, x.rec.PromptHash = chain.tokens, Hash(hash)
	x.asked, x.chain, x.wanted = q, chain, chain.blocks
	salted(x.wanted, q.facts.Model, q.cacheSalt)
	if c.Record.Blocks {
		x.rec.Blocks = make([]Hash, len(x.wanted))
		for i, id := range x.wanted {
			x.rec.Blocks[i] = Hash(id)
		}
	}
	if x.plan = c.plan(q, hash, x.r.Header); x.api == embeddings {
		x.plan = plan{key: x.plan.key}
	}
	x.shape.change(&x.plan, x.api)
	asked := max(q.facts.MaxTokens, x.plan.tokens)
	if limit := c.MaxModelLen; limit > 0 && chain.tokens+asked > limit {
		refusal := badRequest("messages", "the context length is %d tokens: the prompt has %d and the reply asks for %d", limit, chain.tokens, asked)
		refusal.code = "context_length_exceeded"
		return refusal
	}
	x.format = newFormat(x, q, splitmix.Next(c.Seed^x.rec.Seq<<1))
	x.form = x.format
	switch x.api {
	case messages:
		x.form = messagesFormat{x.format}
	case responses:
		x.form = responsesFormat{x.format}
	case generate:
		x.form = generateFormat{x.format}
		if !x.stream {
			x.w.Header().Set("X-Prompt-Tokens", strconv.Itoa(x.format.promptTokens))
		}
	case embeddings:
		x.form = embeddingsFormat{x.format}
	default:
	}
	return nil
}

// prefill looks the prompt up in the cache, and waits until the first token of the reply is due.
func (x *exchange) prefill(admitted time.Duration) error {
	e := x.engine
	x.rec.CachedTokens = x.lookup()
	x.format.cachedTokens = x.rec.CachedTokens
	start := admitted
	if e.config.Latency.SerialPrefill {
		free, err := e.lane.acquire(x.pacer.ctx, e.now)
		if err != nil {
			return err
		}
		// A lane that was handed over is free from the planned end of the prefill before it, so that delays do not add up.
		start = max(start, free)
	}
	x.planned = start + e.config.Latency.prefill(x.rec.PromptTokens-x.rec.CachedTokens)
	err := x.pacer.until(x.planned)
	if e.config.Latency.SerialPrefill {
		over := x.planned
		if err != nil {
			over = e.now()
		}
		e.lane.release(over)
	}
	if err != nil {
		return err
	}
	x.rec.PrefillDone = e.now()
	if c := &e.config.Cache; c.CommitAfterPrefill && !c.Disabled && e.slots == nil {
		e.cache.commit(x.wanted)
	}
	return nil
}

// commitReply leaves in the cache what the request has computed beyond its prompt, and gives its slot back.
func (x *exchange) commitReply() {
	c := &x.engine.config.Cache
	if fed := x.rec.OutputTokens - 1; c.Replies && !c.Disabled && x.rec.PrefillDone != Never {
		for i := range fed {
			x.plan.tokenIDs(i, &x.chain.tokenizer, x.chain.add)
		}
		fresh := x.chain.blocks[len(x.wanted):]
		salted(fresh, x.asked.facts.Model, x.asked.cacheSalt)
		x.wanted = x.chain.blocks
		if x.slot == 0 && len(fresh) > 0 {
			x.engine.cache.commit(x.wanted)
		}
	}
	if x.slot > 0 {
		x.engine.slots.release(x.slot-1, x.wanted)
	}
}

// lookup returns the number of prompt tokens that the cache serves.
func (x *exchange) lookup() int {
	c := &x.engine.config.Cache
	var k int
	switch {
	case c.Disabled:
	case x.engine.slots != nil:
		x.slot, k = x.engine.slots.acquire(x.wanted)
		x.slot++
	case c.CommitAfterPrefill:
		k = x.engine.cache.lookup(x.wanted)
	default:
		k = x.engine.cache.admit(x.wanted)
	}
	if c.RecomputeLast {
		k = min(k, (x.rec.PromptTokens-1)/c.BlockSize)
	}
	return k * c.BlockSize
}

// decode makes the tokens one chunk after the other, each at its planned instant.
func (x *exchange) decode() error {
	e := x.engine
	breakAt := -1
	if x.fault != nil && x.fault.mid != nil {
		breakAt = e.config.Faults.position(x.plan.tokens)
	}
	if x.stream && !e.config.Record.NoWrites {
		x.rec.Writes = slices.Grow(x.rec.Writes, x.chunks()+1) // and the finish reason
	}
	for from, to := 0, 1; from < x.plan.tokens; from, to = to, to+min(x.tokensPerChunk(), x.plan.tokens-to) {
		if from == breakAt {
			if err := x.meetFault(); err != nil {
				return err
			}
		}
		if from < breakAt {
			to = min(to, breakAt) // a stream breaks after exactly that many tokens
		}
		if from > 0 { // the first token came with the prefill
			x.planned += time.Duration(to-from) * e.config.Latency.step(int(e.decoding.Load()))
		}
		if err := x.pacer.until(x.planned); err != nil {
			return err
		}
		if err := x.emit(from, to); err != nil {
			return err
		}
	}
	if breakAt == x.plan.tokens {
		return x.meetFault()
	}
	return nil
}

// tokensPerChunk returns the number of tokens of each chunk after the first.
func (x *exchange) tokensPerChunk() int { return max(x.engine.config.TokensPerChunk, x.shape.tokens) }

// chunks returns the number of chunks of the planned reply, at most what is worth reserving.
func (x *exchange) chunks() int {
	n := 1
	if rest := x.plan.tokens - 1; rest > 0 {
		n += 1 + (rest-1)/x.tokensPerChunk()
	}
	return min(n, maxReserved)
}

const maxReserved = 4096 // writes

func (x *exchange) meetFault() error {
	x.met = true
	return x.fault.mid(x)
}

// emit writes one chunk of tokens, or, when the reply is not a stream, counts them.
func (x *exchange) emit(from, to int) error {
	if !x.stream {
		x.rec.OutputTokens = to
		return nil
	}
	if from == 0 {
		if x.api.ofMessages() && !x.format.begun {
			x.buf = x.form.role(x.buf)
		}
		if x.plan.tool != "" {
			x.buf = x.form.call(x.buf)
		}
	}
	x.buf = x.form.tokens(x.buf, from, to)
	x.unsent += to - from
	if x.held++; x.held < x.shape.chunks && to < x.plan.tokens {
		return nil
	}
	return x.write()
}

// write sends what is in the buffer. The stamp is taken just before, so it is never later than the bytes.
func (x *exchange) write() error {
	body := x.buf
	if x.stream && x.shape.frame != (frame{}) {
		body = x.shape.frame.apply(x.buf, !x.opened)
	}
	if !x.opened {
		x.open()
	}
	tokens := x.unsent
	if !x.engine.config.Record.NoWrites {
		x.rec.Writes = append(x.rec.Writes, Write{At: x.engine.now(), Tokens: tokens})
	}
	for p := range slices.Chunk(body, cmp.Or(x.shape.piece, len(body), 1)) {
		n, err := x.w.Write(p)
		x.rec.BytesOut += int64(n)
		if err == nil {
			err = x.rc.Flush()
		}
		if err != nil {
			return err
		}
	}
	x.buf, x.held, x.unsent = x.buf[:0], 0, 0
	if x.stream {
		x.rec.OutputTokens += tokens
	}
	return nil
}

// open writes the head of a reply that is a success.
func (x *exchange) open() {
	x.opened = true
	x.rec.Status = http.StatusOK
	h := x.w.Header()
	if x.stream {
		h.Set("Content-Type", cmp.Or(x.shape.media, mediaEvents))
		h.Set("Cache-Control", "no-cache")
	} else {
		h.Set("Content-Type", mediaJSON)
		h.Set("Content-Length", strconv.Itoa(len(x.buf)))
	}
	x.met = x.met || x.shape != (shape{})
}

// end writes what the reply still needs and completes the record.
func (x *exchange) end(err error) {
	rec := x.rec
	var refusal *apiError
	switch {
	case err == nil:
		rec.Outcome = Finished
	case errors.As(err, &refusal):
		rec.Outcome = Rejected
		rec.Error = refusal.message
		if x.opened { // only a role has been sent: the queue was full
			x.buf = x.form.failure(x.buf[:0], refusal)
			_ = x.write() // the outcome is the same if the client has gone
		} else {
			if x.stream && x.engine.config.ErrorsInStream && refusal.late && (x.api == chat || x.api == completions) {
				refusal = refusal.inStream()
			}
			switch x.api {
			case messages:
				refusal = refusal.inMessages()
			case generate:
				refusal = refusal.inGenerate()
			default:
			}
			if refusal.retry {
				seconds := (x.engine.config.Faults.RetryAfter + time.Second - 1) / time.Second
				x.w.Header().Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
			}
			rec.Status = refusal.status
			rec.BytesOut += int64(refusal.write(x.w))
		}
	case errors.Is(err, errAbort), errors.Is(err, errBroken): // by a fault
	case x.engine.closing.Err() != nil:
		rec.Outcome = Closed
	default:
		rec.Outcome = ClientGone
	}
	if x.met && rec.Outcome != ClientGone && rec.Outcome != Closed {
		rec.Outcome = Faulted
	}
	rec.Ended = x.engine.now()
}
