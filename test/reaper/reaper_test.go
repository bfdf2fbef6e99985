package reaper_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"ovn-k8s/test/reaper"
)

// TestMain also serves as the helper program of a test: it starts a process and is then killed.
func TestMain(m *testing.M) {
	if os.Getenv("LIFELINE_HELPER") == "" {
		os.Exit(m.Run())
	}
	p, err := reaper.Start(nil, "sh", "-c", "echo $$; exec sleep 1000")
	if err != nil {
		panic(err)
	}
	for p.Output() == "" {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println(p.Output())
	select {}
}

func TestProcessDiesWithItsStarter(t *testing.T) {
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), "LIFELINE_HELPER=1")
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_ = helper.Process.Kill()
	_ = helper.Wait()
	awaitDeath(t, strings.TrimSpace(line))
}

func TestStopKills(t *testing.T) {
	p, err := reaper.Start(nil, "sh", "-c", "trap '' TERM; echo $$; exec sleep 1000")
	if err != nil {
		t.Fatal(err)
	}
	for p.Output() == "" && p.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	pid := p.Output()
	p.Stop()
	awaitDeath(t, pid)
	p.Stop() // again does nothing
}

func TestErrSaysWhy(t *testing.T) {
	p, err := reaper.Start(nil, "sh", "-c", "echo no such luck >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	<-p.Done()
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "exit status 3: no such luck") {
		t.Errorf("Err: %v", err)
	}
}

func awaitDeath(t *testing.T, pid string) {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); syscall.Kill(n, 0) == nil; {
		if time.Now().After(deadline) {
			t.Fatalf("process %d lives", n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
