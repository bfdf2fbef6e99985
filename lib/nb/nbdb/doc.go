// Package nbdb has a model for each table of OVN's Northbound database
// (ovn-nb(5)). All but this file is generated, by make generate, from the schema
// that OVN 23.03 installs.
package nbdb

//go:generate go tool modelgen -extended -p nbdb -o . /usr/share/ovn/ovn-nb.ovsschema
