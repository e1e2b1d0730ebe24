// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/internal/bearer"
	"github.com/moonloop/moonloop/internal/kernelstamp"
)

// Engine is a simulated inference engine. Make one with [New]. It is safe for concurrent use.
type Engine struct {
	config Config
	start  time.Time // zero of its clock, with the monotonic reading
	wall   *kernelstamp.Wall
	mux    *http.ServeMux
	key    bearer.Key // that Config.APIKey requires
	cache  *blockCache
	slots  *slotCache // instead of cache, with Cache.Slots
	queue  gate       // MaxRunning
	lane   gate       // serial prefill
	log    recordLog
	metric *metrics
	count  counters
	seq    atomic.Uint64
	conns  atomic.Uint64
	// leaving holds the connections that are closed once they are idle.
	leaving sync.Map
	// decoding is the number of sequences between their first and their last token.
	decoding atomic.Int64

	closing context.Context //nolint:containedctx // ends when Close is called
	close   context.CancelFunc

	mu     sync.Mutex
	active int
	closed bool
	idle   chan struct{} // closed while active is 0
}

// New returns an engine, or an error that names everything that is wrong with the configuration. Its clock starts
// now.
func New(config Config) (*Engine, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	e := &Engine{
		config: config,
		start:  time.Now(),
		key:    bearer.New(config.APIKey),
		cache:  newBlockCache(config.Cache.Blocks),
		queue:  gate{limit: config.MaxRunning, waiters: config.MaxWaiting},
		lane:   gate{limit: 1},
		log:    recordLog{config: config.Record},
		idle:   make(chan struct{}),
	}
	if n := config.Cache.Slots; n > 0 {
		e.slots = newSlotCache(n, config.Cache.Saved)
	}
	close(e.idle)
	e.wall = kernelstamp.NewWall(e.now)
	e.closing, e.close = context.WithCancel(context.Background())
	e.metric = newMetrics(e)
	e.mux = e.routes()
	return e, nil
}

func (e *Engine) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { e.generate(chat, w, r) })
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { e.generate(completions, w, r) })
	mux.HandleFunc("POST "+pathResponses, func(w http.ResponseWriter, r *http.Request) { e.generate(responses, w, r) })
	mux.HandleFunc("POST "+pathMessages, func(w http.ResponseWriter, r *http.Request) { e.generate(messages, w, r) })
	mux.HandleFunc("POST "+pathEmbeddings, func(w http.ResponseWriter, r *http.Request) { e.generate(embeddings, w, r) })
	mux.HandleFunc("POST "+pathGenerate, func(w http.ResponseWriter, r *http.Request) { e.generate(generate, w, r) })
	mux.HandleFunc("POST "+pathGenerateStream, func(w http.ResponseWriter, r *http.Request) { e.generate(generate, w, r) })
	mux.HandleFunc("GET /v1/models", e.serveModels)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.Handle("GET /metrics", e.metric.handler)
	paths := []string{"/v1/chat/completions", "/v1/completions", pathResponses, pathMessages, pathEmbeddings, pathGenerate, pathGenerateStream, "/v1/models", "/health", "/metrics"}
	if e.config.Like != LikePlain {
		mux.HandleFunc("POST "+pathTokenize, e.serveTokenize)
		paths = append(paths, pathTokenize)
	}
	if e.config.Like == LikeVLLM {
		mux.HandleFunc("POST "+pathReset, func(w http.ResponseWriter, _ *http.Request) {
			e.resetCache()
			w.WriteHeader(http.StatusOK)
		})
		paths = append(paths, pathReset)
	}
	for _, path := range paths {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			(&apiError{status: http.StatusMethodNotAllowed, kind: "invalid_request_error", message: "this method is not allowed here"}).write(w)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		(&apiError{status: http.StatusNotFound, kind: "invalid_request_error", code: "unknown_url", message: "unknown path: see " + strings.Join(paths, ", ")}).write(w)
	})
	return mux
}

