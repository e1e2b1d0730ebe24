// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import "github.com/moonloop/moonloop/mooncake/transform"

// Spread says how rows that share a coarse timestamp are laid out over the step that it stands for. What it added stands on
// every span and record. A trace can be spread beforehand, too: [transform.Config].
type Spread = transform.Spread

// The ways to spread.
const (
	SpreadNone    = transform.SpreadNone
	SpreadUniform = transform.SpreadUniform
	SpreadEven    = transform.SpreadEven
)
