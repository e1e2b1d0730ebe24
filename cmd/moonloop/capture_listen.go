// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"strings"
)

// checkListen checks an address to listen on, which nothing is done with yet. The notice is for addresses that other
// machines can reach: these must be named, and cannot be meant by leaving the host out. Missing is what guards it not.
func checkListen(flag, address, missing string) (notice string, err error) {
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return "", fmt.Errorf("--%s %q: want host:port, such as 127.0.0.1:4317", flag, address)
	case host == "":
		return "", hintError{
			fmt.Errorf("--%s %q would listen on every network that this machine is in", flag, address),
			fmt.Sprintf("--%s 127.0.0.1%s, or --%s 0.0.0.0%s if other machines shall send", flag, address, flag, address),
		}
	case isLoopback(host), missing == "":
		return "", nil
	}
	return fmt.Sprintf("warning: other machines can send telemetry to %s, %s", address, missing), nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