// ServeHTTP answers one request.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !e.enter() {
		(&apiError{status: http.StatusServiceUnavailable, kind: "server_error", code: "closed", message: "the engine is closed"}).write(w)
		return
	}
	defer e.leave()
	e.boundBody(w, r)
	if e.config.APIKey != "" && (strings.HasPrefix(r.URL.Path, "/v1/") || strings.HasPrefix(r.URL.Path, pathGenerate)) && !e.authorized(r) {
		e.count.unauthorized.Add(1)
		w.Header().Set("Www-Authenticate", "Bearer")
		refusal := &apiError{status: http.StatusUnauthorized, kind: "authentication_error", code: "invalid_api_key", message: "a valid bearer key is needed in the Authorization header"}
		if r.URL.Path == pathMessages {
			refusal = refusal.inMessages()
		}
		refusal.write(w)
		return
	}
	e.mux.ServeHTTP(w, r)
}

// authorized reports whether a request has the key, as a bearer key or, as in the Messages API, in its own header.
func (e *Engine) authorized(r *http.Request) bool {
	if alone := r.Header.Get("X-Api-Key"); alone != "" {
		return e.key.Matches("Bearer " + alone)
	}
	return e.key.Matches(r.Header.Get("Authorization"))
}

func (e *Engine) serveModels(w http.ResponseWriter, _ *http.Request) {
	type meta struct {
		Context int `json:"n_ctx,omitempty"`
	}
	type model struct {
		ID          string `json:"id"`
		Object      string `json:"object"`
		Created     int64  `json:"created"`
		OwnedBy     string `json:"owned_by"`
		MaxModelLen int    `json:"max_model_len,omitempty"`
		Meta        *meta  `json:"meta,omitempty"`
	}
	names := e.modelNames()
	list := make([]model, len(names))
	for i, name := range names {
		list[i] = model{ID: name, Object: "model", Created: e.start.Unix(), OwnedBy: "moonloop"}
		if e.config.Like == LikeLlamaCPP {
			list[i].OwnedBy, list[i].Meta = "llamacpp", &meta{e.config.MaxModelLen}
		} else {
			list[i].MaxModelLen = e.config.MaxModelLen
		}
	}
	respondJSON(w, map[string]any{"object": "list", "data": list})
}

// modelNames returns the names that /v1/models lists.
func (e *Engine) modelNames() []string {
	if len(e.config.Models) == 0 {
		return []string{DefaultModel}
	}
	return e.config.Models
}

// Start returns the zero of the engine's clock. It holds a monotonic reading, so t.Sub(e.Start()) puts an instant of
// the same process on that clock.
func (e *Engine) Start() time.Time { return e.start }

func (e *Engine) now() time.Duration { return time.Since(e.start) }

// resetCache empties the prefix cache. Requests in flight keep what they have.
func (e *Engine) resetCache() {
	if e.slots != nil {
		e.slots.reset()
	} else {
		e.cache.reset()
	}
}

// cacheCounts returns the number of resident and of evicted blocks.
func (e *Engine) cacheCounts() (resident int, evicted int64) {
	if e.slots != nil {
		return e.slots.counts()
	}
	return e.cache.counts()
}

// Records returns the kept records of the requests that have ended, sorted by sequence number. A client may see the end of
// its reply a moment before the record is there: see [Engine.WaitIdle].
func (e *Engine) Records() []*Record { return e.log.records() }

// WaitIdle waits until no request is in flight, or for the context's end, whose error it returns.
func (e *Engine) WaitIdle(ctx context.Context) error {
	e.mu.Lock()
	idle := e.idle
	e.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends all requests at once, waits for their handlers, and refuses further ones with 503. It reports records
// that could not be written. Further calls return the same and have no other effect.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.close()
	_ = e.WaitIdle(context.Background()) // this context never ends, so there is no error
	return e.log.failure()
}

func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	if e.active == 0 {
		e.idle = make(chan struct{})
	}
	e.active++
	return true
}

func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active--
	if e.active == 0 {
		close(e.idle)
	}
}
