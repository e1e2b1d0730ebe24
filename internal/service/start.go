// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/mooncake"
)

// maxOptions bounds the JSON object of a request, in bytes.
const maxOptions = 256 << 10

// maxName bounds the name of a trace and the address of an engine, in bytes.
const maxName = 4 << 10

// uploadTime bounds the time that a request may take to arrive.
const uploadTime = 10 * time.Minute

// order is the content of a request for a run.
type order struct {
	url, trace string
	options    map[string]json.RawMessage // the other members
	uploaded   bool
}

// start answers POST /v1/runs.
func (s *Service) start(w http.ResponseWriter, r *http.Request) error {
	// One request at a time, from its first byte on: this limits how many traces are received at once.
	if !s.ordering.TryLock() {
		return problemf(http.StatusConflict, "another request to start a run is being received; try again")
	}
	defer s.ordering.Unlock()
	if err := s.free(); err != nil {
		return err
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	id := hex.EncodeToString(random[:])
	if err := s.store.root.Mkdir(id, 0o700); err != nil {
		return fmt.Errorf("folder of the run: %w", err)
	}
	one, err := s.accept(w, r, id)
	if err != nil {
		return errors.Join(err, s.store.remove(id))
	}
	w.Header().Set("Location", "/v1/runs/"+id)
	answer(w, "application/json", http.StatusCreated, s.show(one))
	return nil
}

// free returns the reason why no run can start now; nil if one can.
func (s *Service) free() error {
	if s.ending.Load() {
		return problemf(http.StatusServiceUnavailable, "the service is stopping; it starts no run")
	}
	var active []string
	for _, one := range s.runs() {
		if it := one.look(); !it.ended() {
			active = append(active, it.ID)
		}
	}
	if len(active) >= s.cfg.MaxRuns {
		p := problemf(http.StatusConflict, "run %s is under way, and the service runs at most %d at once; wait for its end, or stop it", strings.Join(active, ", "), s.cfg.MaxRuns)
		p.Running = active
		return p
	}
	return nil
}

// room removes old runs to make room for a new one, or returns the reason why there is no room; then it removes none. It is called when the
// request has been accepted: one that is refused must not remove results.
func (s *Service) room() error {
	var over []*run // latest first
	for _, one := range s.runs() {
		if it := one.look(); it.ended() {
			over = append(over, one)
		}
	}
	kept, used := len(over), s.store.used(".")
	for kept > 0 && (kept >= s.cfg.KeepRuns || used >= s.cfg.MaxDisk) {
		kept--
		used -= s.store.used(over[kept].it.ID)
	}
	if used >= s.cfg.MaxDisk {
		return problemf(http.StatusInsufficientStorage, "the results have %d bytes even without the runs that have ended, and %d are allowed (--max-disk)", used, s.cfg.MaxDisk)
	}
	for _, oldest := range slices.Backward(over[kept:]) {
		if err := s.forget(oldest); err != nil {
			return err
		}
		s.cfg.Log("removed run " + oldest.it.ID + ", the oldest, to make room")
	}
	return nil
}

// accept reads a request, and starts its run.
func (s *Service) accept(w http.ResponseWriter, r *http.Request, id string) (*run, error) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTime))
	o, err := s.receive(w, r, id)
	if err != nil {
		return nil, err
	}
	base := agent.Config{RunID: id, Out: s.store.path(id)}
	if base.Target.URL, err = s.cfg.Targets.allow(o.url); err != nil {
		return nil, problemf(http.StatusForbidden, "%v", err)
	}
	if base.Trace.Name, err = s.find(o, id); err != nil {
		return nil, err
	}
	prepared, err := s.cfg.Prepare(r.Context(), base, o.options)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "%s", s.public(err.Error()))
	}
	if err := s.room(); err != nil {
		return nil, err
	}
	metrics, err := newLastingReader()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // the client may disconnect
	one := &run{cancel: cancel, done: make(chan struct{}), metrics: metrics, it: Run{
		ID: id, State: Starting, Created: time.Now(), Trace: o.trace, URL: base.Target.URL, Options: prepared.Options, Warnings: prepared.Warnings,
	}}
	if err := s.store.save(one.it); err != nil {
		cancel()
		return nil, err
	}
	if !s.insert(one) {
		cancel()
		return nil, problemf(http.StatusServiceUnavailable, "the service is stopping; it starts no run")
	}
	go s.run(ctx, one, prepared.Config, metrics)
	return one, nil
}

