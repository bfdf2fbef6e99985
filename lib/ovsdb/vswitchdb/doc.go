// Package vswitchdb has a model for each table of Open vSwitch's database
// (ovs-vswitchd.conf.db(5)). All but this file is generated, by make generate,
// from the schema that Open vSwitch 3.1 installs.
package vswitchdb

//go:generate go tool modelgen -extended -p vswitchdb -o . /usr/share/openvswitch/vswitch.ovsschema
