// Package sbdb has a model for each table of OVN's Southbound database
// (ovn-sb(5)). All but this file is generated, by make generate, from the schema
// that OVN 23.03 installs.
package sbdb

//go:generate go tool modelgen -extended -p sbdb -o . /usr/share/ovn/ovn-sb.ovsschema
