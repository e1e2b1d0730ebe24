// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/tlsfile"
	"github.com/moonloop/moonloop/study/referee"
)

// simulateFlags are the flags that are not the engine's configuration.
type simulateFlags struct {
	listen                string
	apiKeyEnv, apiKeyFile string
	tlsCert, tlsKey       string
	endWithStdin          bool
	grace                 time.Duration
	fast, recordWrites    bool
	roleFirst             bool
	like                  string
	faults                []string
	record                string
	judge                 judgeFlags
	run                   string
}

func newSimulateCommand() *cobra.Command {
	var f simulateFlags
	c := simulator.Config{Template: new(simulator.Template), Record: simulator.Recording{Keep: -1}} // nothing asks this process for records
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate an OpenAI-compatible engine, with a prefix cache, latencies and faults",
		Args:  noInputs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return simulate(cmd, c, f) },
	}
	simulateFlagSet(cmd, &c, &f)
	return cmd
}

func simulateFlagSet(cmd *cobra.Command, c *simulator.Config, f *simulateFlags) {
	fs := cmd.Flags()
	add(fs, &f.listen, "listen", "127.0.0.1:8000", that("host:port, such as 127.0.0.1:8000", isAddress))
	add(fs, &f.apiKeyEnv, "api-key-env", "", aVariable)
	add(fs, &f.apiKeyFile, "api-key-file", "", aFile)
	add(fs, &f.tlsCert, "tls-cert", "", aPEMFile)
	add(fs, &f.tlsKey, "tls-key", "", aPEMFile)
	add(fs, &f.endWithStdin, "end-with-stdin", false)
	add(fs, &f.grace, "grace", 5*time.Second, lasting(0, 24*time.Hour, "from 0 to 24h"))
	listVar(fs, &c.Models, "model", aModel)
	add(fs, &c.MaxModelLen, "max-model-len", 0)
	add(fs, &c.Seed, "seed", 0)
	wordVar(fs, &f.like, "like", "plain", "plain", "vllm", "llamacpp")
	add(fs, &f.fast, "fast", false)
	add(fs, &c.Latency.Prefill, "prefill", 20*time.Millisecond)
	add(fs, &c.Latency.PrefillPerToken, "prefill-per-token", 20*time.Microsecond)
	eitherVar(fs, &c.Latency.SerialPrefill, "prefill-lane", "parallel", "serial")
	add(fs, &c.Latency.Decode, "decode", 10*time.Millisecond)
	add(fs, &c.Latency.DecodePerSequence, "decode-per-sequence", 5*time.Microsecond)
	add(fs, &c.Latency.MaxBatch, "max-batch", 0)
	add(fs, &c.MaxRunning, "max-running", 0)
	add(fs, &c.MaxWaiting, "max-waiting", simulator.DefaultMaxWaiting)
	add(fs, &c.Cache.BlockSize, "block-size", simulator.DefaultBlockSize, whole(1, 1<<20))
	add(fs, &c.Cache.Blocks, "cache-blocks", 0, whole(0, 1<<31-2))
	add(fs, &c.Cache.Disabled, "no-prefix-cache", false)
	eitherVar(fs, &c.Cache.CommitAfterPrefill, "cache-commit", "admission", "prefill")
	add(fs, &c.Cache.RecomputeLast, "recompute-last", false)
	add(fs, &c.Cache.Replies, "cache-replies", false)
	add(fs, &c.Cache.Slots, "cache-slots", 0, whole(0, 1<<12))
	add(fs, &c.Cache.Saved, "cache-saved", 0, whole(0, 1<<31-2))
	add(fs, &c.Tokenizer.Vocabulary, "vocabulary", 0, whole(0, 1<<31))
	add(fs, &c.Tokenizer.WordBytes, "word-bytes", 0, whole(0, 1<<10))
	add(fs, &c.ErrorsInStream, "errors-in-stream", false)
	add(fs, &c.Template.PerMessage, "template-message", simulator.DefaultTemplate.PerMessage, whole(0, 1<<16))
	add(fs, &c.Template.PerPrompt, "template-prompt", simulator.DefaultTemplate.PerPrompt, whole(0, 1<<16))
	add(fs, &c.Template.SystemLast, "template-system-last", false)
	add(fs, &c.DefaultMaxTokens, "default-max-tokens", simulator.DefaultMaxTokens)
	add(fs, &c.EarlyStop, "early-stop", 0, share)
	add(fs, &c.ToolCalls, "tool-calls", 0, share)
	add(fs, &c.TokensPerChunk, "tokens-per-chunk", 1, whole(1, 1<<20))
	eitherVar(fs, &f.roleFirst, "role-chunk", "first-token", "immediately")
	listVar(fs, &f.faults, "fault", that("name=share, where name is one of the list in --help, such as rate-limit=0.01", isFault))
	add(fs, &c.Faults.After, "fault-after", 0)
	add(fs, &c.Faults.RetryAfter, "retry-after", simulator.DefaultRetryAfter)
	add(fs, &c.Faults.StallFor, "stall-for", 0)
	add(fs, &c.BodyLimit, "body-limit", simulator.DefaultBodyLimit, whole(1, 1<<40))
	add(fs, &c.BodyTimeout, "body-timeout", simulator.DefaultBodyTimeout)
	add(fs, &f.record, "record", "", aFile)
	add(fs, &f.recordWrites, "record-writes", true)
	add(fs, &c.Record.Bodies, "record-bodies", false)
	add(fs, &c.Record.Blocks, "record-blocks", false)
	listVar(fs, &c.Record.Headers, "record-header", that("the name of a header that holds no key", isRecordable))
	f.judge.register(fs)
	add(fs, &f.run, "run", "", anyText("a command of the shell that sends requests to {url}"))
}

