package platform

// A Manager is a program that configures the network of a host.
type Manager struct {
	Name string
	Unit string // of systemd; "": netplan only writes the configuration of another manager
	// Config is its configuration, a file or a directory. Files are patterns of the files with interfaces.
	Config string
	Files  []string
	// Links is a directory with the state of each interface under its index.
	Links string
}

// networkdLinks has what systemd-networkd does, from its own files or netplan's.
const networkdLinks = "/run/systemd/netif/links"

// The network managers. Ifupdown, NetworkScripts and Netplan configure at boot from files, the others also at run time.
var (
	Ifupdown = Manager{
		Name: "ifupdown", Unit: "networking.service", Config: "/etc/network/interfaces",
		Files: []string{"/etc/network/interfaces", "/etc/network/interfaces.d/*"},
	}
	NetworkScripts = Manager{
		Name: "network-scripts", Unit: "network.service", Config: "/etc/sysconfig/network-scripts",
		Files: []string{"/etc/sysconfig/network-scripts/ifcfg-*"},
	}
	Netplan        = Manager{Name: "netplan", Config: "/etc/netplan", Files: []string{"/etc/netplan/*.yaml"}, Links: networkdLinks}
	NetworkManager = Manager{Name: "NetworkManager", Unit: "NetworkManager.service", Config: "/etc/NetworkManager", Links: "/run/NetworkManager/devices"}
	Networkd       = Manager{Name: "systemd-networkd", Unit: "systemd-networkd.service", Config: "/etc/systemd/network", Links: networkdLinks}
)

// Managers lists the network managers.
func Managers() []Manager {
	return []Manager{Ifupdown, NetworkScripts, Netplan, NetworkManager, Networkd}
}
