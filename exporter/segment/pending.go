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

	"github.com/moonloop/moonloop/internal/atomicfile"
)

// A .pending file says that a segment is closed and its own trace not compiled yet. It has a line of 32 hex digits for
// each trace that was carried on to the next segment. Before them, of a segment that was written to while it was cut, is the
// size that it had at the cut: what stands behind that is in the next one.
const endLine = "end %d\n"

// writePending writes the file, durably. end is the size at the cut, 0 where nothing is behind that.
func (j *Journal) writePending(i id, c *carry, end int64) error {
	if err := j.opt.makeTemp(); err != nil {
		return err
	}
	temp := filepath.Join(j.opt.temp(), i.String()+pendingSuffix)
	f, err := atomicfile.CreateAs(temp, j.opt.path(i, pendingSuffix))
	if err != nil {
		return fmt.Errorf("segment cannot be closed: %w", err)
	}
	b := bufio.NewWriter(f)
	if end > 0 {
		_, _ = fmt.Fprintf(b, endLine, end)
	}
	for trace := range c.traces {
		_, _ = b.WriteString(hex.EncodeToString(trace[:])) // Flush has the error
		_ = b.WriteByte('\n')
	}
	if err = b.Flush(); err == nil {
		err = f.Commit()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("segment cannot be closed: %w", err), f.Discard())
	}
	return nil
}

// readPending returns the traces to leave out, and the size of what counts, 0 for all of it. Where there is no file the error
// is os.ErrNotExist.
func (j *Journal) readPending(i id) (leave map[[16]byte]bool, end int64, err error) {
	f, err := os.Open(j.opt.path(i, pendingSuffix))
	if err != nil {
		return nil, 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	leave = map[[16]byte]bool{}
	s := bufio.NewScanner(f)
	for first := true; s.Scan(); first = false {
		if n, err := fmt.Sscanf(s.Text()+"\n", endLine, &end); first && n == 1 && err == nil && end > 0 {
			continue
		}
		var trace [16]byte
		if n, err := hex.Decode(trace[:], s.Bytes()); err != nil || n != len(trace) || len(leave) > maxCarried {
			return nil, 0, fmt.Errorf("%s is damaged: compile the segments with moonloop compile", f.Name())
		}
		leave[trace] = true
	}
	return leave, end, s.Err()
}

func (j *Journal) dropPending(i id) error {
	err := os.Remove(j.opt.path(i, pendingSuffix))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
