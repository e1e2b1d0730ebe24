// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/report/page"
)

// route is an operation of the API. openapi.json has the same operations.
type route struct {
	method, path string
	open         bool // served without a token
	serve        func(http.ResponseWriter, *http.Request) error
}

func (s *Service) routes() []route {
	metrics := s.metricsHandler()
	return []route{
		{"GET", "/healthz", true, func(w http.ResponseWriter, _ *http.Request) error {
			answer(w, "application/json", http.StatusOK, map[string]string{"status": "ok", "version": s.cfg.Version})
			return nil
		}},
		{"GET", "/readyz", true, s.ready},
		{"GET", "/openapi.json", true, func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(s.openapi)
			return nil
		}},
		{"GET", "/metrics", false, func(w http.ResponseWriter, r *http.Request) error {
			metrics.ServeHTTP(w, r)
			return nil
		}},
		{"POST", "/v1/runs", false, s.start},
		{"GET", "/v1/runs", false, func(w http.ResponseWriter, _ *http.Request) error {
			answer(w, "application/json", http.StatusOK, map[string]any{"runs": s.list()})
			return nil
		}},
		{"GET", "/v1/runs/{id}", false, s.ofRun(func(w http.ResponseWriter, _ *http.Request, one *run) error {
			answer(w, "application/json", http.StatusOK, s.show(one))
			return nil
		})},
		{"GET", "/v1/runs/{id}/events", false, s.ofRun(s.events)},
		{"POST", "/v1/runs/{id}/stop", false, s.ofRun(s.stop)},
		{"DELETE", "/v1/runs/{id}", false, s.ofRun(s.remove)},
		{"GET", "/v1/runs/{id}/files/{name}", false, s.ofRun(s.file)},
	}
}

// Handler returns the handler of all requests.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	methods := make(map[string][]string) // of a path
	for _, r := range s.routes() {
		mux.Handle(r.method+" "+r.path, s.handle(r.open, r.serve))
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, allowed := range methods {
		allow := strings.Join(allowed, ", ")
		mux.Handle(path, s.handle(false, func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Allow", allow)
			return problemf(http.StatusMethodNotAllowed, "this address accepts only %s", allow)
		}))
	}
	mux.Handle("/", s.handle(false, func(http.ResponseWriter, *http.Request) error {
		return problemf(http.StatusNotFound, "there is nothing at this address; /openapi.json lists what there is")
	}))
	return mux
}

// refusedTime bounds the time that the body of a request without the token may take to arrive.
const refusedTime = time.Second

// handle wraps a handler: it refuses requests that are not admitted, and answers with the handler's error.
func (s *Service) handle(open bool, serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		var err error
		if !open {
			if err = s.guard.check(r); err != nil {
				// The server reads a body before it answers: without this, clients without the token could keep all connections busy.
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedTime))
				w.Header().Set("Connection", "close")
			}
		}
		if err == nil {
			err = serve(w, r)
		}
		if err == nil {
			return
		}
		p, ok := errors.AsType[problem](err)
		if !ok {
			s.cfg.Log("error: " + err.Error())
			p = problemf(http.StatusInternalServerError, "%s", s.public(err.Error()))
		}
		if p.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		s.count(r.Context(), p.Status)
		p.write(w)
	})
}

// ofRun returns a handler that finds the run that a request names, and passes it on.
func (s *Service) ofRun(serve func(http.ResponseWriter, *http.Request, *run) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		s.mu.Lock()
		one := s.byID[r.PathValue("id")]
		s.mu.Unlock()
		if one == nil {
			return problemf(http.StatusNotFound, "there is no run with this id; GET /v1/runs lists all runs")
		}
		return serve(w, r, one)
	}
}

// ready reports whether the service accepts requests. It accepts them while a run is in progress, too: a run is no reason to restart the
// service or to send clients elsewhere.
func (s *Service) ready(w http.ResponseWriter, _ *http.Request) error {
	if s.ending.Load() {
		return problemf(http.StatusServiceUnavailable, "the service is stopping")
	}
	answer(w, "application/json", http.StatusOK, map[string]string{"status": "ready"})
	return nil
}

// stop stops a run. A run that has ended does not change.
func (s *Service) stop(w http.ResponseWriter, _ *http.Request, one *run) error {
	status := http.StatusOK
	if one.stop("stopped by a request") {
		status = http.StatusAccepted
	}
	answer(w, "application/json", status, s.show(one))
	return nil
}

// remove removes a run and its files.
func (s *Service) remove(w http.ResponseWriter, _ *http.Request, one *run) error {
	if it := one.look(); !it.ended() {
		return problemf(http.StatusConflict, "run %s is %s; stop it first", it.ID, it.State)
	}
	if err := s.forget(one); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// downloadTime bounds the time of a download.
const downloadTime = time.Hour

// file answers with a file of a run.
func (s *Service) file(w http.ResponseWriter, r *http.Request, one *run) error {
	it, name := one.look(), r.PathValue("name")
	list := names(it)
	if !slices.Contains(list, name) {
		return problemf(http.StatusNotFound, "a run has no such file; want one of %s", strings.Join(list, ", "))
	}
	f, err := s.store.root.Open(path.Join(it.ID, name))
	if err != nil {
		return problemf(http.StatusNotFound, "run %s has no %s (yet)", it.ID, name)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%s of run %s is not a regular file", name, it.ID)
	}
	if name == page.File { // a page must not use this origin's data in the browser
		w.Header().Set("Content-Security-Policy", "sandbox allow-scripts allow-downloads allow-popups")
	}
	if strings.Contains(name, ".jsonl") {
		w.Header().Set("Content-Type", "application/jsonl; charset=utf-8")
	}
	w.Header().Set("Cache-Control", "no-store")
	to := http.NewResponseController(w)
	_ = to.SetReadDeadline(time.Time{})
	_ = to.SetWriteDeadline(time.Now().Add(downloadTime))
	http.ServeContent(w, r, name, info.ModTime(), f)
	return nil
}