// run runs a replay to its end.
func (s *Service) run(ctx context.Context, one *run, cfg agent.Config, metrics *lastingReader) {
	defer one.cancel()
	s.cfg.Log("run " + cfg.RunID + " starts")
	cfg.Telemetry.FurtherReader = metrics
	cfg.Progress = one.started
	cfg.Warn = func(text string) { one.add(&one.it.Warnings, s.public(text)) }
	cfg.Note = func(text string) { one.add(&one.it.Notes, s.public(text)) }
	watching := make(chan struct{})
	go s.watchDisk(one, watching)
	rep, err := agent.Run(ctx, cfg)
	close(watching)
	s.keepMetrics(one)
	it := one.conclude(rep, err, s.public)
	if err := s.store.save(it); err != nil {
		s.cfg.Log(fmt.Sprintf("run %s: its %s cannot be written: %v", it.ID, runFile, err))
	}
	s.cfg.Log(it.sentence())
	close(one.done)
	s.active.Done()
}

// keepMetrics keeps the metrics of a run that has ended, in place of those of the run before it. The run itself drops its metrics, so that
// many runs need little memory.
func (s *Service) keepMetrics(one *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if metrics := one.scraped(); metrics != nil { // else there was no replay
		s.latest = metrics
	}
}

// watchDisk stops a run when the results of all runs have reached MaxDisk.
func (s *Service) watchDisk(one *run, over <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			if used := s.store.used("."); used >= s.cfg.MaxDisk {
				one.stop(fmt.Sprintf("stopped because the results have %d bytes, and %d are allowed (--max-disk)", used, s.cfg.MaxDisk))
			}
		}
	}
}

// find returns the path of the trace of a request. A trace is read with its metadata file, so neither may be outside the folder.
func (s *Service) find(o order, id string) (string, error) {
	switch {
	case o.uploaded:
		return filepath.Join(s.store.path(id), traceFile), nil
	case s.traces == nil:
		return "", problemf(http.StatusBadRequest, "trace: this service has no folder of traces (--traces); send the trace in the request")
	}
	for _, name := range []string{o.trace, mooncake.MetaName(o.trace)} {
		info, err := s.traces.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && name != o.trace: // a trace needs no metadata
		case errors.Is(err, fs.ErrNotExist):
			return "", problemf(http.StatusBadRequest, "trace %q: there is no such file in the service's folder of traces", name)
		case err != nil: // also for a path outside the folder, and for a link to one
			return "", problemf(http.StatusBadRequest, "trace %q: it is not a file in the service's folder of traces", name)
		case !info.Mode().IsRegular():
			return "", problemf(http.StatusBadRequest, "trace %q: it is not a regular file", name)
		}
	}
	return filepath.Join(s.cfg.Traces, filepath.FromSlash(o.trace)), nil
}

// receive reads a request: a JSON object, or a form that contains the object and a trace.
func (s *Service) receive(w http.ResponseWriter, r *http.Request, id string) (o order, err error) {
	kind, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		content, err := readPart(http.MaxBytesReader(w, r.Body, maxOptions), "the request", maxOptions)
		if err != nil {
			return o, err
		}
		if o, err = parseOrder(content); err == nil && o.trace == "" {
			err = problemf(http.StatusBadRequest, "trace: none given; name a file of the service's folder of traces, or send one as multipart/form-data")
		}
		return o, err
	case "multipart/form-data":
		body := http.MaxBytesReader(w, r.Body, s.cfg.MaxUpload+maxOptions+maxRunFile)
		return s.receiveForm(multipart.NewReader(body, parameters["boundary"]), id)
	}
	return o, problemf(http.StatusUnsupportedMediaType, "want application/json, or multipart/form-data with the parts options and trace")
}

