// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testprogram"
)

// disk is a separate file system for the files of a Collector.
type disk struct {
	t         *testing.T
	dir       string
	collector *collector
}

func (d *disk) file(name string) string { return filepath.Join(d.dir, name) }

func (d *disk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// disaster is a fault of a disk to which a Collector writes, and what the Collector must report.
type disaster struct {
	name, reason string
	config       string // from the repository's root
	strike, lift func(d *disk)
	metric       string // a counter that increases
	log          string // the message that is logged once, with advice
	todo         string
	// mayLose is set if the queue's own file cannot be written: the Collector's persistent queue drops batches that it cannot mark as
	// taken, and logs this at level debug only.
	mayLose bool
}

const (
	laptop     = "examples/capture/laptop.yaml"
	documented = "otelcol-config.yaml"
	// failedWrites is the counter of the exporter's failed attempts, by fault.
	failedWrites = "exporter_failed_writes/"
	cannot       = "spans cannot be written to the journal"
)

// fill uses up all free space, and empty frees it.
func fill(d *disk) {
	filler, err := os.Create(d.file("filler"))
	d.must(err)
	block := make([]byte, 1<<20)
	for len(block) > 0 {
		if _, err := filler.Write(block); err != nil {
			block = block[:len(block)/2] // to the last byte
		}
	}
	d.must(filler.Close())
}

func empty(d *disk) { d.must(os.Remove(d.file("filler"))) }

var disasters = []disaster{
	{
		name: "full, no queue", reason: "senders are refused until there is room", config: laptop,
		strike: fill, lift: empty, metric: failedWrites + "no_space", log: cannot, todo: "make room",
	},
	{
		name: "full, with the queue on the same disk", reason: "the queue accepts nothing more, and senders are refused until there is room; then it continues", config: documented,
		strike: fill, lift: empty, metric: "exporter_enqueue_failed_spans", log: "no space left on device", mayLose: true,
	},
	{
		name: "full, with a queue elsewhere", reason: "the queue accepts what cannot be written, and keeps it until there is room", config: documented,
		strike: fill, lift: empty, metric: failedWrites + "no_space", log: cannot, todo: "make room",
	},
	{
		name: "covered by a read-only file system", reason: "nobody would find what is written, and the next segment cannot begin; some seconds after the disk is back, it begins",
		config: laptop,
		strike: func(d *disk) { d.must(syscall.Mount("over", d.file("traces"), "tmpfs", syscall.MS_RDONLY, "")) },
		lift:   func(d *disk) { d.must(syscall.Unmount(d.file("traces"), syscall.MNT_DETACH)) },
		metric: failedWrites + "gone", log: cannot, todo: "leave the journal's folder alone",
	},
}

// TestDisk breaks the disk of a built Collector. Senders get an error, or a queue stores what they sent. The Collector counts the fault,
// logs advice once, keeps running, and recovers by itself. Each acknowledged request becomes one row. Mounting needs privileges, so the
// test runs in a process with its own mount namespace, which ends with the process.
func TestDisk(t *testing.T) {
	t.Parallel()
	const child = "MOONLOOP_TEST_DISK"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDisk$", "-test.v", "-test.parallel=8")
		cmd.Env = append(os.Environ(), child+"=1", "MOONLOOP_OTELCOL="+absolute(t, testprogram.File(t, "otelcol-moonloop")))
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if os.Getuid() != 0 {
			cmd.SysProcAttr.Unshareflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		out, err := cmd.CombinedOutput()
		switch {
		case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), bytes.Contains(out, []byte("--- SKIP: TestDisk")):
			t.Skipf("no file system can be mounted here (neither root nor user namespaces); TestDiskFull, TestFaults and TestJournalRemoved show the same without mounting: %v\n%s", err, out)
		case err != nil || !bytes.Contains(out, []byte("--- PASS: TestDisk (")):
			t.Errorf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	probe := t.TempDir()
	if err := syscall.Mount("probe", probe, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip(err)
	}
	if err := syscall.Unmount(probe, 0); err != nil {
		t.Fatal(err)
	}
	for _, a := range disasters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			a.happens(t)
		})
	}
	for _, config := range []string{laptop, documented} {
		t.Run("read-only at the start, "+filepath.Base(config), func(t *testing.T) {
			t.Parallel()
			readOnlyAtStart(t, config)
		})
	}
	t.Run("folder removed", func(t *testing.T) {
		t.Parallel()
		folderRemoved(t)
	})
}

