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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/tlsfile"
)

// simulateFlags are the flags that are not fields of the engine's configuration as they stand.
type simulateFlags struct {
	listen                string
	apiKeyEnv, apiKeyFile string
	tlsCert, tlsKey       string
	endWithStdin          bool
	grace                 time.Duration
	fast                  bool
	template              simulator.Template
	like                  string
	prefillLane           string
	cacheCommit           string
	roleChunk             string
	faults                []string
	record                string
	recordWrites          bool
}

func newSimulateCommand() *cobra.Command {
	var f simulateFlags
	var c simulator.Config
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
	fs.SortFlags = false
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8000", "`ADDRESS` to listen on; port 0 picks a free port")
	fs.StringVar(&f.apiKeyEnv, "api-key-env", "", "name of the environment `VARIABLE` that holds the bearer key that clients must present")
	fs.StringVar(&f.apiKeyFile, "api-key-file", "", "`FILE` that holds the bearer key that clients must present")
	fs.StringVar(&f.tlsCert, "tls-cert", "", "PEM `FILE` of the server's certificate chain")
	fs.StringVar(&f.tlsKey, "tls-key", "", "PEM `FILE` of the server's private key")
	fs.BoolVar(&f.endWithStdin, "end-with-stdin", false, "stop when standard input ends, for a parent process that may be killed")
	fs.DurationVar(&f.grace, "grace", 5*time.Second, "time for running requests to finish after a signal")
	fs.StringArrayVar(&c.Models, "model", nil, "`NAME` of a model to serve, repeatable (default: every name is accepted)")
	fs.IntVar(&c.MaxModelLen, "max-model-len", 0, "maximum tokens of prompt and reply together (0 = no limit)")
	fs.Uint64Var(&c.Seed, "seed", 0, "seed of replies, early stops and faults")
	under(fs, "Server")

	fs.StringVar(&f.like, "like", "plain", "engine to imitate: plain, vllm, or llamacpp; sets other flags where they are not given, see ENGINES")
	under(fs, "Engine")

	fs.BoolVar(&f.fast, "fast", false, "no latency; the next six flags have no effect")
	fs.DurationVar(&c.Latency.Prefill, "prefill", 20*time.Millisecond, "prefill time of every prompt")
	fs.DurationVar(&c.Latency.PrefillPerToken, "prefill-per-token", 20*time.Microsecond, "prefill time of each token not cached")
	fs.StringVar(&f.prefillLane, "prefill-lane", "parallel", "parallel, or serial: one prefill at a time")
	fs.DurationVar(&c.Latency.Decode, "decode", 10*time.Millisecond, "time of a decode step")
	fs.DurationVar(&c.Latency.DecodePerSequence, "decode-per-sequence", 5*time.Microsecond, "time that each sequence adds to a decode step")
	fs.IntVar(&c.Latency.MaxBatch, "max-batch", 0, "maximum sequences in a decode step; more take turns (0 = no limit)")
	fs.IntVar(&c.MaxRunning, "max-running", 0, "maximum running requests; more wait (0 = no limit)")
	fs.IntVar(&c.MaxWaiting, "max-waiting", simulator.DefaultMaxWaiting, "maximum waiting requests; more get status 429")
	under(fs, "Latency")

	fs.IntVar(&c.Cache.BlockSize, "block-size", simulator.DefaultBlockSize, "tokens per cache block")
	fs.IntVar(&c.Cache.Blocks, "cache-blocks", 0, "capacity of the prefix cache in blocks (0 = infinite: memory grows with the prompts)")
	fs.BoolVar(&c.Cache.Disabled, "no-prefix-cache", false, "disable the prefix cache")
	fs.StringVar(&f.cacheCommit, "cache-commit", "admission", "when blocks become visible to other requests: admission, or prefill (at its end)")
	fs.BoolVar(&c.Cache.RecomputeLast, "recompute-last", false, "never serve the last prompt token from the cache")
	fs.BoolVar(&c.Cache.Replies, "cache-replies", false, "keep generated tokens in the cache, except for the last of each reply")
	fs.IntVar(&c.Cache.Slots, "cache-slots", 0, "slots that each cache the last request they served, in place of one cache (0 = one cache)")
	fs.IntVar(&c.Cache.Saved, "cache-saved", 0, "blocks to save of what slots lose (0 = none)")
	fs.IntVar(&c.Tokenizer.Vocabulary, "vocabulary", 0, "number of token ids; a prompt with another id is refused (0 = 2^31)")
	fs.IntVar(&c.Tokenizer.WordBytes, "word-bytes", 0, "longest word that is one token, in bytes; a longer one is several (0 = every word is one)")
	fs.BoolVar(&c.ErrorsInStream, "errors-in-stream", false, "refuse token ids outside the vocabulary inside the stream, with status 200")
	fs.IntVar(&f.template.PerMessage, "template-message", simulator.DefaultTemplate.PerMessage, "template tokens of each message")
	fs.IntVar(&f.template.PerPrompt, "template-prompt", simulator.DefaultTemplate.PerPrompt, "template tokens of each chat")
	fs.BoolVar(&f.template.SystemLast, "template-system-last", false, "put the system text into the last user message, before its own text")
	under(fs, "Cache and tokens")

	fs.IntVar(&c.DefaultMaxTokens, "default-max-tokens", simulator.DefaultMaxTokens, "reply length of requests without a limit, in tokens")
	fs.Float64Var(&c.EarlyStop, "early-stop", 0, "share of requests without ignore_eos that stop early, 0 to 1")
	fs.Float64Var(&c.ToolCalls, "tool-calls", 0, "share of requests with tools that are answered by a tool call, 0 to 1")
	fs.IntVar(&c.TokensPerChunk, "tokens-per-chunk", 1, "tokens per chunk, after the first")
	fs.StringVar(&f.roleChunk, "role-chunk", "first-token", "when the role of a chat reply is sent: first-token, or immediately")
	under(fs, "Replies")

	fs.StringArrayVar(&f.faults, "fault", nil, "share of requests with a fault, `name=share` (repeatable)")
	fs.IntVar(&c.Faults.After, "fault-after", 0, "tokens before a stream breaks (0 = half of the reply)")
	fs.DurationVar(&c.Faults.RetryAfter, "retry-after", simulator.DefaultRetryAfter, "Retry-After of the faults rate-limit and unavailable")
	fs.DurationVar(&c.Faults.StallFor, "stall-for", 0, "length of a stall (0 = until the client disconnects) and of slow-accept (0 = --body-timeout)")
	under(fs, "Faults")

	fs.Int64Var(&c.BodyLimit, "body-limit", simulator.DefaultBodyLimit, "maximum size of a request body, in bytes")
	fs.DurationVar(&c.BodyTimeout, "body-timeout", simulator.DefaultBodyTimeout, "maximum time for a request body to arrive")
	fs.StringVar(&f.record, "record", "", "`FILE` for a JSON line per request: what was received, and what was sent when")
	fs.BoolVar(&f.recordWrites, "record-writes", true, "record the time of every write")
	fs.BoolVar(&c.Record.Bodies, "record-bodies", false, "record request bodies, which contain the prompts")
	fs.BoolVar(&c.Record.Blocks, "record-blocks", false, "record the block ids of prompts")
	fs.StringArrayVar(&c.Record.Headers, "record-header", nil, "`NAME` of a request header to record (repeatable)")
	under(fs, "Bodies and records")
}

