// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strings"
	"testing"
)

// TestTargets: the requests of runs go only to listed targets, however a URL is spelled.
func TestTargets(t *testing.T) {
	var targets Targets
	for _, text := range []string{"http://Engine:80", "https://gateway/team-a/"} {
		u, err := ParseTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, u)
	}
	for text, want := range map[string]string{
		"http://engine":                     "",
		"http://ENGINE:80/v1":               "",
		"https://gateway:443/team-a":        "",
		"https://gateway/team-a/v1/":        "",
		"":                                  "has 2 engines",
		"https://engine":                    "sends nothing to https://engine:443",
		"http://engine:8080":                "sends nothing to http://engine:8080",
		"http://engine.example":             "sends nothing to",
		"http://engine@example":             "without user",
		"http://example/http://engine":      "want a path without",
		"https://gateway":                   "sends nothing to",
		"https://gateway/team-ab":           "sends nothing to",
		"https://gateway/team-a/../team-b":  "without dots",
		"https://gateway/team-a/%2e%2e/x":   "without dots",
		"https://gateway/team-a/..%2fteamb": "without dots",
		"https://gateway/team-a/..;/team-b": "want a path without ;",
		`https://gateway/team-a/..\team-b`:  "want a path without ;",
		"https://gateway/team-a/..%5cteam":  "want a path without ;",
		"https://gateway/team-a/%252e%252e": "want a path without ;",
		"http://engine?key=word":            "without user, query",
		"http://engine#x":                   "without user, query",
		"engine:80":                         "want http://",
		"file:///etc/passwd":                "want http://",
		"http://[::1":                       "want http://",
	} {
		got, err := targets.allow(text)
		if want == "" {
			if err != nil || got != text {
				t.Errorf("%q: %q, %v", text, got, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if got, err := targets[:1].allow(""); err != nil || got != "http://Engine:80" {
		t.Errorf("the only target: %q, %v", got, err)
	}
}
