# What people and CI run here. `make help` lists it.

export PATH := $(PATH):/usr/sbin:/sbin
export CGO_ENABLED = 0
VERSION := $(or $(shell git describe --tags --always --dirty 2>/dev/null),unknown)
PROGRAMS := $(patsubst %/main.go,%,$(wildcard ovn-k8s-*/main.go ovnkube/main.go))
MODELS := lib/nb/nbdb lib/ovsdb/sbdb lib/ovsdb/vswitchdb
PREFIX ?= /usr/local
CONTROLPLANE := cd test/controlplane &&

# KUBERNETES=1.29: with the control plane of that release; the newest one otherwise
ifneq ($(KUBERNETES),)
export OVNK8S_TEST_KUBERNETES = $(KUBERNETES)
endif

.PHONY: build test check audit licences demo demo-down bench loss hostile test-boot test-kills test-damages test-firewalls test-upgrade test-kernel generate install help prepare

## build: the programs, into bin/ (also plain make)
build:
	go build -trimpath -buildvcs=false -ldflags '-X main.version=$(VERSION)' -o bin/ $(PROGRAMS:%=./%)

## check: vet, staticcheck, gofmt, go mod tidy, generated models, layers, comments, licences
check:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "run gofmt -w on:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go mod tidy -diff
	$(CONTROLPLANE) go mod tidy -diff
	go vet ./...
	go tool staticcheck ./...
	go run ./test/prepare packages
	OVNK8S_TEST_NEED=central go test ./lib ./test/docs ./test/licences

# VULNDB=file:///srv/vulndb: with a copy of the database in that directory, where vuln.go.dev cannot be reached
GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 $(if $(VULNDB),-db $(VULNDB))

## audit: known vulnerabilities in the programs, and in the control plane of the tests; needs vuln.go.dev, or VULNDB=file:///DIRECTORY with a copy
audit:
	$(GOVULNCHECK) ./...
	-$(CONTROLPLANE) $(GOVULNCHECK) -scan package ./...

## licences: docs/licences.md, the licences of the linked modules
licences:
	go run ./test/licences

# OVN=trixie, OVN=sid: the target in a root file system of that release of Debian, with its OVN and Open vSwitch
ifneq ($(OVN),)
test demo bench loss:
	go run ./test/rootfs $(OVN) $(MAKE) $@ OVN=
else

# OVNKUBE=1: test/e2e on a cluster that ovnkube builds
ifneq ($(OVNKUBE),)
export OVNK8S_TEST_OVNKUBE = $(OVNKUBE)
endif

## test: every test (RUN=, PACKAGES=, OVN=trixie, KUBERNETES=1.29, OVNKUBE=1), with real OVS, OVN and Kubernetes; what fails runs once more; as root
test: prepare
	OVNK8S_TEST_NEED=central,node,cluster go run ./test/suite $(if $(RUN),-run '$(RUN)') $(PACKAGES)

## demo: a cluster of a master and two minions on this machine, as root; KEEP=1 leaves it up, OVNKUBE=1 has ovnkube build it
demo: build prepare
	KEEP=$(KEEP) go run ./test/demo

## bench: how fast it is, beside a minimal program that does the same; as root
bench: prepare
	go run ./test/bench

## loss: how many new connections fail while pods, ovn-controllers, switches and gateways change (RUN=, ROUNDS=); as root
loss: prepare
	go run ./test/loss $(if $(RUN),-run $(RUN)) $(if $(ROUNDS),-rounds $(ROUNDS))
endif

## demo-down: take away what demo KEEP=1 left
demo-down:
	go run ./test/demo down

## hostile: 5 000 drawn hostile objects (DRAWS=, FROM=, KIND=), what they cost in memory; stops beyond 4 GB
hostile:
	OVNK8S_HOSTILE=$(or $(DRAWS),5000) OVNK8S_HOSTILE_FROM=$(FROM) OVNK8S_HOSTILE_KIND=$(KIND) go test ./test/hostile -run Hostile -v -timeout 3h

