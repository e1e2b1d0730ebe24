// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package telemetry

const raceDetector = false
