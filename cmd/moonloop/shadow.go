// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// This file has the verb that replays live production traffic, a few minutes behind.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/internal/service"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/shadow"
	"github.com/moonloop/moonloop/study"
)

// shadowFlags are the flags of shadow.
type shadowFlags struct {
	shadow.Config
	targets []string
	noKey   bool
	lasts   time.Duration
	json    bool
}

func newShadowCommand() *cobra.Command {
	var f shadowFlags
	cmd := &cobra.Command{
		Use:   "shadow FOLDER --out DIR --allow-target URL [flags] -- --url URL",
		Short: "Replay live production traffic to another engine, a few minutes behind",
		Args: func(cmd *cobra.Command, args []string) error {
			own := len(args)
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				own = at
			}
			switch {
			case own != 1:
				return hintError{fmt.Errorf("shadow takes one folder of journals, and %d were given", own), "flags of moonloop replay go after --: moonloop shadow moonloop-capture/traces --out shadow --allow-target http://engine:8000 -- --url http://engine:8000"}
			case f.Dir == "":
				return hintError{errors.New("nothing says where the shadow keeps its state and its results"), "give a folder, such as --out shadow"}
			case len(f.targets) == 0:
				return hintError{errors.New("--allow-target: none given, and a shadow sends nothing to an engine that is not allowed: production must not get its requests twice"), "--allow-target http://engine:8000, the address of the engine under test"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], args[1:]) },
	}
	fs := cmd.Flags()
	listVar(fs, &f.targets, "allow-target", reads("http://host:port or https://host:port", readTarget))
	add(fs, &f.noKey, "no-key", false)
	add(fs, &f.MaxRate, "max-rate", shadow.DefaultMaxRate, whole(1, 1_000_000))
	add(fs, &f.Delay, "delay", shadow.DefaultDelay, lasting(shadow.MinWindow, 24*time.Hour, "from 1s to 24h"))
	add(fs, &f.Window, "window", time.Minute, lasting(shadow.MinWindow, time.Hour, "from 1s to 1h"))
	add(fs, &f.History, "history", shadow.DefaultHistory, lasting(shadow.MinWindow, 24*time.Hour, "from 1s to 24h"))
	add(fs, &f.MaxLag, "max-lag", shadow.DefaultMaxLag, lasting(time.Millisecond, time.Hour, "from 1ms to 1h"))
	add(fs, &f.lasts, "for", 0, anyDuration)
	f.Tolerances, _ = study.ParseTolerances("")
	textVar(fs, &f.Tolerances, "tolerance", "", "", study.ParseTolerances).rule = tolerances
	add(fs, &f.TwinOver, "compare-over", shadow.DefaultTwinOver, lasting(time.Minute, 24*time.Hour, "from 1m to 24h"))
	add(fs, &f.Dir, "out", "", anyText("a folder"))
	add(fs, &f.Keep, "keep", shadow.DefaultKeep, lasting(time.Minute, century, "1m or more"))
	add(fs, &f.json, "json", false)
	return cmd
}

// shadowsOwn are the flags of replay that a shadow sets itself, that need a trace with an end, or that are about the page, which a shadow does
// not write.
var shadowsOwn = []string{
	"out", "force", "dry-run", "print-config", "run-id", "save-prompts", "xlsx", "parquet", "quarantine", "lenient", "strict", "start-at", "shard", "start", "end",
	"max-requests", "max-duration", "loop", "loop-fresh", "runs", "runs-fresh", "runs-pause", "runs-warmup", "speedup", "request-rate", "request-rate-series", "no-fixed-schedule", "spread", "from", "transform", "map", "time-unit",
	"block-size", "fine-block-size", "session-mode", "lookahead", "warmup-requests", "warmup-duration", "steady-state", "steady-from", "steady-to",
	"no-report-page", "trace-url",
}

// run runs the verb.
func (f *shadowFlags) run(cmd *cobra.Command, journals string, args []string) error {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	replay, err := replayOf(cmd, "-", args, "a shadow, which sends requests as production gets them", shadowsOwn...)
	if err != nil {
		return fmt.Errorf("flags of replay, after --: %w", err)
	}
	if err := f.guard(replay.cfg.Target); err != nil {
		return err
	}
	f.Journals, f.Replay = journals, replay.cfg
	f.Replay.Tool, f.Replay.Command = version(), publicCommand(cmd, []string{journals})
	if f.Replay.Target.WaitReady == 0 {
		f.Replay.Target.WaitReady = f.Delay // the engine may be in the middle of an upgrade
	}
	f.Warn = warner(stderr, time.Minute)
	var twin *study.Twin
	var broken error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	f.Report = func(r *shadow.Report) {
		twin = r.Twin
		text := r.String()
		if f.json {
			line, err := json.Marshal(r)
			broken, text = errors.Join(broken, err), string(line)
		}
		if err := output(stdout, text+"\n"); err != nil {
			broken = err
			stop()
		}
	}
	if f.lasts > 0 {
		ctx, stop = context.WithTimeout(ctx, f.lasts)
		defer stop()
	}
	defer telemetry.CatchSDK(f.Warn)()
	defer startPace().Stop()
	totals, err := shadow.Run(ctx, f.Config)
	if err := errors.Join(err, broken); err != nil {
		return err
	}
	fmt.Fprint(stderr, term.Note(stderr, fmt.Sprintf("%s of production; %s", term.Counted(totals.Rows, "rows"), totals)))
	if f.lasts == 0 || cmd.Context().Err() != nil || twin == nil {
		return nil
	}
	return exitWith(map[study.Outcome]int{study.OutsideTolerance: exitGoals, study.OpenTolerance: exitInvalid}[twin.Answer])
}

// productionKeys are the variables in which applications have their keys.
var productionKeys = []string{"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_API_KEY", "MISTRAL_API_KEY", "GEMINI_API_KEY"}

// guard refuses engines that may be production: one that is not allowed, and one on another machine without a separate key for the shadow.
func (f *shadowFlags) guard(t agent.Target) error {
	var allowed service.Targets
	for _, text := range f.targets {
		u, _ := service.ParseTarget(text) // the flag's rule has parsed it already
		allowed = append(allowed, u)
	}
	for _, address := range t.URLs() {
		u, err := service.ParseTarget(address)
		if err != nil {
			return fmt.Errorf("--url: %w", advised(err))
		}
		if !allowed.Allows(u) {
			return hintError{fmt.Errorf("--url %s is not allowed: --allow-target names %s", u.Redacted(), allowed), "allow the engine under test, and never production's engine"}
		}
	}
	for _, address := range t.URLs() {
		u, _ := service.ParseTarget(address)
		if !f.noKey && t.APIKey == "" && t.Header.Get("Authorization") == "" && !isLoopback(u.Hostname()) {
			return hintError{fmt.Errorf("no key for %s: a shadow needs its own key, so that it cannot use production's", u.Host), "--api-key-file FILE or --api-key-env VARIABLE after --; or --no-key if the engine needs none"}
		}
	}
	return f.ownKey(t)
}

// ownKey refuses the key that an application has in its usual variable.
func (f *shadowFlags) ownKey(t agent.Target) error {
	for _, name := range productionKeys {
		if key := os.Getenv(name); key != "" && key == t.APIKey {
			return hintError{fmt.Errorf("the key is also in %s, which applications of production use", name), "give the shadow a key of its own"}
		}
	}
	return nil
}
