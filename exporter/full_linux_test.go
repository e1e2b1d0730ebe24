// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"golang.org/x/sys/unix"
)

// breakJournal simulates a full disk under the open journal of a started exporter, and returns a function that ends the simulation.
func breakJournal(t *testing.T, s started) (lift func()) {
	t.Helper()
	journal, err := filepath.EvalSymlinks(journals(t, s.cfg.Directory)[0])
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	fd := -1
	for _, e := range entries {
		if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && name == journal {
			if fd, err = strconv.Atoi(e.Name()); err != nil {
				t.Fatal(err)
			}
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil || fd < 0 {
		t.Fatalf("no open file of %s: %v", journal, err)
	}
	defer func() { _ = full.Close() }()
	saved, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup3(int(full.Fd()), fd, 0); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Dup3(saved, fd, 0); err != nil {
			t.Error(err)
		}
		_ = unix.Close(saved)
	}
}

// Without a queue, the sender learns at once that a span was not written. Each attempt is counted; the log has one line with what to do,
// and one when writing works again.
func TestFullDiskWithoutQueue(t *testing.T) {
	s := start(t, func(*Config) {})
	for range 2 { // the second time within a minute, which is not logged
		lift := breakJournal(t, s)
		for range 3 {
			err := s.ConsumeTraces(t.Context(), production(1))
			if err == nil || consumererror.IsPermanent(err) {
				t.Errorf("got %v, want an error that is worth another try", err)
			}
		}
		lift()
		if err := s.ConsumeTraces(t.Context(), production(1)); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
	wantCounts(t, s, "failed_writes", "fault=gone 0", "fault=no_space 6", "fault=not_writable 0", "fault=other 0")
	for _, said := range []string{"spans cannot be written to the journal", "make room", "spans are written to the journal again", `"failed_attempts":3`} {
		if n := strings.Count(s.log.text(), said); n != 1 {
			t.Errorf("%q is said %d times:\n%s", said, n, s.log.text())
		}
	}
}

// With a queue, the exporter retries until the spans are written.
func TestFullDiskWithQueue(t *testing.T) {
	s := start(t, func(c *Config) {
		queue := exporterhelper.NewDefaultQueueConfig()
		c.QueueConfig = configoptional.Some(queue)
		c.BackOffConfig.Enabled, c.BackOffConfig.InitialInterval = true, 10*time.Millisecond
	})
	lift := breakJournal(t, s)
	if err := s.ConsumeTraces(t.Context(), production(2)); err != nil {
		t.Fatalf("the queue does not accept it: %v", err)
	}
	for range 10_000 {
		if strings.Contains(s.log.text(), "Exporting failed. Will retry") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(s.log.text(), "Exporting failed. Will retry") {
		t.Fatalf("no retry in the log:\n%s", s.log.text())
	}
	lift()
	for range 10_000 {
		if !slices.Contains(counts(t, s, "written"), " 0") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop(t, s)
	if n := count(t, s.cfg.Directory); n != 6 {
		t.Errorf("%d records, want 6", n)
	}
}