func faultHelp() string {
	var b strings.Builder
	names, about, effects := simulator.FaultNames()
	for i, name := range names {
		if i == 0 || effects[i] != effects[i-1] {
			fmt.Fprintf(&b, "  %s:\n", effects[i])
		}
		fmt.Fprintf(&b, "    %-17s %s\n", name, about[i])
	}
	return b.String()
}

// apply completes the configuration with the flags that need a check.
func (f *simulateFlags) apply(ctx context.Context, fs *pflag.FlagSet, c *simulator.Config) error {
	switch f.like {
	case "vllm":
		liken(fs, c, simulator.VLLM())
	case "llamacpp":
		liken(fs, c, simulator.LlamaCPP())
	}
	if f.roleFirst {
		c.RoleChunk = simulator.RoleImmediately
	}
	if f.fast {
		c.Latency = simulator.Latency{}
	}
	c.Record.NoWrites = !f.recordWrites
	c.Faults.Rates = make(map[simulator.Fault]float64)
	for _, fault := range f.faults {
		name, part, _ := strings.Cut(fault, "=")
		c.Faults.Rates[simulator.Fault(name)], _ = parseFloat(part) // the flag's rule has parsed it already
	}
	var err error
	c.APIKey, err = readKey(ctx, apiKey, f.apiKeyEnv, f.apiKeyFile)
	wrong := c.Validate()
	if wrong != nil {
		wrong = errors.New(simulatorFlags.Replace(wrong.Error()))
	}
	return errors.Join(err, wrong)
}

// simulatorFlags replaces the fields that an error of a simulator's configuration names by their flags. What is wrong with one flag alone is
// found before.
var simulatorFlags = strings.NewReplacer("simulator: ", "", "Cache.Blocks", "--cache-blocks", "Cache.Slots", "--cache-slots", "Cache.Saved", "--cache-saved",
	"MaxRunning", "--max-running")

// liken copies the behaviour of an engine, except for what a flag sets.
func liken(fs *pflag.FlagSet, c *simulator.Config, engine simulator.Config) {
	c.Like = engine.Like
	for name, copySetting := range map[string]func(){
		"block-size":       func() { c.Cache.BlockSize = engine.Cache.BlockSize },
		"cache-replies":    func() { c.Cache.Replies = engine.Cache.Replies },
		"recompute-last":   func() { c.Cache.RecomputeLast = engine.Cache.RecomputeLast },
		"cache-slots":      func() { c.Cache.Slots = engine.Cache.Slots },
		"cache-saved":      func() { c.Cache.Saved = engine.Cache.Saved },
		"vocabulary":       func() { c.Tokenizer.Vocabulary = engine.Tokenizer.Vocabulary },
		"word-bytes":       func() { c.Tokenizer.WordBytes = engine.Tokenizer.WordBytes },
		"errors-in-stream": func() { c.ErrorsInStream = engine.ErrorsInStream },
	} {
		if !fs.Changed(name) {
			copySetting()
		}
	}
}

