// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/internal/tlsfile"
)

// maxSecretFile bounds a file with a key or with headers, in bytes. Servers refuse headers that are far shorter.
const maxSecretFile = 64 << 10

// Why a file of secrets cannot be used, in addition to the system's errors.
var (
	errFolder = errors.New("it is a directory")
	errEmpty  = errors.New("the file is empty")
)

func readSecretFile(ctx context.Context, name string) (string, error) {
	return readSmallFile(ctx, name, maxSecretFile)
}

// readSmallFile reads a file of at most this many bytes. The file may be a pipe, such as a shell's <(command): when ctx ends, readSmallFile
// stops waiting for a writer.
func readSmallFile(ctx context.Context, name string, most int64) (string, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return "", errFolder
	}
	f, err := openInput(ctx, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	switch text := strings.TrimPrefix(string(content), "\ufeff"); {
	case err != nil:
		return "", err
	case int64(len(content)) > most:
		return "", fmt.Errorf("the file has more than %d KiB", most>>10)
	case strings.TrimSpace(text) == "":
		return "", errEmpty
	default:
		return text, nil
	}
}

// unlessInterrupted returns the result of read, which reads the files. If one of them is a pipe that nobody writes to, it returns an
// error when ctx ends, and leaves read running.
func unlessInterrupted[T any](ctx context.Context, read func() (T, error), files ...string) (T, error) {
	if !slices.ContainsFunc(files, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && !info.Mode().IsRegular()
	}) {
		return read()
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := read()
		done <- outcome{value, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, errInterrupted
	}
}

// clientTLS builds the TLS configuration from the client's flags. It returns nil if none is given: then the system's authorities are
// trusted.
func clientTLS(ctx context.Context, ca, cert, key string, insecure bool) (*tls.Config, error) {
	c, err := unlessInterrupted(ctx, tlsfile.Files{
		CA: tlsfile.File{From: "--ca-file", Name: ca}, Cert: tlsfile.File{From: "--cert-file", Name: cert}, Key: tlsfile.File{From: "--key-file", Name: key},
	}.Load, ca, cert, key)
	if err != nil {
		return nil, err
	}
	if insecure {
		if ca != "" {
			return nil, errors.New("--insecure-skip-verify: it trusts any server, so --ca-file would have no effect; leave one out")
		}
		if c == nil {
			c = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		c.InsecureSkipVerify = true
	}
	return c, nil
}

// exposure returns a warning for each file with secrets that other users can read.
func exposure(flagsAndFiles ...[2]string) (warnings []string) {
	for _, f := range flagsAndFiles {
		if f[1] != "" && tlsfile.Exposed(f[1]) {
			warnings = append(warnings, fmt.Sprintf("%s %s: other users of this machine can read or change it; chmod 600 prevents that", f[0], f[1]))
		}
	}
	return warnings
}

// checkScheme returns an error if TLS flags are given for an http:// URL, because a user who gives them expects encryption. It returns
// a warning if a secret, which the caller names, would be sent over a network unencrypted.
func checkScheme(target string, c *tls.Config, secret string) (warning string, err error) {
	u, err := url.Parse(target)
	switch {
	case err != nil || u.Scheme != "http": //nolint:nilerr // checkURL reports an unreadable URL
		return "", nil
	case c != nil:
		return "", errors.New("--ca-file, --cert-file, --key-file and --insecure-skip-verify are for URLs that begin with https://, but this URL begins with http://: correct it, or leave the flags out")
	case secret != "" && !isLoopback(u.Hostname()):
		return fmt.Sprintf("%s goes to %s unencrypted: the URL begins with http://", secret, u.Host), nil
	}
	return "", nil
}

// apiKey is the beginning of the names of the flags for a key's source.
const apiKey = "api-key"

// readKey reads a bearer key, or a token, from the source that the flag --NAME-env or --NAME-file names. A key is never a flag's value,
// because every user of a machine can see command lines.
func readKey(ctx context.Context, name, env, file string) (string, error) {
	byEnv, byFile := "--"+name+"-env", "--"+name+"-file"
	noun := strings.TrimPrefix(name, "api-")
	switch {
	case env != "" && file != "":
		return "", fmt.Errorf("%s and %s: each gives the %s; leave one out", byEnv, byFile, noun)
	case env != "":
		key := strings.TrimSpace(os.Getenv(env))
		if key == "" {
			return "", fmt.Errorf("%s: environment variable %s is empty or not set; export it with the %s", byEnv, publicVariable(env), noun)
		}
		return checkKey(byEnv, noun, key)
	case file != "":
		key, err := readSecretFile(ctx, file)
		if err != nil {
			return "", fmt.Errorf("%s %s: %s; name a file that holds the %s", byFile, publicFile(file), reason(err), noun)
		}
		return checkKey(byFile, noun, key)
	}
	return "", nil
}

// checkKey returns the key if it is valid in a header. Its error does not contain the key; noun is what it calls the key.
func checkKey(flag, noun, key string) (string, error) {
	key = strings.TrimSpace(key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: the %[2]s has a space, a line end or another character that a %[2]s cannot have; give only the %[2]s, without \"Bearer\"", flag, noun)
	}
	return key, nil
}
