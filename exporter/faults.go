// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/moonloop/moonloop/capture/journal"
)

// fault is why writing failed. metadata.yaml describes them.
type fault string

const (
	noSpace     fault = "no_space"
	notWritable fault = "not_writable"
	gone        fault = "gone"
	otherFault  fault = "other"
)

// repeatFault is how long the log is silent about writing that still fails, or fails again.
const repeatFault = time.Minute

// faults says in the log that writing fails, and that it works again: each fault at most once a minute, however many senders try however often.
// The zero value is of a journal that is written.
type faults struct {
	mu    sync.Mutex
	at    map[fault]time.Time // when it was said
	since int64               // attempts that failed since writing last worked; 0 while it works
	said  bool                // since writing last worked
}

// failed notes an attempt that failed.
func (f *faults) failed(log *zap.Logger, why fault, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since++
	now := time.Now()
	if at, ever := f.at[why]; !ever || now.Sub(at) >= repeatFault {
		if f.at == nil {
			f.at = map[fault]time.Time{}
		}
		f.at[why], f.said = now, true
		log.Error("spans cannot be written to the journal", zap.String("fault", string(why)), zap.String("what_to_do", cure[why]),
			zap.Int64("failed_attempts", f.since), zap.Error(err))
	}
}

// succeeded notes one that did not.
func (f *faults) succeeded(log *zap.Logger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said {
		log.Info("spans are written to the journal again", zap.Int64("failed_attempts", f.since))
	}
	f.since, f.said = 0, false
}

// cure is what to do about a fault.
var cure = map[fault]string{
	noSpace:     "make room on the file system of the journal, or lift the quota; " + patience,
	notWritable: "make the journal's folder writable: see its mode, its owner and how its file system is mounted; " + patience,
	gone:        "leave the journal's folder alone while it is written; a new segment is begun, and " + patience,
	otherFault:  "see the error; " + patience,
}

const patience = "senders or the queue try again until it succeeds"

// faultOf returns what kind of fault an error of the journal is.
func faultOf(err error) fault {
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	switch {
	case is(journal.ErrGone):
		return gone
	case is(syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG):
		return noSpace
	case is(syscall.EROFS, fs.ErrPermission):
		return notWritable
	}
	return otherFault
}