// receiveForm reads a form with the parts options, trace and meta (the trace's metadata).
func (s *Service) receiveForm(form *multipart.Reader, id string) (o order, err error) {
	seen := make(map[string]bool)
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return o, unreadable(err)
		}
		name := part.FormName()
		if seen[name] {
			return o, problemf(http.StatusBadRequest, "part %q occurs twice", name)
		}
		seen[name] = true
		switch name {
		case "options":
			content, err := readPart(part, "part options", maxOptions)
			if err != nil {
				return o, err
			}
			if o, err = parseOrder(content); err != nil {
				return o, err
			}
		case "trace":
			err = s.savePart(part, "part trace", id, traceFile, s.cfg.MaxUpload)
		case "meta":
			err = s.savePart(part, "part meta", id, mooncake.MetaName(traceFile), maxRunFile)
		default:
			err = problemf(http.StatusBadRequest, "part %.40q: want the parts options, trace and meta", name)
		}
		if err != nil {
			return o, err
		}
	}
	switch {
	case !seen["trace"]:
		return o, problemf(http.StatusBadRequest, "part trace is missing: the file of the trace")
	case o.trace != "":
		return o, problemf(http.StatusBadRequest, "trace: given by name and as a part; give it once")
	}
	o.trace, o.uploaded = traceFile, true
	return o, nil
}

// savePart writes a part of a form, which errors call what, into a run's folder.
func (s *Service) savePart(part io.Reader, what, id, name string, most int64) error {
	f, err := s.store.root.OpenFile(path.Join(id, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(part, most+1))
	if closeErr := f.Close(); err == nil && closeErr != nil {
		return closeErr
	}
	switch {
	case err != nil:
		return unreadable(err)
	case n > most:
		return tooLarge(what, most)
	case n == 0:
		return problemf(http.StatusBadRequest, "%s is empty", what)
	}
	return nil
}

// readPart reads a part that must fit in memory.
func readPart(r io.Reader, name string, most int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, unreadable(err)
	}
	if int64(len(content)) > most {
		return nil, tooLarge(name, most)
	}
	return content, nil
}

func tooLarge(name string, most int64) error {
	return problemf(http.StatusRequestEntityTooLarge, "%s has more than %d bytes", name, most)
}

// unreadable returns the error for a body that could not be read.
func unreadable(err error) error {
	if limit, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge("the request", limit.Limit)
	}
	return problemf(http.StatusBadRequest, "the request cannot be read to its end")
}

// parseOrder reads the JSON object of a request. Duplicate members are an error.
func parseOrder(content []byte) (o order, err error) {
	options := make(map[string]jsontext.Value)
	if err := jsonv2.Unmarshal(content, &options); err != nil {
		where := ""
		if at, ok := errors.AsType[*jsontext.SyntacticError](err); ok { // its text would repeat the content
			where = fmt.Sprintf(" (byte %d)", at.ByteOffset)
		}
		return o, problemf(http.StatusBadRequest, "the options are not a JSON object with unique names%s", where)
	}
	o.options = make(map[string]json.RawMessage, len(options))
	for name, value := range options {
		var to *string
		switch name {
		case "trace":
			to = &o.trace
		case "url":
			to = &o.url
		default:
			o.options[name] = json.RawMessage(value)
			continue
		}
		if err := json.Unmarshal(value, to); err != nil || *to == "" || len(*to) > maxName {
			return o, problemf(http.StatusBadRequest, "%s: want a text", name)
		}
	}
	return o, nil
}
