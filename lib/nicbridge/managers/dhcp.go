package managers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const dhcpcd = "dhcpcd"

// clients are the names of DHCP client programs.
var clients = []string{"dhclient", dhcpcd, "udhcpc"}

// A Client is a running DHCP client of an interface.
type Client struct {
	Program string
	// Commands replace it by an equal client of another interface.
	Commands []string
}

// Clients finds the DHCP clients of an interface, to be replaced by those of another. Clients started by NetworkManager are
// left to it.
func Clients(from, to string) []Client {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []Client
	for _, e := range all {
		if c := e.Name()[0]; c < '0' || c > '9' {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err != nil {
			continue // it has ended
		}
		c, ok := clientOf(e.Name(), strings.Split(strings.TrimRight(string(text), "\x00"), "\x00"), from, to)
		if !ok {
			continue
		}
		// Clients in other namespaces belong to containers.
		if there, err := os.Readlink("/proc/" + e.Name() + "/ns/net"); err == nil && there == here {
			found = append(found, c)
		}
	}
	return found
}

// clientOf returns the DHCP client of an interface with a command line.
func clientOf(pid string, args []string, from, to string) (Client, bool) {
	if title, ok := strings.CutPrefix(args[0], dhcpcd+": "); ok {
		on, families, _ := strings.Cut(title, " ")
		return dhcpcdOf(on, families, from, to)
	}
	program := filepath.Base(args[0])
	if !slices.Contains(clients, program) || !slices.Contains(args[1:], from) ||
		slices.ContainsFunc(args, func(a string) bool { return filepath.Base(a) == "nm-dhcp-helper" }) {
		return Client{}, false
	}
	return Client{program, []string{"kill " + pid, again(args, from, to)}}, true
}

// dhcpcdOf is for dhcpcd. It replaces its command line by a title (setproctitle), such as "dhcpcd: eth0 [ip4] [ip6]", or
// "dhcpcd: [manager] [ip4] [ip6]" if it works on all interfaces but those that its file denies. Other words in brackets are
// its helpers'.
func dhcpcdOf(on, families, from, to string) (Client, bool) {
	switch {
	case on == from:
		command := dhcpcd + " "
		if option, ok := map[string]string{"[ip4]": "-4 ", "[ip6]": "-6 "}[families]; ok { // one alone
			command += option
		}
		return Client{dhcpcd, []string{command + "-x " + quote(from), command + quote(to)}}, true
	case (on == "[manager]" || on == "[master]" /* before release 9.4.1 */) && leaseOf(from).After(leaseOf(to)):
		const file = "/etc/dhcpcd.conf"
		return Client{dhcpcd, []string{
			// At the top: below a line "interface" it would be for that one only.
			fmt.Sprintf("sed -i -e '1i denyinterfaces %s' -e '/^denyinterfaces %s$/d' %s", from, to, file),
			fmt.Sprintf("echo 'interface %s' >> %s", to, file), // or it ignores a TAP, as bridges of the userspace datapath are
			"systemctl restart " + dhcpcd,
		}}, true
	}
	return Client{}, false
}

// leaseOf is the time when dhcpcd wrote the last lease of an interface. It writes it at each renewal.
func leaseOf(nic string) time.Time { return Written("/var/lib/dhcpcd*/" + nic + ".lease*") }

// Written is the time when the newest file of a pattern was written, the zero Time without one.
func Written(pattern string) (last time.Time) {
	files, _ := filepath.Glob(pattern) // fails for a bad pattern only
	for _, f := range files {
		if of, err := os.Stat(f); err == nil && of.ModTime().After(last) {
			last = of.ModTime()
		}
	}
	return last
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
