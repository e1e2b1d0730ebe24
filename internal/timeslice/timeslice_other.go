// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package timeslice

func shorten() {}