// simulate serves until the command's context ends.
func simulate(cmd *cobra.Command, c simulator.Config, f simulateFlags) (err error) {
	ctx := cmd.Context()
	if err := f.apply(ctx, cmd.Flags(), &c); err != nil {
		return err
	}
	if f.endWithStdin {
		ctx = untilEnd(ctx, cmd.InOrStdin())
	}
	certificate, err := unlessInterrupted(ctx, func() (*tls.Certificate, error) {
		return tlsfile.Pair(tlsfile.File{From: "--tls-cert", Name: f.tlsCert}, tlsfile.File{From: "--tls-key", Name: f.tlsKey})
	}, f.tlsCert, f.tlsKey)
	if err != nil {
		return err
	}
	schedule, forget, err := f.prepareJudge(ctx, cmd, &c)
	if err != nil {
		return err
	}
	defer forget()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return hintError{fmt.Errorf("listen on %s: %w", f.listen, err), "--listen 127.0.0.1:0 picks a free port"}
	}
	defer listener.Close() //nolint:errcheck // the server has closed it already, unless we fail before
	if f.record != "" {    // only now, so that a mistake on the command line does not cost an earlier record
		file, err := os.OpenFile(f.record, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("record file: %w", err)
		}
		defer file.Close() //nolint:errcheck // it was closed below, unless we fail before
		c.Record.To = file
	}
	engine, err := simulator.New(c)
	if err != nil {
		return err
	}
	if host, _, err := net.SplitHostPort(listener.Addr().String()); err == nil && c.APIKey == "" && !net.ParseIP(host).IsLoopback() {
		fmt.Fprintln(cmd.ErrOrStderr(), "moonloop: warning: other machines can use this engine, without a key: see --api-key-env")
	}
	scheme := "http"
	server := engine.NewServer()
	if certificate != nil {
		scheme = "https"
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*certificate}}
	}
	address := scheme + "://" + listener.Addr().String()
	fmt.Fprintf(cmd.OutOrStdout(), "listening on %s\n", address)
	ran, failed := f.serve(ctx, address, cmd.ErrOrStderr(), func(serving context.Context) error {
		return errors.Join(serveUntil(serving, server, engine.Stamped(listener), f.grace), engine.Close())
	})
	if file, ok := c.Record.To.(*os.File); ok {
		failed = errors.Join(failed, file.Close())
	}
	if failed != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "moonloop: error: %v\n", failed)
		return exitWith(exitGoals)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), engine.Stats())
	if schedule != nil { // ctx may have ended, which is how serving ends
		if err := f.judge.decide(context.WithoutCancel(ctx), schedule, f.record, cmd.OutOrStdout()); err != nil {
			printError(cmd.ErrOrStderr(), err)
			return exitWith(exitUsage)
		}
	}
	if ran != nil && ctx.Err() == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "moonloop: error: the command of --run failed: %v\n", ran)
		return exitWith(exitGoals)
	}
	return nil
}

// untilEnd returns a context that also ends when the input ends.
func untilEnd(ctx context.Context, input io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	return ctx
}

// serve serves until ctx ends, or until the command of --run has ended. If serving fails, it ends the command. ran is the error of the
// command, failed that of serving.
func (f *simulateFlags) serve(ctx context.Context, address string, stderr io.Writer, serve func(context.Context) error) (ran, failed error) {
	if f.run == "" {
		return nil, serve(ctx)
	}
	both, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer stop()
		ran = shell(both, strings.ReplaceAll(f.run, "{url}", address), stderr)
	}()
	failed = serve(both)
	stop()
	<-ended
	return ran, failed
}

// prepareJudge reads the schedule of a judgement, if one is asked for, and makes the engine record what the judgement needs, in a temporary
// file if none is named. forget removes the temporary file.
func (f *simulateFlags) prepareJudge(ctx context.Context, cmd *cobra.Command, c *simulator.Config) (schedule *referee.Schedule, forget func(), err error) {
	if !f.judge.given() {
		if name := f.judge.needless(cmd.Flags()); name != "" {
			return nil, nil, fmt.Errorf("--%s is about a judgement: give --judge rate=R or --judge TRACE, too", name)
		}
		return nil, func() {}, nil
	}
	if schedule, err = f.judge.schedule(ctx, cmd.InOrStdin()); err != nil {
		return nil, nil, err
	}
	if !f.recordWrites && f.judge.export != "" {
		return nil, nil, errors.New("--export is compared with the times at which tokens were written, and --record-writes=false leaves these out: give one of the two")
	}
	if !slices.Contains(c.Record.Headers, vegetaSeq) {
		c.Record.Headers = append(slices.Clone(c.Record.Headers), vegetaSeq)
	}
	if f.record != "" {
		return schedule, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "moonloop-referee-")
	if err != nil {
		return nil, nil, fmt.Errorf("the engine's record needs a temporary folder: %w", err)
	}
	f.record = filepath.Join(dir, "record.jsonl")
	return schedule, func() { _ = os.RemoveAll(dir) }, nil
}

// vegetaSeq is the header with vegeta's request number.
const vegetaSeq = "X-Vegeta-Seq"

// serveUntil serves until ctx ends, lets requests in flight finish within grace, and then breaks them off.
func serveUntil(ctx context.Context, server *http.Server, listener net.Listener, grace time.Duration) error {
	failed := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			failed <- server.ServeTLS(listener, "", "")
			return
		}
		failed <- server.Serve(listener)
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		_ = server.Close() // the time is over
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
