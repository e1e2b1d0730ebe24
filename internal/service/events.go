// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// eventEvery is the time between two events of a run.
const eventEvery = time.Second

// events streams the state of a run as server-sent events: "progress" each second, and "end" when the run is over.
func (s *Service) events(w http.ResponseWriter, r *http.Request, one *run) error {
	if s.watchers.Add(1) > maxWatchers {
		s.watchers.Add(-1)
		return problemf(http.StatusServiceUnavailable, "%d clients are watching runs already; GET /v1/runs/{id} shows the state of a run, too", maxWatchers)
	}
	defer s.watchers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would delay events
	to := http.NewResponseController(w)
	_ = to.SetReadDeadline(time.Time{}) // without it, the server would close the connection at its read deadline
	send := func(event string) error {
		content, err := json.Marshal(s.show(one))
		if err != nil {
			return err
		}
		_ = to.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, content); err != nil {
			return err
		}
		return to.Flush()
	}
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	for {
		select {
		case <-one.done:
			_ = send("end")
			return nil
		default:
		}
		if err := send("progress"); err != nil {
			return nil //nolint:nilerr // the client is gone, and the status is sent
		}
		select {
		case <-one.done:
		case <-tick.C:
		case <-r.Context().Done():
			return nil
		}
	}
}
