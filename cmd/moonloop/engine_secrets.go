// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent"
)

// engineSecrets are the flags for the secrets that an engine requires, and for its certificates and ours.
type engineSecrets struct {
	headers               headerFlags
	apiKeyEnv, apiKeyFile string
	ca, cert, key         string
	insecure              bool
}

func (f *engineSecrets) register(fs *pflag.FlagSet) {
	listVar(fs, &f.headers.lines, "header,H", rule{want: `"Name: value" or @FILE`, ok: isHeader, secret: true, long: true})
	listVar(fs, &f.headers.env, "header-env", rule{want: "Name=VARIABLE, such as Authorization=MY_HEADER", ok: isHeaderVariable, secret: true})
	add(fs, &f.apiKeyEnv, "api-key-env", "", aVariable)
	add(fs, &f.apiKeyFile, "api-key-file", "", aFile)
	add(fs, &f.ca, "ca-file", "", aPEMFile)
	add(fs, &f.cert, "cert-file", "", aPEMFile)
	add(fs, &f.key, "key-file", "", aPEMFile)
	add(fs, &f.insecure, "insecure-skip-verify", false)
}

// read reads the secrets into the target of a replay.
func (f *engineSecrets) read(ctx context.Context, t *agent.Target) (warnings []string, err error) {
	var errs [4]error
	t.Header, warnings, errs[0] = f.headers.parse(ctx)
	t.APIKey, errs[1] = readKey(ctx, apiKey, f.apiKeyEnv, f.apiKeyFile)
	t.TLS, errs[2] = clientTLS(ctx, f.ca, f.cert, f.key, f.insecure)
	for _, address := range t.URLs() {
		unencrypted, err := checkScheme(address, t.TLS, secretIn(t))
		if unencrypted != "" {
			warnings = append(warnings, unencrypted)
		}
		errs[3] = cmp.Or(errs[3], err)
	}
	return warnings, errors.Join(errs[:]...)
}

// secretIn names a secret that is sent to the engine; "" if there is none.
func secretIn(t *agent.Target) string {
	if t.APIKey != "" {
		return "the API key"
	}
	for _, name := range slices.Sorted(maps.Keys(t.Header)) {
		if secretHeader.MatchString(name) {
			return "header " + name
		}
	}
	return ""
}
