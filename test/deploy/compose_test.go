// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// composeProject reads the compose file as `docker compose` does, with the services of all profiles.
func composeProject(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(examples, "compose/compose.yaml")}, cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestCompose lets the library of Docker Compose validate the file. Each file that a container mounts exists, and so does each Dockerfile;
// each named volume is declared, which the library checks.
func TestCompose(t *testing.T) {
	project := composeProject(t)
	names := project.ServiceNames()
	slices.Sort(names)
	if want := []string{"collector", "grafana", "jaeger", "prometheus", "replay", "simulator"}; !slices.Equal(names, want) {
		t.Errorf("services %v, want %v", names, want)
	}
	mounts := 0
	for name, service := range project.Services {
		for _, volume := range service.Volumes {
			if volume.Type != types.VolumeTypeBind {
				continue
			}
			mounts++
			if _, err := os.Stat(volume.Source); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
		if service.Build != nil {
			if _, err := os.Stat(filepath.Join(service.Build.Context, service.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %s on %q, not on localhost only", name, port.Published, port.HostIP)
			}
		}
	}
	if mounts < 6 {
		t.Errorf("%d mounts of files: this test has lost them", mounts)
	}
}
