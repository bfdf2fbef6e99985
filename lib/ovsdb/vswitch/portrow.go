package vswitch

import (
	"context"
	"fmt"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// A PortRow is the configuration of a port, without bonds, and of its interface.
type PortRow struct {
	Tag         *int              `json:",omitempty"`
	VLANMode    *string           `json:",omitempty"`
	Trunks      []int             `json:",omitempty"`
	CVLANs      []int             `json:",omitempty"`
	QoS         *string           `json:",omitempty"` // the row's UUID
	OtherConfig map[string]string `json:",omitempty"`
	ExternalIDs map[string]string `json:",omitempty"`
	Interface   InterfaceRow
}

// An InterfaceRow is the configuration of an interface.
type InterfaceRow struct {
	Type        string            `json:",omitempty"`
	OFPort      *int              `json:",omitempty"` // requested
	MTU         *int              `json:",omitempty"` // requested
	Rate, Burst int               `json:",omitempty"` // of ingress policing
	Options     map[string]string `json:",omitempty"`
	OtherConfig map[string]string `json:",omitempty"`
	ExternalIDs map[string]string `json:",omitempty"`
}

// VLAN describes the settings for VLANs, "" for none.
func (p PortRow) VLAN() string {
	var all []string
	if p.Tag != nil {
		all = append(all, fmt.Sprintf("tag=%d", *p.Tag))
	}
	if p.VLANMode != nil {
		all = append(all, "vlan_mode="+*p.VLANMode)
	}
	if len(p.Trunks) > 0 {
		all = append(all, "trunks="+strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Trunks), " ", ","), "[]"))
	}
	return strings.Join(all, " ")
}

// FindPort returns a port of a bridge, or nil. A bond is an error.
func (s *Switch) FindPort(ctx context.Context, bridge, name string) (*PortRow, error) {
	var found *PortRow
	err := s.Read(ctx, func(c client.Client) error {
		p, i, err := confdb.FindPort(ctx, c, bridge, name)
		if p == nil || err != nil {
			return err
		}
		found = &PortRow{
			Tag: p.Tag, VLANMode: p.VLANMode, Trunks: p.Trunks, CVLANs: p.CVLANs, QoS: p.QOS, OtherConfig: p.OtherConfig, ExternalIDs: p.ExternalIDs,
			Interface: InterfaceRow{
				Type: i.Type, OFPort: i.OfportRequest, MTU: i.MTURequest, Rate: i.IngressPolicingRate, Burst: i.IngressPolicingBurst,
				Options: i.Options, OtherConfig: i.OtherConfig, ExternalIDs: i.ExternalIDs,
			},
		}
		return nil
	})
	return found, err
}

// newPort is the port to insert. A QoS row that is gone is left out.
func (p PortRow) newPort(ctx context.Context, c client.Client, name string) (confdb.NewPort, error) {
	i := p.Interface
	n := confdb.NewPort{
		Like: vswitchdb.Port{
			Tag: p.Tag, VLANMode: p.VLANMode, Trunks: p.Trunks, CVLANs: p.CVLANs, QOS: p.QoS, OtherConfig: p.OtherConfig, ExternalIDs: p.ExternalIDs,
		},
		Iface: &vswitchdb.Interface{
			Name: name, Type: i.Type, OfportRequest: i.OFPort, MTURequest: i.MTU, IngressPolicingRate: i.Rate, IngressPolicingBurst: i.Burst,
			Options: i.Options, OtherConfig: i.OtherConfig, ExternalIDs: i.ExternalIDs,
		},
	}
	if p.QoS == nil {
		return n, nil
	}
	ok, err := confdb.Get(ctx, c, &vswitchdb.QoS{UUID: *p.QoS})
	if !ok {
		n.Like.QOS = nil
	}
	return n, err
}
