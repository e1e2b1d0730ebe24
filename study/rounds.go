// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Rounds runs the commands of two sides alternately, so that both have the same conditions. A round is a run of each, in a random order that
// depends on the seed, because the second run in a round finds a machine that the first one has warmed up.
type Rounds struct {
	A, B string // shell commands; each must write a run's folder at {out}
	// Between is a command that is run before each run, such as one that restarts the engine; empty = none.
	Between string
	// Calibrate also makes a second run of A in each round, for [Compare]'s noise floor.
	Calibrate bool
	N         int    // rounds
	Seed      uint64 // of the order, and of {seed}; use another one for each comparison, or its runs hit what the previous comparison left in the cache
	// Dir has the folders a, b and, with Calibrate, again; in each, a folder and a log for each round: a/1, a/1.log. Existing runs are
	// kept, so that the rounds continue where they ended, and rounds can be added.
	Dir string
	// Exec runs a command, and writes its output to the log.
	Exec func(ctx context.Context, command string, log io.Writer) error
	// Ended is called after each run; it may be nil.
	Ended func(round int, side string, run *Run)
}

// MaxRounds bounds [Rounds].N.
const MaxRounds = 1000

// Folders of the sides in [Rounds].Dir.
const (
	SideA     = "a"
	SideB     = "b"
	SideAgain = "again" // A once more
)

// ErrTooSmall says that further rounds would be in vain.
var ErrTooSmall = errors.New("the runs of the first round have too few requests for a verdict, and no run counts without one: use a longer trace")

// Run runs the rounds. A command that fails but has written a run is no error: a replay whose measurement is invalid also exits with a
// status above 0, and [Compare] leaves its run out. A command that has written no run is an error, which ends the rounds. After a first round
// whose runs are all too small for a verdict, it returns ErrTooSmall.
func (r *Rounds) Run(ctx context.Context) error {
	if r.N < 1 || r.N > MaxRounds {
		return fmt.Errorf("%d rounds: must be from 1 to %d", r.N, MaxRounds)
	}
	sides := []struct{ name, command string }{{SideA, r.A}, {SideB, r.B}}
	if r.Calibrate {
		sides = append(sides, struct{ name, command string }{SideAgain, r.A})
	}
	for _, s := range sides {
		if !strings.Contains(s.command, "{out}") {
			return fmt.Errorf("the command %q does not contain {out}, which is the folder that the run must write, as in `moonloop replay trace.jsonl --url URL --seed {seed} --out {out}`", s.command)
		}
	}
	random := rand.New(rand.NewPCG(r.Seed, 0)) //nolint:gosec // an order, no secret
	for round := 1; round <= r.N; round++ {
		judged := false
		for _, i := range random.Perm(len(sides)) {
			// Each run has its own words, so that it finds a cold cache even if both sides are one engine.
			seed := r.Seed + uint64(len(sides)*round+i) //nolint:gosec // a few rounds
			run, err := r.one(ctx, round, seed, sides[i].name, sides[i].command)
			if err != nil {
				return err
			}
			r.ended(round, sides[i].name, run)
			judged = judged || run.Verdict != undecided
		}
		if round == 1 && r.N > 1 && !judged {
			return ErrTooSmall
		}
	}
	return nil
}

// one runs a command, unless its run exists, and returns the run.
func (r *Rounds) one(ctx context.Context, round int, seed uint64, side, command string) (*Run, error) {
	out := filepath.Join(r.Dir, side, strconv.Itoa(round))
	if run, err := readRun(out); err != nil || run != nil && run.Verdict != noSummary {
		return run, err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o750); err != nil {
		return nil, fmt.Errorf("the folder of the rounds cannot be made: %w", err)
	}
	name := out + ".log"
	log, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // in the user's folder
	if err != nil {
		return nil, fmt.Errorf("the log of a run cannot be written: %w", err)
	}
	defer func() { _ = log.Close() }() // the log is only for people
	fill := strings.NewReplacer("{out}", out, "{seed}", strconv.FormatUint(seed, 10), "{round}", strconv.Itoa(round))
	if r.Between != "" {
		if err := r.Exec(ctx, fill.Replace(r.Between), log); err != nil {
			return nil, errors.Join(ctx.Err(), fmt.Errorf("round %d, before %s: the command between runs failed: %w; %s has what it printed", round, side, err, name))
		}
	}
	failed := r.Exec(ctx, fill.Replace(command), log)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	run, err := readRun(out)
	switch {
	case err != nil, run != nil && run.Verdict != noSummary:
		return run, err
	case failed == nil:
		failed = fs.ErrNotExist
	}
	return nil, fmt.Errorf("round %d: the command of %s wrote no run to %s: %w; %s has what it printed", round, side, out, failed, name)
}

func (r *Rounds) ended(round int, side string, run *Run) {
	if r.Ended != nil {
		r.Ended(round, side, run)
	}
}