## test-boot: reboots of every documented setup (ROUNDS=, SEED=, SETUP=, PARALLEL=), an hour; as root
test-boot: prepare
	OVNK8S_TEST_NEED=central,node,cluster OVNK8S_TEST_REBOOTS=$(or $(ROUNDS),10) OVNK8S_TEST_REBOOTS_SEED=$(SEED) OVNK8S_TEST_RA_SECONDS=120 \
		go test -count=1 ./test/boot -run 'TestReboots/$(SETUP)' -parallel $(or $(PARALLEL),4) -v -timeout 6h
	OVNK8S_TEST_NEED=node OVNK8S_TEST_BOOT_ROUNDS=1 OVNK8S_TEST_RA_SECONDS=120 \
		go test -count=1 ./ovn-k8s-util -run 'Boot|Service|RouterAdvertisements|KeepALease' -v -timeout 1h

## test-kills: 200 kills of a node of ovnkube at drawn moments of its start (KILLS= for each of nine cases), half an hour; as root
test-kills: prepare
	OVNK8S_TEST_NEED=node,cluster OVNK8S_TEST_KILLS=$(or $(KILLS),23) go test -count=1 ./lib/ovnkube/node -run KilledAtAnyMoment -parallel 3 -v -timeout 3h

## test-damages: ovnkube check beside each kind of damage, ten minutes; as root
test-damages: prepare
	OVNK8S_TEST_NEED=central,node,cluster OVNK8S_TEST_EVERY_DAMAGE=1 go test -count=1 ./test/ovnkube -run CheckNamesDamage -v -timeout 1h

## test-firewalls: firewalld, docker, ufw, flushes beside the helper's rules, under load (ROUNDS=, FIREWALL=firewalld); as root
test-firewalls:
	@go run ./test/prepare firewalls
	OVNK8S_TEST_NEED=central,node,cluster OVNK8S_TEST_FIREWALLS=yes OVNK8S_TEST_FIREWALLS_ROUNDS=$(or $(ROUNDS),20) \
		go test -count=1 ./test/firewalls -run 'TestBesideFirewalls/$(FIREWALL)' -v -timeout 2h

## test-upgrade: OVN and Open vSwitch of three releases of Debian, and two releases of the programs, in each order, under open connections (RUN=), ten minutes; as root
test-upgrade: prepare
	go run ./test/rootfs trixie go run ./test/prepare packages
	go run ./test/rootfs sid go run ./test/prepare packages
	OVNK8S_TEST_NEED=central,node,cluster OVNK8S_TEST_UPGRADES=1 go test -count=1 ./test/ovnkube -run 'TestUpgradeOf/$(RUN)' -v -timeout 2h

## test-kernel: tests on the kernel's datapath, in a virtual machine: a choice, or SMOKE=1, ALL=1 (SINCE=), RUN=, PKG= (ARGS=, MINUTES=), USERMODE=1 or KERNEL=; as root
test-kernel:
	@go run ./test/prepare $(if $(USERMODE),usermode,machine)
	go run ./test/kernel $(if $(USERMODE),-usermode) $(if $(KERNEL),-kernel '$(KERNEL)') $(if $(SMOKE),-smoke) $(if $(ALL),-all) $(if $(SINCE),-since '$(SINCE)') $(if $(RUN),-run '$(RUN)') $(if $(PKG),-pkg '$(PKG)') $(if $(ARGS),-args '$(ARGS)') $(if $(MINUTES),-minutes $(MINUTES))

## generate: the database models, from the installed schemas of OVN and Open vSwitch
generate:
	find $(MODELS) -name '*.go' ! -name doc.go -delete
	go generate $(MODELS:%=./%)

## install: the programs, into $(PREFIX)/bin
install: build
	install -D -t $(DESTDIR)$(PREFIX)/bin bin/*

## help: this list
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

prepare: # packages, and the control plane's program
	@go run ./test/prepare
