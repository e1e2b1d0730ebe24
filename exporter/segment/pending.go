// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A .pending file says that a segment is closed and its own trace not compiled yet. It has a line of 32 hex digits for
// each trace that was carried on to the next segment.

// writePending writes the file, durably.
func (j *Journal) writePending(i id, c *carry) error {
	if err := j.opt.makeTemp(); err != nil {
		return err
	}
	temp := filepath.Join(j.opt.temp(), i.String()+pendingSuffix)
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) //nolint:gosec // a file of ours
	if err != nil {
		return fmt.Errorf("segment cannot be closed: %w", err)
	}
	b := bufio.NewWriter(f)
	for trace := range c.traces {
		_, _ = b.WriteString(hex.EncodeToString(trace[:])) // Flush has the error
		_ = b.WriteByte('\n')
	}
	if err := errors.Join(b.Flush(), f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("segment cannot be closed: %w", err), os.Remove(temp))
	}
	if err := os.Rename(temp, j.opt.path(i, pendingSuffix)); err != nil {
		return fmt.Errorf("segment cannot be closed: %w", err)
	}
	syncDir(j.opt.Directory)
	return nil
}

// readPending returns the traces to leave out. Where there is no file the error is os.ErrNotExist.
func (j *Journal) readPending(i id) (map[[16]byte]bool, error) {
	f, err := os.Open(j.opt.path(i, pendingSuffix))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	out := map[[16]byte]bool{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		var trace [16]byte
		if n, err := hex.Decode(trace[:], s.Bytes()); err != nil || n != len(trace) || len(out) > maxCarried {
			return nil, fmt.Errorf("%s is damaged: compile the segments with moonloop compile", f.Name())
		}
		out[trace] = true
	}
	return out, s.Err()
}

func (j *Journal) dropPending(i id) error {
	err := os.Remove(j.opt.path(i, pendingSuffix))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
