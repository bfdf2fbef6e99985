package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// timeout bounds a run of a program: it includes wait, and reading or writing the rules of 10 000 Services.
const timeout = time.Minute

// do runs iptables.
func (f *Firewall) do(ctx context.Context, table string, args ...string) (string, error) {
	return run(ctx, "", f.program, slices.Concat([]string{"-t", table}, args, []string{"--wait", fmt.Sprint(wait)})...)
}

// finds runs iptables and reports whether what it asks for exists: iptables exits with 1 if not.
func (f *Firewall) finds(ctx context.Context, table string, args ...string) (bool, error) {
	_, err := f.do(ctx, table, args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// chainExists reports whether a chain exists. It asks for its first rule only.
func (f *Firewall) chainExists(ctx context.Context, table, chain string) (bool, error) {
	return f.finds(ctx, table, "-S", chain, "1")
}

// list returns the lines of a chain: its declaration, and its rules.
func (f *Firewall) list(ctx context.Context, table, chain string) ([]string, error) {
	text, err := f.do(ctx, table, "-S", chain)
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), err
}

// deleteRule deletes a jump if it exists.
func (f *Firewall) deleteRule(ctx context.Context, table string, j jump) error {
	rule := words(j.rule)
	there, err := f.finds(ctx, table, slices.Concat([]string{"-C", j.from}, rule)...)
	if err != nil || !there {
		return err
	}
	_, err = f.do(ctx, table, slices.Concat([]string{"-D", j.from}, rule)...)
	return err
}

// insertRule inserts a jump unless it exists.
func (f *Firewall) insertRule(ctx context.Context, table string, j jump) error {
	rule := words(j.rule)
	there, err := f.finds(ctx, table, slices.Concat([]string{"-C", j.from}, rule)...)
	if err != nil || there {
		return err
	}
	_, err = f.do(ctx, table, slices.Concat([]string{"-I", j.from, fmt.Sprint(j.at)}, rule)...)
	return err
}

// deleteChain empties and deletes a chain if it exists.
func (f *Firewall) deleteChain(ctx context.Context, table, chain string) error {
	there, err := f.chainExists(ctx, table, chain)
	if err != nil || !there {
		return err
	}
	if _, err := f.do(ctx, table, "-F", chain); err != nil {
		return err
	}
	_, err = f.do(ctx, table, "-X", chain)
	return err
}

// run runs a program with input on stdin, for a bounded time, and returns its output.
func run(ctx context.Context, input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("killed, because it was not done within %v", timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second // for children of the program, which keep its output open
	cmd.Stdin = strings.NewReader(input)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	switch {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", name, context.Cause(ctx))
	case err != nil:
		return "", fmt.Errorf("%s: %w: %s", name, err, oneLine(stderr.String()))
	}
	return out.String(), nil
}
