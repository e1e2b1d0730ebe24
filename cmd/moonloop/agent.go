// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/internal/service"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/internal/tlsfile"
)

// tokenEnv is the default environment variable of the service's token.
const tokenEnv = "MOONLOOP_TOKEN"

// minToken is the minimum length of a token, in bytes; a shorter one could be guessed.
const minToken = 16

// agentFlags are the flags of "moonloop agent".
type agentFlags struct {
	listen              string
	tokenEnv, tokenFile string
	noAuth              bool
	tlsCert, tlsKey     string

	service   service.Config
	targets   []string
	engine    engineSecrets
	telemetry telemetry.Config
	traceURL  string
}

func newAgentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent --allow-target URL",
		Short: "Serve an HTTP API that starts, watches and stops replays",
		Args:  noInputs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serveAgent(cmd, f) },
	}
	fs, c := cmd.Flags(), &f.service
	add(fs, &f.listen, "listen", "127.0.0.1:8090", that("host:port, such as 127.0.0.1:8090", isAddress))
	add(fs, &f.tokenEnv, "token-env", "", aVariable)
	add(fs, &f.tokenFile, "token-file", "", aFile)
	add(fs, &f.noAuth, "no-auth", false)
	add(fs, &f.tlsCert, "tls-cert", "", aPEMFile)
	add(fs, &f.tlsKey, "tls-key", "", aPEMFile)
	listVar(fs, &f.targets, "allow-target", reads("http://host:port or https://host:port", readTarget))
	add(fs, &c.Traces, "traces", "", anyText("a folder"))
	add(fs, &c.MaxRuns, "max-runs", 1, whole(1, 64))
	add(fs, &c.KeepRuns, "keep-runs", 20, whole(1, 10_000))
	bytesVar(fs, &c.MaxUpload, "max-upload", 64<<20, 1<<10, "of at least 1KiB")
	bytesVar(fs, &c.MaxDisk, "max-disk", 10<<30, 1<<20, "of at least 1MiB")
	f.engine.register(fs)
	add(fs, &f.telemetry.Endpoint, "otlp-endpoint", "", that("http://host:port or https://host:port", isEndpoint))
	wordVar(fs, &f.telemetry.Protocol, "otlp-protocol", "", telemetry.ProtocolGRPC, telemetry.ProtocolHTTP)
	// Prometheus' text format has no exponential histograms.
	f.telemetry.ExplicitHistograms = true
	histograms := textVar(fs, &f.telemetry.ExplicitHistograms, "histograms", "explicit", "", func(text string) (bool, error) { return text == "explicit", nil })
	histograms.rule = oneOf("explicit", "exponential")
	add(fs, &f.traceURL, "trace-url", "", aTraceURL)
	add(fs, &c.Folder, "out", "runs", anyText("a folder"))
	return cmd
}

// readTarget reads --allow-target.
func readTarget(text string) (*url.URL, error) {
	u, err := service.ParseTarget(text)
	return u, advised(err)
}

