package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	memory = 4096 // MiB of the machine
	// bootTime bounds the time from the start of QEMU to the job.
	bootTime = 5 * time.Minute
	// outside is this machine's address for the virtual one: its loopback address (QEMU's user network), or its end of a link.
	outside = "10.0.2.2"
)

// cpus is the number of the machine's CPUs: this machine's, or what usermode.config allows.
func (p place) cpus() int {
	if p.userMode {
		return min(runtime.NumCPU(), 4)
	}
	return runtime.NumCPU()
}

// accelerator is QEMU's accelerator, and a factor for time limits. KVM needs
// hardware for it: emulating that (kvm_pvm) is slower than emulating all.
func accelerator() (name, cpu, factor string) {
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		_ = f.Close()
		for _, flag := range []string{" vmx ", " svm "} {
			if bytes.Contains(cpuinfo, []byte(flag)) {
				return "kvm", "host", "2"
			}
		}
	}
	return "tcg,thread=multi", "max", "10"
}

// boot runs a job in a new machine; its output goes to the report.
func (p place) boot(ctx context.Context, job Job, r *report) error {
	ctx, cancel := context.WithTimeout(ctx, job.Timeout+bootTime)
	defer cancel()
	run, err := os.MkdirTemp("", "test-kernel")
	if err != nil {
		return err
	}
	defer os.RemoveAll(run)
	m, err := p.machine(ctx, run)
	if err != nil {
		return err
	}
	defer m.close()
	kube, err := net.Listen("tcp", net.JoinHostPort(m.kubeHost, "0"))
	if err != nil {
		return err
	}
	defer kube.Close()
	kubes := p.serveKube(ctx, kube)
	defer func() { cancel(); _ = kube.Close(); kubes.Wait() }()
	_, port, err := net.SplitHostPort(kube.Addr().String())
	if err != nil {
		return err
	}
	job.Env = append(job.Env, "OVNK8S_TEST_DATAPATH=system", "OVNK8S_TEST_NEED=central,node,cluster,clock", "OVNK8S_TEST_TIME_FACTOR="+m.factor,
		"OVNK8S_TEST_BIN="+p.path("bin"), "PATH="+p.path("path")+":"+os.Getenv("PATH"), "HOME=/root", "LANG=C.UTF-8", kubeVariable+"="+port)
	var text bytes.Buffer
	if err := job.write(&text); err != nil {
		return err
	}
	if err := os.WriteFile(p.path("job"), text.Bytes(), 0o644); err != nil {
		return err
	}
	r.say("starting a virtual machine (%s, %d CPUs, %d MiB)", m.name, p.cpus(), memory)
	return m.run(ctx, p, r)
}

// A machine is a virtual machine that can be started.
type machine struct {
	name string
	// factor is for time limits.
	factor string
	// kubeHost is where the machine's connections to outside arrive.
	kubeHost string
	// cmd prints the job's output, and turns the machine off at its end.
	cmd   *exec.Cmd
	close func()
}

// machine returns a new machine, and provides its links to outside. run is a directory for it.
func (p place) machine(ctx context.Context, run string) (machine, error) {
	if p.userMode {
		remove, err := addLink()
		return machine{"user mode Linux", "4", outside, p.userModeCommand(ctx), remove}, err
	}
	release, err := releaseIn(p.path("root"))
	if err != nil {
		return machine{}, err
	}
	for tag, dir := range p.shares() {
		if err := share(ctx, run, tag, dir); err != nil {
			return machine{}, err
		}
	}
	accel, cpu, factor := accelerator()
	return machine{accel, factor, "127.0.0.1", p.qemu(ctx, run, accel, cpu, release), func() {}}, nil
}

// shares are the directories seen by the machine, by the tags of their devices. Only
// kubeShare's has files written outside meanwhile.
func (p place) shares() map[string]string {
	return map[string]string{"root": "/", "work": p.work, "source": p.source, kubeShare: p.path(kubeShare)}
}

// kubeShare is the directory of the control planes.
const kubeShare = "kube"

// share starts virtiofsd for a directory, without mounts below it, and waits
// for its socket.
func share(ctx context.Context, run, tag, dir string) error {
	socket, mount := filepath.Join(run, tag), filepath.Join(run, "mount-"+tag)
	if err := os.Mkdir(mount, 0o755); err != nil {
		return err
	}
	cache := "always"
	if tag == kubeShare {
		// The machine forgets a file's pages whenever it is opened again: each start of
		// a program would read it anew, for two seconds.
		cache = "auto"
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", `mount --bind "$2" "$3" && exec /usr/lib/qemu/virtiofsd --socket-path="$1" -o "source=$3,cache=$4,sandbox=chroot,xattr" --thread-pool-size=2`,
		"sh", socket, dir, mount, cache)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting virtiofsd: %w", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	for {
		if _, err := os.Stat(socket); err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("virtiofsd ended: %s", said.String())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// qemu returns the command of a machine.
func (p place) qemu(ctx context.Context, run, accel, cpu, release string) *exec.Cmd {
	args := []string{
		"-n", "5", "qemu-system-x86_64", "-M", "q35", "-accel", accel, "-cpu", cpu, "-smp", fmt.Sprint(p.cpus()), "-m", fmt.Sprint(memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-object", fmt.Sprintf("memory-backend-memfd,id=mem,size=%dM,share=on", memory), "-numa", "node,memdev=mem",
		"-device", "virtio-rng-pci", "-netdev", "user,id=net,ipv6=off", "-device", "virtio-net-pci,netdev=net,romfile=",
		"-serial", "file:" + p.path("console"), "-device", "virtio-serial-pci", "-chardev", "stdio,id=out,signal=off", "-device", "virtconsole,chardev=out",
		"-kernel", p.path("root", "boot", "vmlinuz-"+release), "-initrd", p.path("initramfs"),
		"-append", strings.Join([]string{"console=ttyS0 panic=-1 quiet mitigations=off", clock(accel), consoleVariable + "=/dev/hvc0", workVariable + "=" + p.work, sourceVariable + "=" + p.source}, " "),
	}
	for tag := range p.shares() {
		args = append(args, "-chardev", fmt.Sprintf("socket,id=%s,path=%s", tag, filepath.Join(run, tag)),
			"-device", fmt.Sprintf("vhost-user-fs-pci,chardev=%s,tag=%s,queue-size=1024", tag, tag))
	}
	return exec.CommandContext(ctx, "nice", args...)
}

// run runs the machine until it turns itself off.
func (m machine) run(ctx context.Context, p place, r *report) error {
	var complaint bytes.Buffer
	m.cmd.Stderr = &complaint
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("starting the virtual machine: %w", err)
	}
	log, err := os.Create(p.path("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		fmt.Fprintln(log, line)
		r.line(line)
	}
	err = m.cmd.Wait()
	if !r.ended {
		text, _ := os.ReadFile(p.path("console")) // QEMU's; a user mode Linux has none
		return fmt.Errorf("the virtual machine ended before its job: %v, %v: %s\nits console:\n%s", ctx.Err(), err, complaint.String(), tail(string(text), 30))
	}
	return nil
}

// clock has the kernel read the time by an instruction. Left alone it finds an emulated
// CPU's counter unreliable, and asks an emulated device, which holds up all CPUs.
func clock(accel string) string {
	if accel == "kvm" {
		return ""
	}
	return "clocksource=tsc tsc=reliable"
}

// tail returns the last lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
