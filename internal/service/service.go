// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/net/netutil"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/semconv"
)

// Config configures a service. Every field except Traces, Token and Log is required.
type Config struct {
	Folder  string // of the results
	Traces  string // folder of traces; empty: each request brings its trace
	Targets Targets
	Token   string // clients must send it; empty: only clients on this machine are served

	MaxRuns, KeepRuns  int   // maximum number of runs at a time, and of runs that are kept
	MaxUpload, MaxDisk int64 // maximum number of bytes of a trace in a request, and of all results

	// Options are what a request may set, in addition to trace and url.
	Options []Option
	// Prepare completes the configuration of a run from the request's options. Its error is shown to the client.
	Prepare func(ctx context.Context, base agent.Config, options map[string]json.RawMessage) (Prepared, error)
	// Version is the program's version.
	Version string
	// Log is called with a line for each event, on any goroutine.
	Log func(string)
}

// Prepared is a run that may begin.
type Prepared struct {
	Config   agent.Config
	Options  map[string]any // in a form that clients may see
	Warnings []string
}

// Service is the service. Make it with [New].
type Service struct {
	cfg     Config
	guard   guard
	store   *store
	traces  *os.Root // nil without a folder
	openapi []byte
	own     prometheus.Gatherer
	refused metric.Int64Counter

	ordering sync.Mutex // held while a request for a run is received
	ending   atomic.Bool
	active   sync.WaitGroup
	watchers atomic.Int64

	mu     sync.Mutex
	byID   map[string]*run
	latest *lastingReader // of the run that ended last; nil if none has
}

// New opens the folders of a service. It marks runs that an earlier process left unfinished as interrupted. It fails if another
// service uses the folder of results.
func New(cfg Config) (s *Service, err error) {
	s = &Service{cfg: cfg, guard: newGuard(cfg.Token), byID: make(map[string]*run)}
	if s.cfg.Log == nil {
		s.cfg.Log = func(string) {}
	}
	if s.openapi, err = describe(cfg.Version, cfg.Options); err != nil {
		return nil, err
	}
	if cfg.Traces != "" {
		if s.traces, err = os.OpenRoot(cfg.Traces); err != nil {
			return nil, fmt.Errorf("folder of traces: %w; name an existing folder with --traces", err)
		}
	}
	if s.store, err = openStore(cfg.Folder); err == nil {
		var list []Run
		list, err = s.store.load(s.cfg.Log)
		for _, it := range list {
			s.byID[it.ID] = past(it)
		}
	}
	if err == nil {
		s.own, err = s.registerOwn()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close releases the folders. All runs must have ended; when [Service.Serve] returns, they have.
func (s *Service) Close() {
	if s.traces != nil {
		_ = s.traces.Close()
	}
	if s.store != nil {
		s.store.close()
	}
}

// Limits of the server. A run's events and long downloads have timeouts of their own.
const (
	maxConnections = 256
	maxWatchers    = 64
	maxHeader      = 16 << 10
	headerTime     = 10 * time.Second
	idleTime       = 2 * time.Minute
	closeTime      = 5 * time.Second
)

// Serve answers requests until ctx ends. Then it stops the runs, waits until their reports are written, and ends.
func (s *Service) Serve(ctx context.Context, listener net.Listener, server *http.Server) error {
	server.Handler = s.Handler()
	// A body is read for a longer time only once its sender has shown the token.
	server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout = headerTime, headerTime, writeTime
	server.IdleTimeout, server.MaxHeaderBytes = idleTime, maxHeader
	listener = netutil.LimitListener(listener, maxConnections)
	failed := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			failed <- server.ServeTLS(listener, "", "")
			return
		}
		failed <- server.Serve(listener)
	}()
	var err error
	select {
	case err = <-failed:
		failed <- err
	case <-ctx.Done():
	}
	s.end()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if server.Shutdown(last) != nil {
		_ = server.Close() // the time to shut down is over
	}
	if err = <-failed; errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// end stops all runs, and waits for them.
func (s *Service) end() {
	s.mu.Lock()
	s.ending.Store(true) // set under the lock, so that no run is inserted afterwards
	s.mu.Unlock()
	for _, one := range s.runs() {
		one.stop("stopped because the service was stopped")
	}
	s.active.Wait()
}

// insert adds a run that is about to begin, and reports whether it may: not if the service is ending.
func (s *Service) insert(one *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending.Load() {
		return false
	}
	s.byID[one.it.ID] = one
	s.active.Add(1)
	return true
}

// runs returns all runs, latest first.
func (s *Service) runs() []*run {
	s.mu.Lock()
	list := make([]*run, 0, len(s.byID))
	for _, one := range s.byID {
		list = append(list, one)
	}
	s.mu.Unlock()
	// The lock is not needed to sort: Created and ID never change.
	slices.SortFunc(list, func(a, b *run) int {
		return cmp.Or(b.it.Created.Compare(a.it.Created), strings.Compare(a.it.ID, b.it.ID))
	})
	return list
}

// list returns the present state of all runs, latest first.
func (s *Service) list() []Run {
	runs := s.runs()
	list := make([]Run, len(runs))
	for i, one := range runs {
		list[i] = one.look()
	}
	return list
}

// forget removes a run that has ended.
func (s *Service) forget(one *run) error {
	<-one.done // its run.json may still be being written
	if err := s.store.remove(one.it.ID); err != nil {
		return fmt.Errorf("run %s cannot be removed: %s", one.it.ID, s.public(err.Error()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, one.it.ID)
	return nil
}

// show returns a run as the API shows it.
func (s *Service) show(one *run) Run {
	it := one.look()
	it.Files = s.store.files(it)
	return it
}

// public removes the paths of the service's folders from a text.
func (s *Service) public(text string) string {
	for _, folder := range []string{s.cfg.Folder, s.cfg.Traces} {
		if folder != "" {
			text = strings.ReplaceAll(text, strings.TrimSuffix(folder, string(os.PathSeparator))+string(os.PathSeparator), "")
		}
	}
	return text
}

// count counts a refusal.
func (s *Service) count(ctx context.Context, status int) {
	s.refused.Add(ctx, 1, metric.WithAttributes(attribute.Int(semconv.HTTPResponseStatusCode, status)))
}