func absolute(t *testing.T, name string) string {
	t.Helper()
	name, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// newDisk mounts a file system, and configures a Collector that writes only to it.
func newDisk(t *testing.T, config string) *disk {
	t.Helper()
	dir := t.TempDir()
	d := &disk{t: t, dir: filepath.Join(dir, "disk"), collector: configure(t, dir, settings{config: config})}
	d.must(os.Mkdir(d.dir, 0o700))
	d.must(syscall.Mount("disk", d.dir, "tmpfs", 0, "size=48m"))
	t.Cleanup(func() { _ = syscall.Unmount(d.dir, syscall.MNT_DETACH) })
	d.collector.environment = append(d.collector.environment, "MOONLOOP_DIR="+d.dir)
	return d
}

func (a disaster) happens(t *testing.T) {
	t.Helper()
	d := newDisk(t, a.config)
	if strings.HasSuffix(a.name, "elsewhere") {
		d.collector.configs = append(d.collector.configs, write(t, d.collector.dir, "elsewhere.yaml",
			fmt.Sprintf("extensions: {file_storage: {directory: %q}}", d.collector.dir+"/queue")))
	}
	p := d.collector.start(t)
	clients := startClients(t, d.collector.address, production(t, 5, 2048), 2)
	clients.wait(t, 100, time.Minute)
	a.strike(d)
	for deadline := time.Now().Add(2 * time.Minute); d.collector.counted(t)[a.metric] == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s does not move\n%s", a.reason, a.metric, p.tail())
		}
	}
	if !p.healthy(t) {
		t.Fatalf("%s: the Collector is not healthy\n%s", a.reason, p.tail())
	}
	before := clients.count()
	a.lift(d)
	clients.wait(t, before+100, time.Minute)
	acknowledged, resent := clients.stop()
	d.collector.drain(t)
	said, err := os.ReadFile(p.log)
	d.must(err)
	p.stop(t)

	got := compile(t, d.dir)
	missing, twice := 0, 0
	for n := range acknowledged {
		switch got.rows[spanOf(n)] {
		case 0:
			missing++
		case 1:
		default:
			twice++
		}
	}
	if missing > 0 && !a.mayLose || twice > 0 {
		t.Errorf("%s: of %d acknowledged requests, %d are no row, and %d are two rows\n%s", a.reason, len(acknowledged), missing, twice, said)
	}
	if len(got.rows) != len(acknowledged)-missing || got.result.DamageCount > 0 {
		t.Errorf("%d rows, %d acknowledged; %d places are damaged", len(got.rows), len(acknowledged), got.result.DamageCount)
	}
	a.heard(t, said)
	t.Logf("%d acknowledged, %d of them lost, %d sent again, %d bytes of log", len(acknowledged), missing, resent, len(said))
}

// heard checks that the log has the message (exactly once and with its advice, if there is advice), and no panic.
func (a disaster) heard(t *testing.T, said []byte) {
	t.Helper()
	times := bytes.Count(said, []byte(a.log))
	if times == 0 || a.todo != "" && (times > 1 || !bytes.Contains(said, []byte(a.todo))) || bytes.Contains(said, []byte("panic")) {
		t.Errorf("%s: %q is said %d times, what to do is %q:\n%.20000s", a.reason, a.log, times, a.todo, said)
	}
}

// count returns how many model requests are acknowledged.
func (c *clients) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acknowledged)
}

// readOnlyAtStart expects an error, not a panic.
func readOnlyAtStart(t *testing.T, config string) {
	t.Helper()
	d := newDisk(t, config)
	d.must(syscall.Mount("disk", d.dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	p := d.collector.launch(t)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatalf("still runs\n%s", p.tail())
	}
	said := p.tail()
	if code := p.cmd.ProcessState.ExitCode(); code != 1 || !bytes.Contains(said, []byte("read-only file system")) ||
		!bytes.Contains(said, []byte(d.dir)) || bytes.Contains(said, []byte("panic")) || bytes.Contains(said, []byte("goroutine ")) {
		t.Errorf("exit status %d\n%s", code, said)
	}
}

// folderRemoved removes the folder of the journals. Its content is lost and counted; later records are written to a new folder.
func folderRemoved(t *testing.T) {
	t.Helper()
	d := newDisk(t, laptop)
	p := d.collector.start(t)
	to, l := dial(t, d.collector.address), production(t, 1, 2048)
	sender := new(clients)
	for n := uint64(1); n <= 20; n++ {
		if n == 11 {
			d.must(os.RemoveAll(d.file("traces")))
		}
		body := l.next(n, time.Now())
		d.must(sender.deliver(func(ctx context.Context) error { return to.export(ctx, body) }))
	}
	counts := d.collector.counted(t)
	said, err := os.ReadFile(p.log)
	d.must(err)
	p.stop(t)
	got := compile(t, d.dir)
	for n := uint64(11); n <= 20; n++ {
		if got.rows[spanOf(n)] != 1 {
			t.Errorf("request %d came after the folder was removed, and is %d rows", n, got.rows[spanOf(n)])
		}
	}
	if len(got.rows) != 10 || counts["exporter_lost_bytes"] == 0 || counts[failedWrites+"gone"] != sender.resent.Load() || sender.resent.Load() == 0 {
		t.Errorf("%d rows, %d bytes lost, %d attempts failed of %d that were sent again", len(got.rows), counts["exporter_lost_bytes"],
			counts[failedWrites+"gone"], sender.resent.Load())
	}
	disaster{reason: "folder removed", log: cannot, todo: "leave the journal's folder alone"}.heard(t, said)
}