// settings checks everything that can be checked without touching the network or the results.
func (f *agentFlags) settings(ctx context.Context) (certificate *tls.Certificate, warnings []string, err error) {
	var errs []error
	refuse := func(when bool, text string) {
		if when {
			errs = append(errs, errors.New(text))
		}
	}
	refuse(len(f.targets) == 0, "--allow-target: none given; name each engine that runs may be sent to, such as http://engine:8000")
	for _, text := range f.targets {
		u, _ := service.ParseTarget(text) // its rule has parsed it
		f.service.Targets = append(f.service.Targets, u)
	}
	env := f.tokenEnv
	if env == "" && f.tokenFile == "" && !f.noAuth && os.Getenv(tokenEnv) != "" {
		env = tokenEnv
	}
	f.service.Token, err = readKey(ctx, "token", env, f.tokenFile)
	errs = append(errs, err)
	host, _, _ := net.SplitHostPort(f.listen)
	given := f.service.Token != "" || err != nil
	refuse(f.service.Token != "" && f.noAuth, "--no-auth with a token: leave one of the two out")
	refuse(f.noAuth && !isLoopback(host), "--no-auth: other machines can reach "+quoted(f.listen)+"; give a token, or listen on 127.0.0.1")
	refuse(!given && !f.noAuth, "no token: put one into "+tokenEnv+", such as $(openssl rand -hex 32), or name it with --token-file or --token-env; on this machine only, --no-auth needs none")
	refuse(f.service.Token != "" && len(f.service.Token) < minToken, fmt.Sprintf("the token has fewer than %d characters: it could be guessed; openssl rand -hex 32 makes one", minToken))
	_, err = checkListen("listen", f.listen, "")
	errs = append(errs, err)
	certificate, err = unlessInterrupted(ctx, func() (*tls.Certificate, error) {
		return tlsfile.Pair(tlsfile.File{From: "--tls-cert", Name: f.tlsCert}, tlsfile.File{From: "--tls-key", Name: f.tlsKey})
	}, f.tlsCert, f.tlsKey)
	errs = append(errs, err)
	if certificate == nil && err == nil && !isLoopback(host) {
		warnings = append(warnings, "the token goes over the network unencrypted (--tls-cert, --tls-key)")
	}
	warnings = append(warnings, exposure([2]string{"--token-file", f.tokenFile}, [2]string{"--tls-key", f.tlsKey},
		[2]string{"--api-key-file", f.engine.apiKeyFile}, [2]string{"--key-file", f.engine.key})...)
	// Everything that would prevent every run from starting is reported now.
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	for _, u := range f.service.Targets {
		engine := newRunRequest(f)
		engine.cfg.Target.URL = u.String()
		said, err := engine.engineSecrets.read(ctx, &engine.cfg.Target)
		warnings, errs = append(warnings, said...), append(errs, err)
	}
	return certificate, warnings, errors.Join(errs...)
}

// serveAgent serves until the command's context ends.
func serveAgent(cmd *cobra.Command, f agentFlags) error {
	ctx := cmd.Context()
	certificate, warnings, err := f.settings(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprint(cmd.ErrOrStderr(), term.Note(cmd.ErrOrStderr(), text))
	}
	warn := func(text string) { say("warning: " + text) }
	told := make(map[string]bool)
	for _, text := range warnings {
		if !told[text] {
			warn(text)
		}
		told[text] = true
	}
	defer telemetry.CatchSDK(warn)()
	defer startPace().Stop()
	f.service.Version, f.service.Log = version(), say
	f.service.Options, f.service.Prepare = runOptions(), f.prepare
	s, err := service.New(f.service)
	if err != nil {
		return err
	}
	defer s.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return hintError{fmt.Errorf("listen on %s: %w", f.listen, err), "--listen 127.0.0.1:0 picks a free port"}
	}
	scheme, server := "http", &http.Server{} //nolint:gosec // Serve sets its times
	if certificate != nil {
		scheme, server.TLSConfig = "https", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*certificate}}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "listening on %s://%s\n", scheme, listener.Addr())
	if err := s.Serve(ctx, listener, server); err != nil {
		say("error: " + err.Error())
		return exitWith(exitGoals)
	}
	return nil
}

// The flags of "moonloop replay" that no request may set: those of the service, those that concern its files, keys and memory, those that
// make another trace first, with temporary files of any size, shard: a run has its own id, and shards of different ids are not merged, and
// clock-reference, which sends packets to an address that --allow-target does not name.
const servicesOwn = `from transform shard url balance dry-run out force no-report-page run-id progress as percentiles quarantine save-prompts dataset tokenizer lookahead carry-memory
	header header-env api-key-env api-key-file ca-file cert-file key-file insecure-skip-verify otlp-endpoint otlp-protocol histograms trace-url
	config print-config table xlsx parquet slice runs runs-fresh runs-pause runs-warmup resume request-rate-series engine-post clock-reference help`

func isRunOption(f *pflag.Flag) bool {
	for name := range strings.FieldsSeq(servicesOwn) {
		if f.Name == name {
			return false
		}
	}
	return true
}
