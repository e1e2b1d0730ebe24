// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/collect"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// hashKeyEnv is the default environment variable of the key.
const hashKeyEnv = "MOONLOOP_HASH_KEY"

// defaultRequestLimit is the default memory of all OTLP requests being received, in bytes: four times the largest one.
const defaultRequestLimit = 4 * receiver.MaxMessage

// captureFlags are the flags of "moonloop capture".
type captureFlags struct {
	traceFlags
	journal     string
	keepJournal bool
	grpc, http  string
	listenSecrets
	requestLimit                 int64 // bytes
	duration, idle               time.Duration
	keyEnv                       string
	sessionKeys, classKeys, deny []string
	promptOrders                 []string
	progress                     string
}

func newCaptureCommand() *cobra.Command {
	var f captureFlags
	cmd := &cobra.Command{
		Use:   "capture --out TRACE",
		Short: "Listen for OpenTelemetry data and write a trace of its model requests",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return hintError{fmt.Errorf("capture listens and reads no files: %q has no meaning here", args[0]), "--out names the trace"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runCapture(cmd, f) },
	}
	fs := cmd.Flags()
	f.addOutput(fs)
	add(fs, &f.journal, "journal", "", anyText("the name of a folder"))
	add(fs, &f.keepJournal, "keep-journal", false)
	add(fs, &f.grpc, "grpc", "127.0.0.1:4317", rule{want: `host:port, such as 127.0.0.1:4317, or "" not to listen`, ok: isAddress, emptyMeans: true})
	add(fs, &f.http, "http", "127.0.0.1:4318", rule{want: `host:port, such as 127.0.0.1:4318, or "" not to listen`, ok: isAddress, emptyMeans: true})
	f.listenSecrets.register(fs)
	bytesVar(fs, &f.requestLimit, "request-limit", defaultRequestLimit, 1<<20, "of at least 1MiB")
	add(fs, &f.duration, "duration", 0)
	add(fs, &f.idle, "idle", 0)
	add(fs, &f.keyEnv, "key-env", hashKeyEnv, aVariable)
	listVar(fs, &f.sessionKeys, "session-key", anAttribute)
	listVar(fs, &f.classKeys, "class-key", anAttribute)
	listVar(fs, &f.deny, "deny", anyText("the name of an attribute, or its beginning and a *"))
	add(fs, &f.BlockSize, "block-size", mooncake.BlockSize, blockSize)
	f.addRequests(fs)
	addPromptOrder(fs, &f.promptOrders)
	wordVar(fs, &f.progress, "progress", "auto", "auto", "bar", "lines", "none")
	return cmd
}

// settings checks everything that can be checked without using the network or writing to the disk. An empty notice means none.
func (f *captureFlags) settings(ctx context.Context) (listen collect.Config, notices []string, err error) {
	var errs []error
	found := func(notice string, err error) { notices, errs = append(notices, notice), append(errs, err) }
	if f.grpc == "" && f.http == "" {
		errs = append(errs, errors.New("--grpc and --http are both empty: there is nothing to listen on"))
	}
	token, notices, err := f.listenSecrets.check(ctx)
	errs = append(errs, err)
	found(checkListen("grpc", f.grpc, f.missing()))
	found(checkListen("http", f.http, f.missing()))
	orders, err := promptOrders(f.promptOrders, f.FollowEngine)
	annotation := annotate.Config{BlockSize: f.BlockSize, SessionKeys: f.sessionKeys, ClassKeys: f.classKeys, Deny: f.deny, PromptOrder: orders}
	errs = append(errs, err, checkAnnotation(annotation))
	key, notice, err := hashKey(f.keyEnv)
	found(notice, err)
	return collect.Config{
		GRPC: f.grpc, HTTP: f.http, TLS: collect.TLS{CertFile: f.cert, KeyFile: f.key, ClientCAFile: f.clientCA}, Token: token,
		RequestLimit: f.requestLimit, BlockSize: f.BlockSize, Key: key, SessionKeys: f.sessionKeys, ClassKeys: f.classKeys, Deny: f.deny,
		PromptOrders: orders, Version: version(),
		Journal: cmp.Or(f.journal, collect.JournalFolder(f.out)),
	}, notices, errors.Join(errs...)
}

// hashKey returns the key in the environment, or "" and a notice: then a random key must be used. A key that a Collector would change also
// has a notice.
func hashKey(env string) (key, notice string, err error) {
	switch key = strings.TrimSpace(os.Getenv(env)); {
	case key == "" && env == hashKeyEnv:
		return "", "no key in " + env + ": a random key is used, so these prompts match those of no other trace", nil
	case key == "":
		return "", "", fmt.Errorf("--key-env: environment variable %s is empty or not set; export it with the key", publicVariable(env))
	}
	if _, err := blockhash.NewKey([]byte(key)); err != nil {
		return "", "", hintError{fmt.Errorf("hash key in %s: %w", env, err), "openssl rand -hex 32 makes one"}
	}
	if strings.Contains(key, "$$") || strings.Contains(key, "${") { // confmap also expands what a variable contains
		notice = "warning: the key in " + env + " has $$ or ${ in it. A Collector expands these when it reads ${env:" + env + "}, and then hashes with " +
			"another key: prompts of the two match nowhere. Use a key without $, such as the output of openssl rand -hex 32"
	}
	return key, notice, nil
}
