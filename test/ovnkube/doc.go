// Package ovnkube tests clusters made by ovnkube: with databases by SSL, and while ovnkube restarts.
package ovnkube
