// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/extensionauth"
)

// bearerID names the bearer check among the extensions of a host.
var bearerID = component.MustNewID("bearer")

// bearer lets requests with the right key pass.
type bearer struct {
	component.StartFunc
	component.ShutdownFunc

	want [sha256.Size]byte
}

var _ extensionauth.Server = bearer{}

func newBearer(token string) bearer { return bearer{want: sha256.Sum256([]byte("Bearer " + token))} }

// Authenticate implements extensionauth.Server. Digests have one length, so that the time of a comparison tells nothing
// of the key. The error, which the sender gets, names no key.
func (b bearer) Authenticate(ctx context.Context, headers map[string][]string) (context.Context, error) {
	for name, values := range headers {
		if !strings.EqualFold(name, "Authorization") || len(values) != 1 {
			continue
		}
		scheme, key, _ := strings.Cut(values[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			continue
		}
		got := sha256.Sum256([]byte("Bearer " + key))
		if subtle.ConstantTimeCompare(got[:], b.want[:]) == 1 {
			return ctx, nil
		}
	}
	return ctx, errors.New("not authenticated: send the key of this capture as \"authorization: Bearer KEY\"")
}
