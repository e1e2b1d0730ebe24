// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/extensionauth"

	"github.com/moonloop/moonloop/internal/bearer"
)

// bearerID names the bearer check among the extensions of a host.
var bearerID = component.MustNewID("bearer")

// guard accepts requests with the right key.
type guard struct {
	component.StartFunc
	component.ShutdownFunc

	key bearer.Key
}

var _ extensionauth.Server = guard{}

// Authenticate implements extensionauth.Server. The sender gets its error, which does not contain a key.
func (g guard) Authenticate(ctx context.Context, headers map[string][]string) (context.Context, error) {
	for name, values := range headers {
		if strings.EqualFold(name, "Authorization") && len(values) == 1 && g.key.Matches(values[0]) {
			return ctx, nil
		}
	}
	return ctx, errors.New("not authenticated: send the key of this capture as \"authorization: Bearer KEY\"")
}
