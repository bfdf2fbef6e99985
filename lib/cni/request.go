package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"k8s.io/apimachinery/pkg/util/validation"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
)

// errMissing is the Python version's code for missing variables. Codes from 100 on are the plugin's own (CNI
// specification, section 5).
const errMissing = 100

// An attachment is one interface of one container: the subject of ADD, CHECK and DEL. container and ifname identify
// it.
type attachment struct {
	network   string // the name in the network configuration
	container string // CNI_CONTAINERID
	ifname    string // CNI_IFNAME
	netns     string // CNI_NETNS, empty for DEL of a deleted container
	unique    bool   // see settled
}

// host is the name of the host end.
func (a attachment) host() string {
	if a.unique {
		return names.UniqueHostVeth(a.container)
	}
	return names.HostVeth(a.container)
}

// settled returns a with the current name of its host end or, if there is none, an available name: the IDs of two
// containers may start with the same characters.
func (a attachment) settled() (attachment, error) {
	for _, name := range []string{names.UniqueHostVeth(a.container), names.HostVeth(a.container)} {
		alias, there, err := link.HostEnd(name)
		if err != nil {
			return a, err
		}
		if !there {
			continue
		}
		owner, named := parseAlias(alias)
		a.unique = name == names.UniqueHostVeth(a.container) || named && owner.container != a.container
		break
	}
	return a, nil
}

// alias is stored on the host end: see names.HostVethAlias.
func (a attachment) alias() string { return names.HostVethAlias(a.network, a.container, a.ifname) }

// parseAlias is the inverse of alias: see names.ParseHostVethAlias.
func parseAlias(s string) (attachment, bool) {
	network, container, ifname, ok := names.ParseHostVethAlias(s)
	return attachment{network: network, container: container, ifname: ifname}, ok
}

// A podRef names the pod of an attachment, from CNI_ARGS.
type podRef struct {
	namespace, name string
	uid             string // empty if not in CNI_ARGS
}

func (p podRef) String() string { return p.namespace + "/" + p.name }

// podArgs are the keys of CNI_ARGS set by Kubernetes runtimes. Fields are named like the keys.
type podArgs struct {
	types.CommonArgs
	//lint:ignore ST1003 the library finds a field by its key
	K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID, K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString
}

// parsePod reads the pod from CNI_ARGS, as in "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0". Other keys are allowed.
// The error is a *types.Error.
func parsePod(cniArgs string) (podRef, error) {
	args := podArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(cniArgs, &args); err != nil {
		return podRef{}, types.NewError(errMissing, "required CNI variables missing", "CNI_"+err.Error())
	}
	p := podRef{string(args.K8S_POD_NAMESPACE), string(args.K8S_POD_NAME), string(args.K8S_POD_UID)}
	for _, v := range []struct{ key, value string }{{"K8S_POD_NAMESPACE", p.namespace}, {"K8S_POD_NAME", p.name}} {
		if v.value == "" {
			return podRef{}, types.NewError(errMissing, "required CNI variables missing", v.key+" in CNI_ARGS")
		}
		if problems := validation.IsDNS1123Subdomain(v.value); problems != nil {
			return podRef{}, types.NewError(types.ErrInvalidEnvironmentVariables,
				fmt.Sprintf("%s in CNI_ARGS is %.253q", v.key, v.value), strings.Join(problems, "; "))
		}
	}
	return p, nil
}

// parseConf parses the network configuration, already checked by skel to be JSON with a name. The error is a
// *types.Error.
func parseConf(stdin []byte) (*types.PluginConf, error) {
	conf := &types.PluginConf{}
	if err := json.Unmarshal(stdin, conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "decoding the network configuration", err.Error())
	}
	return conf, nil
}

// parsePrevious parses the runtime's copy of ADD's result for CHECK. The error is a *types.Error.
func parsePrevious(conf *types.PluginConf) (*types100.Result, error) {
	if conf.RawPrevResult == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "the network configuration lacks prevResult", "")
	}
	if err := version.ParsePrevResult(conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "decoding prevResult", err.Error())
	}
	r, err := types100.NewResultFromResult(conf.PrevResult)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "decoding prevResult", err.Error())
	}
	return r, nil
}

func newAttachment(args *skel.CmdArgs, conf *types.PluginConf) attachment {
	return attachment{network: conf.Name, container: args.ContainerID, ifname: args.IfName, netns: args.Netns}
}

// open opens the container's namespace. The error is a *types.Error.
func (a attachment) open() (*link.Namespace, error) {
	ns, err := link.OpenNamespace(a.netns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, types.NewError(types.ErrUnknownContainer, "CNI_NETNS does not exist", err.Error())
	}
	if err != nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_NETNS is not usable", err.Error())
	}
	host, err := ns.IsCurrent()
	if err == nil && host {
		err = fmt.Errorf("%q is the host's own", a.netns)
	}
	if err != nil {
		_ = ns.Close()
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_NETNS is not usable", err.Error())
	}
	return ns, nil
}
