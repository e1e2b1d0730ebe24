// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/moonloop/moonloop/capture/journal"
)

// fault is why writing failed, by its name in metadata.yaml, which describes it.
type fault struct {
	name   string
	errors []error
	cure   string
}

const otherFault = "other"

const patience = "senders or the queue try again until it succeeds"

var knownFaults = []fault{
	{"gone", []error{journal.ErrGone}, "leave the journal's folder alone while it is written; a new segment is begun, and " + patience},
	{"no_space", []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, "make room on the file system of the journal, or lift the quota; " + patience},
	{
		"not_writable",
		[]error{syscall.EROFS, fs.ErrPermission},
		"make the journal's folder writable: see its mode, its owner and how its file system is mounted; " + patience,
	},
}

// faultOf returns the fault for an error of the journal.
func faultOf(err error) fault {
	for _, f := range knownFaults {
		if slices.ContainsFunc(f.errors, func(target error) bool { return errors.Is(err, target) }) {
			return f
		}
	}
	return fault{name: otherFault, cure: "see the error; " + patience}
}

// repeatFault is the time for which a fault that occurs again is not logged again.
const repeatFault = time.Minute

// faults logs that writing fails, and that it works again: each fault at most once a minute, however many attempts there are. The zero
// value is for a journal without faults.
type faults struct {
	mu    sync.Mutex
	at    map[string]time.Time // when a fault was logged
	since int64                // attempts that failed since writing last worked; 0 while it works
	said  bool                 // a fault was logged since writing last worked
}

// failed records a failed attempt.
func (f *faults) failed(log *zap.Logger, why fault, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since++
	now := time.Now()
	if at, ever := f.at[why.name]; !ever || now.Sub(at) >= repeatFault {
		if f.at == nil {
			f.at = map[string]time.Time{}
		}
		f.at[why.name], f.said = now, true
		log.Error("spans cannot be written to the journal", zap.String("fault", why.name), zap.String("what_to_do", why.cure),
			zap.Int64("failed_attempts", f.since), zap.Error(err))
	}
}

// succeeded records a successful attempt.
func (f *faults) succeeded(log *zap.Logger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said {
		log.Info("spans are written to the journal again", zap.Int64("failed_attempts", f.since))
	}
	f.since, f.said = 0, false
}