func faultHelp() string {
	var b strings.Builder
	names, about := simulator.FaultNames()
	for i, name := range names {
		fmt.Fprintf(&b, "  %-18s %s\n", name, about[i])
	}
	return b.String()
}

// liken takes over what an engine does and no flag says.
func liken(fs *pflag.FlagSet, c *simulator.Config, engine simulator.Config) {
	c.Like = engine.Like
	for name, take := range map[string]func(){
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
			take()
		}
	}
}

// apply completes the configuration with the flags that need a look.
func (f *simulateFlags) apply(ctx context.Context, fs *pflag.FlagSet, c *simulator.Config) error {
	var errs []error
	switch f.like {
	case "vllm":
		liken(fs, c, simulator.VLLM())
	case "llamacpp":
		liken(fs, c, simulator.LlamaCPP())
	}
	c.Latency.SerialPrefill = f.prefillLane == "serial"
	c.Cache.CommitAfterPrefill = f.cacheCommit == "prefill"
	if f.roleChunk == "immediately" {
		c.RoleChunk = simulator.RoleImmediately
	}
	if f.fast {
		c.Latency = simulator.Latency{}
	}
	template := f.template
	c.Template = &template
	c.Record.NoWrites = !f.recordWrites
	c.Record.Keep = -1 // nobody asks this process for them
	if len(f.faults) > 0 {
		c.Faults.Rates = make(map[simulator.Fault]float64)
	}
	for _, fault := range f.faults {
		name, share, _ := strings.Cut(fault, "=")
		c.Faults.Rates[simulator.Fault(name)], _ = strconv.ParseFloat(share, 64) // its rule has read it
	}
	var err error
	if c.APIKey, err = readKey(ctx, f.apiKeyEnv, f.apiKeyFile); err != nil {
		errs = append(errs, err)
	}
	if err := c.Validate(); err != nil {
		errs = append(errs, errors.New(strings.ReplaceAll(err.Error(), "simulator: ", "")))
	}
	return errors.Join(errs...)
}

// simulate serves until the command's context ends.
func simulate(cmd *cobra.Command, c simulator.Config, f simulateFlags) (err error) {
	ctx := cmd.Context()
	if err := f.apply(ctx, cmd.Flags(), &c); err != nil {
		return err
	}
	if f.endWithStdin {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, cmd.InOrStdin())
			cancel()
		}()
	}
	certificate, err := unlessInterrupted(ctx, f.certificate, f.tlsCert, f.tlsKey)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return hintError{fmt.Errorf("listen on %s: %w", f.listen, err), "--listen 127.0.0.1:0 takes a free port"}
	}
	defer listener.Close() //nolint:errcheck // the server has closed it already, unless we fail before
	if f.record != "" {    // only now: a mistake on the command line must not cost an earlier record
		file, err := os.OpenFile(f.record, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("record file: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
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
	fmt.Fprintf(cmd.OutOrStdout(), "listening on %s://%s\n", scheme, listener.Addr())
	if err := serveUntil(ctx, server, engine.Stamped(listener), f.grace); err != nil {
		return simulateFailed(cmd.ErrOrStderr(), err)
	}
	if err := engine.Close(); err != nil {
		return simulateFailed(cmd.ErrOrStderr(), err)
	}
	fmt.Fprintln(cmd.ErrOrStderr(), engine.Stats())
	return nil
}

// simulateFailed reports what went wrong after the start, which is exit status 1.
func simulateFailed(stderr io.Writer, err error) error {
	fmt.Fprintf(stderr, "moonloop: error: %v\n", err)
	return exitWith(exitGoals)
}

// certificate loads the server's certificate; nil when there is none.
func (f *simulateFlags) certificate() (*tls.Certificate, error) {
	return tlsfile.Pair(tlsfile.File{From: "--tls-cert", Name: f.tlsCert}, tlsfile.File{From: "--tls-key", Name: f.tlsKey})
}

// serveUntil serves until ctx ends, lets requests under way finish within grace, and then breaks them off.
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
