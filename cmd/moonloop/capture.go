// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/collect"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// hashKeyEnv is the environment variable that holds the key unless another one is named.
const hashKeyEnv = "MOONLOOP_HASH_KEY"

// defaultRequestLimit is the memory that the requests being received may take together, in bytes: four times the largest.
const defaultRequestLimit = 4 * collect.MaxMessage

// captureFlags are the flags of "moonloop capture".
type captureFlags struct {
	traceFlags
	journal     string
	keepJournal bool
	grpc, http  string
	listenSecrets
	requestLimit      string
	duration, idle    time.Duration
	keyEnv            string
	sessionKeys, deny []string
	promptOrders      []string
	progress          string
}

func newCaptureCommand() *cobra.Command {
	var f captureFlags
	cmd := &cobra.Command{
		Use:   "capture --out TRACE",
		Short: "Listen for OpenTelemetry data and write a trace of its model requests",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return hintError{fmt.Errorf("capture reads nothing, but listens: %q has no meaning to it", args[0]), "--out names the trace"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runCapture(cmd, f) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.addOutput(fs)
	fs.StringVar(&f.journal, "journal", "", "`DIR` of the journal (default: the trace's name with .journal)")
	fs.BoolVar(&f.keepJournal, "keep-journal", false, "keep the journal after the trace is written, for moonloop compile")
	under(fs, "Output")

	fs.StringVar(&f.grpc, "grpc", "127.0.0.1:4317", "`ADDRESS` for OTLP over gRPC; port 0 picks a free port, an empty address disables it")
	fs.StringVar(&f.http, "http", "127.0.0.1:4318", "`ADDRESS` for OTLP over HTTP, likewise")
	f.listenSecrets.register(fs)
	fs.StringVar(&f.requestLimit, "request-limit", humanize.IBytes(defaultRequestLimit),
		"`MEMORY` that requests may take together while they are received; a sender above it is told to try again")
	fs.DurationVar(&f.duration, "duration", 0, "stop after this time (0 = on Ctrl-C)")
	fs.DurationVar(&f.idle, "idle", 0, "stop when no span has arrived for this time, after the first (0 = never)")
	under(fs, "Listening")

	fs.StringVar(&f.keyEnv, "key-env", hashKeyEnv, "name of the environment `VARIABLE` that holds the hash key")
	fs.StringArrayVar(&f.sessionKeys, "session-key", nil, "`ATTRIBUTE` that holds a session id, checked before the known ones (repeatable)")
	fs.StringArrayVar(&f.deny, "deny", nil, "`ATTRIBUTE` to remove from every span on arrival; a trailing * matches any ending (repeatable)")
	fs.IntVar(&f.BlockSize, "block-size", mooncake.BlockSize, "tokens per hash id of production requests; a replay keeps the block size of its trace")
	f.addRequests(fs, "")
	addPromptOrder(fs, &f.promptOrders, "")
	under(fs, "Requests")

	fs.StringVar(&f.progress, "progress", "auto", "progress on standard error: auto, bar, lines or none")
	under(fs, "Output")
	return cmd
}

// settings checks everything that can be checked without touching the network or the disk.
func (f *captureFlags) settings(cmd *cobra.Command) (capture.Options, collect.Config, []string, error) {
	var errs []error
	if f.grpc == "" && f.http == "" {
		errs = append(errs, errors.New("--grpc and --http are both empty: there is nothing to listen on"))
	}
	token, notices, err := f.listenSecrets.check(cmd.Context())
	if err != nil {
		errs = append(errs, err)
	}
	for _, l := range []struct{ flag, address string }{{"grpc", f.grpc}, {"http", f.http}} {
		if l.address == "" {
			continue
		}
		notice, err := checkListen(l.flag, l.address, f.missing())
		if err != nil {
			errs = append(errs, err)
		}
		if notice != "" {
			notices = append(notices, notice)
		}
	}
	limit, _ := humanize.ParseBytes(f.requestLimit) // its rule has read it, and bounds it
	orders, err := promptOrders(f.promptOrders, f.FollowEngine)
	errs = append(errs, err, checkAnnotation(annotate.Config{BlockSize: f.BlockSize, SessionKeys: f.sessionKeys, Deny: f.deny, PromptOrder: orders}))
	key, notice, err := hashKey(f.keyEnv)
	if err != nil {
		errs = append(errs, err)
	}
	if notice != "" {
		notices = append(notices, notice)
	}
	listen := collect.Config{
		GRPC: f.grpc, HTTP: f.http, TLS: collect.TLS{CertFile: f.cert, KeyFile: f.key, ClientCAFile: f.clientCA}, Token: token,
		RequestLimit: int64(limit), //nolint:gosec // see above
		BlockSize:    f.BlockSize, Key: key, SessionKeys: f.sessionKeys, Deny: f.deny, PromptOrders: orders, Version: version(),
	}
	return f.options(cmd), listen, notices, errors.Join(errs...)
}

// hashKey returns the key that the environment holds, or nothing and a notice: then a random one is to be taken.
func hashKey(env string) (key, notice string, err error) {
	switch key = strings.TrimSpace(os.Getenv(env)); {
	case key == "" && env == hashKeyEnv:
		return "", "no key in " + env + ": a random one is taken, under which these prompts match those of no other trace", nil
	case key == "":
		return "", "", fmt.Errorf("--key-env: environment variable %s is empty or not set; export it with the key", publicVariable(env))
	}
	if _, err := blockhash.NewKey([]byte(key)); err != nil {
		return "", "", hintError{fmt.Errorf("hash key in %s: %w", env, err), "openssl rand -hex 32 makes one"}
	}
	return key, "", nil
}
