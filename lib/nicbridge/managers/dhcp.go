package managers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// clients are the names of DHCP client programs.
var clients = []string{"dhclient", "dhcpcd", "udhcpc"}

// HandOver lists commands for replacing the DHCP clients of one interface by equal clients of another: each is killed
// and started again. Clients started by NetworkManager are left to it.
func HandOver(from, to string) []string {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var lines []string
	for _, e := range all {
		if c := e.Name()[0]; c < '0' || c > '9' {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if !isClient(args, from) {
			continue
		}
		// Clients in other namespaces belong to containers.
		if there, err := os.Readlink("/proc/" + e.Name() + "/ns/net"); err == nil && there == here {
			lines = append(lines, "kill "+e.Name(), again(args, from, to))
		}
	}
	return lines
}

// isClient reports whether a command is a DHCP client for an interface.
func isClient(args []string, nic string) bool {
	return slices.Contains(clients, filepath.Base(args[0])) && slices.Contains(args[1:], nic) &&
		!slices.ContainsFunc(args, func(a string) bool { return filepath.Base(a) == "nm-dhcp-helper" })
}

// again is the command line for another interface. The interface's name is replaced in file names, too.
func again(args []string, from, to string) string {
	words := []string{quote(args[0])}
	for _, a := range args[1:] {
		words = append(words, quote(strings.ReplaceAll(a, from, to)))
	}
	return strings.Join(words, " ")
}

// quote quotes a word for the shell.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_=+:,./@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
