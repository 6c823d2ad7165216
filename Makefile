# The front door. `make` alone lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# From any folder: `make -C /path/to/guardian run` and `make -f …/Makefile run` both work.
ROOT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
BUILD := $(ROOT)/.build
RELEASE := $(BUILD)/release
FIXTURES := $(BUILD)/fixtures
SWIFT := swift
SWIFT_FLAGS := --package-path $(ROOT) -c release
CC := gcc
CXX := g++
VERSION := $(shell sed -n 's/.*guardianVersion = "\(.*\)"/\1/p' $(ROOT)/Sources/Settings/Version.swift)

# What the build needs, and what only the tests and benchmarks need.
BUILD_PACKAGES := build-essential pkg-config libsystemd-dev libdw-dev libelf-dev libseccomp-dev \
  libcurl4-openssl-dev libtomlplusplus-dev libiberty-dev
TEST_PACKAGES := gdb elfutils dwz binutils nginx-light redis-server postgresql systemd \
  systemd-container runit s6 supervisor tini dumb-init catatonit util-linux procps python3 curl \
  man-db faketime

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(ROOT)/Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

.PHONY: version
version: ## the version, from Sources/Settings/Version.swift
	@echo $(VERSION)

# Debian packages: one line says which are missing, then they are installed (root or sudo).
define install_packages
	@missing=""; for p in $(1); do \
	  dpkg-query -W -f='$${Status}' "$$p" 2>/dev/null | grep -q '^install ok installed' || missing="$$missing $$p"; \
	done; \
	if [ -n "$$missing" ]; then \
	  echo "installing Debian packages:$$missing"; \
	  run=""; if [ "$$(id -u)" -ne 0 ]; then run=sudo; \
	    command -v sudo >/dev/null || { echo "error: these Debian packages are missing and this is neither root nor is there sudo:$$missing" >&2; exit 1; }; fi; \
	  command -v apt-get >/dev/null || { echo "error: no apt-get here; install the equivalents of:$$missing" >&2; exit 1; }; \
	  $$run apt-get update -qq && $$run env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $$missing >/dev/null \
	    || { echo "error: cannot install:$$missing" >&2; exit 1; }; \
	fi
endef

.PHONY: setup setup-test
setup:
	@command -v $(SWIFT) >/dev/null || { echo "error: no 'swift' in PATH: install a Swift 6.3 toolchain (swift.org/install) first" >&2; exit 1; }
	$(call install_packages,$(BUILD_PACKAGES))
setup-test: setup
	$(call install_packages,$(TEST_PACKAGES) \
	  $$(command -v node >/dev/null || echo nodejs) \
	  $$(command -v java >/dev/null || echo default-jdk-headless) \
	  $$(command -v rustc >/dev/null || echo rustc))

# The preloaded handler is C only and must need libc and nothing else; SwiftPM would link the
# Swift runtime into every dynamic product, so the C compiler builds it.
HANDLER_SOURCES := $(wildcard $(ROOT)/Sources/CrashHandler/*.c)
HANDLER_HEADERS := $(wildcard $(ROOT)/Sources/CrashHandler/include/*.h $(ROOT)/Sources/CrashHandler/*.h)
HANDLER_FLAGS := -std=gnu17 -O2 -g -fPIC -fvisibility=hidden -fno-omit-frame-pointer \
  -fno-stack-protector -ftls-model=initial-exec -Wall -Wextra -Werror -I$(ROOT)/Sources/CrashHandler/include
$(RELEASE)/libguardian-handler.so: $(HANDLER_SOURCES) $(HANDLER_HEADERS) $(ROOT)/Makefile
	@mkdir -p $(RELEASE)
	$(CC) $(HANDLER_FLAGS) -shared -Wl,-soname,libguardian-handler.so -Wl,-z,now -Wl,-z,relro \
	  -Wl,-z,nodelete -Wl,--as-needed -o $@ $(HANDLER_SOURCES)

.PHONY: swift-build swift-build-tests handler
swift-build: setup
	@$(SWIFT) build $(SWIFT_FLAGS)
swift-build-tests: setup
	@$(SWIFT) build $(SWIFT_FLAGS) --build-tests
handler: $(RELEASE)/libguardian-handler.so

.PHONY: build
build: swift-build ## release build into .build/release
	@$(MAKE) -f $(ROOT)/Makefile handler

# Programs that crash on purpose, one file each, in the languages people run. The comment
# `// flags: …` in a fixture's first line replaces the default flags.
C_FIXTURES := $(patsubst $(ROOT)/Tests/Fixtures/%.c,$(FIXTURES)/%,$(wildcard $(ROOT)/Tests/Fixtures/*.c))
CXX_FIXTURES := $(patsubst $(ROOT)/Tests/Fixtures/%.cpp,$(FIXTURES)/%,$(wildcard $(ROOT)/Tests/Fixtures/*.cpp))
RUST_FIXTURES := $(patsubst $(ROOT)/Tests/Fixtures/%.rs,$(FIXTURES)/%,$(wildcard $(ROOT)/Tests/Fixtures/*.rs))
SWIFT_FIXTURES := $(patsubst $(ROOT)/Tests/Fixtures/%.swift,$(FIXTURES)/%,$(wildcard $(ROOT)/Tests/Fixtures/*.swift))
flags = $(or $(shell sed -n '1s,^// flags: ,,p' $(1)),$(2))
$(C_FIXTURES): $(FIXTURES)/%: $(ROOT)/Tests/Fixtures/%.c
	@mkdir -p $(FIXTURES)
	$(CC) $(call flags,$<,-O1 -g -fno-omit-frame-pointer -pthread) -I$(ROOT)/Sources/CrashHandler/include -o $@ $< -ldl -lm
# It has the handler's own sources in it.
$(FIXTURES)/handler_linked: $(HANDLER_SOURCES) $(HANDLER_HEADERS)
$(CXX_FIXTURES): $(FIXTURES)/%: $(ROOT)/Tests/Fixtures/%.cpp
	@mkdir -p $(FIXTURES)
	$(CXX) $(call flags,$<,-O2 -g -pthread) -I$(ROOT)/Sources/CrashHandler/include -o $@ $<
$(RUST_FIXTURES): $(FIXTURES)/%: $(ROOT)/Tests/Fixtures/%.rs
	@mkdir -p $(FIXTURES)
	rustc --edition 2021 $(call flags,$<,-O -g) -o $@ $<
$(SWIFT_FIXTURES): $(FIXTURES)/%: $(ROOT)/Tests/Fixtures/%.swift
	@mkdir -p $(FIXTURES)
	swiftc $(call flags,$<,-O -g -parse-as-library) -o $@ $<
# Variants that include another fixture.
$(addprefix $(FIXTURES)/symbols_,dwarf4 nopie staticpie): $(ROOT)/Tests/Fixtures/symbols_c.c
.PHONY: fixtures
fixtures: $(C_FIXTURES) $(CXX_FIXTURES) $(RUST_FIXTURES) $(SWIFT_FIXTURES)

.PHONY: test
test: setup-test ## install what is missing, build, run every test (FILTER=… for some)
	@$(MAKE) -f $(ROOT)/Makefile swift-build-tests
	@$(MAKE) -f $(ROOT)/Makefile handler fixtures
	@cd $(ROOT) && $(SWIFT) test -c release --skip-build $(if $(FILTER),--filter '$(FILTER)')

.PHONY: run
run: build ## run the example server under guardian, crash it, show the report
	@$(ROOT)/Sources/Examples/run-crash-server $(RELEASE)

.PHONY: bench
bench: setup-test build ## guardian beside its peers, against the budgets (ROWS=… for some)
	@$(ROOT)/Tests/Benchmarks/bench --build $(RELEASE) $(ROWS)

# The same tests with more rounds; a failure names its seed.
ROUNDS := 2000000
STEPS := 50000000
SEED := $(shell date +%s)
.PHONY: fuzz
fuzz: swift-build-tests ## hostile rings and texts, the policy's simulation, longer (ROUNDS=… STEPS=… SEED=…)
	@echo "seed $(SEED), $(ROUNDS) rings, $(STEPS) steps"
	@cd $(ROOT) && GUARDIAN_FUZZ_ROUNDS=$(ROUNDS) GUARDIAN_FUZZ_SEED=$(SEED) \
	  GUARDIAN_SIMULATION_STEPS=$(STEPS) GUARDIAN_SIMULATION_SEED=$(SEED) \
	  $(SWIFT) test -c release --skip-build --filter 'RingTests|Simulated|Hostile'

# Into $(DESTDIR)$(PREFIX). What is built already is installed as it is, so that `sudo make install`
# needs no toolchain.
PREFIX := /usr/local
INSTALL := install
.PHONY: install
install: ## into $(DESTDIR)$(PREFIX): programs, guardian.h, unit, catalog, man pages, completions
	@for f in guardian guardianctl guardian-capture guardian-reporter guardian-sweep libguardian-handler.so; do \
	  [ -e $(RELEASE)/$$f ] || { $(MAKE) -f $(ROOT)/Makefile build; break; }; done
	@to=$(DESTDIR)$(PREFIX); \
	$(INSTALL) -d -m 0755 $$to/bin $$to/lib/guardian $$to/libexec/guardian $$to/include \
	  $$to/lib/systemd/system $$to/lib/systemd/user $$to/lib/systemd/catalog $$to/share/doc/guardian; \
	$(INSTALL) -m 0755 $(RELEASE)/guardian $(RELEASE)/guardianctl $$to/bin; \
	$(INSTALL) -m 0755 $(RELEASE)/guardian-capture $(RELEASE)/guardian-reporter $(RELEASE)/guardian-sweep \
	  $$to/libexec/guardian; \
	$(INSTALL) -m 0644 $(RELEASE)/libguardian-handler.so $$to/lib/guardian; \
	$(INSTALL) -m 0644 $(ROOT)/Sources/CrashHandler/include/guardian.h $$to/include; \
	$(INSTALL) -d -m 0755 $$to/lib/pkgconfig; \
	sed -e 's,@PREFIX@,$(PREFIX),' -e 's,@VERSION@,$(VERSION),' $(ROOT)/Sources/CrashHandler/guardian.pc.in \
	  | $(INSTALL) -m 0644 /dev/stdin $$to/lib/pkgconfig/guardian.pc; \
	sed 's,/usr/bin/guardian,$(PREFIX)/bin/guardian,' '$(ROOT)/Units/guardian@.service' \
	  | $(INSTALL) -m 0644 /dev/stdin $$to/lib/systemd/system/guardian@.service; \
	sed 's,/usr/bin/guardian,$(PREFIX)/bin/guardian,' '$(ROOT)/Units/user/guardian@.service' \
	  | $(INSTALL) -m 0644 /dev/stdin $$to/lib/systemd/user/guardian@.service; \
	for f in $(ROOT)/Units/*.catalog; do \
	  [ ! -e $$f ] || $(INSTALL) -m 0644 $$f $$to/lib/systemd/catalog; done; \
	$(INSTALL) -m 0644 $(ROOT)/Units/*.conf $$to/share/doc/guardian; \
	$(INSTALL) -d -m 0755 $$to/share/doc/guardian/examples; \
	$(INSTALL) -m 0644 $(ROOT)/Units/examples/* $$to/share/doc/guardian/examples; \
	generate() { $(INSTALL) -d -m 0755 "$$to/$${2%/*}"; \
	  $(RELEASE)/guardian --print "$$1" | $(INSTALL) -m 0644 /dev/stdin "$$to/$$2"; }; \
	generate man share/man/man1/guardian.1; \
	generate manctl share/man/man1/guardianctl.1; \
	generate man5 share/man/man5/guardian.toml.5; \
	generate completion-bash share/bash-completion/completions/guardian; \
	ln -sf guardian $$to/share/bash-completion/completions/guardianctl; \
	generate completion-zsh share/zsh/site-functions/_guardian; \
	generate completion-fish share/fish/vendor_completions.d/guardian.fish; \
	generate example-toml share/doc/guardian/example.toml; \
	[ -d $(DESTDIR)/etc/guardian ] || $(INSTALL) -d -m 0755 $(DESTDIR)/etc/guardian 2>/dev/null \
	  || echo "$(DESTDIR)/etc/guardian cannot be made here: the unit reads its configurations there"; \
	echo "installed into $$to"

.PHONY: conformance
conformance: setup-test build ## what a supervisor must do: guardian and its peers, as a scoreboard
	@$(MAKE) -f $(ROOT)/Makefile fixtures
	@$(ROOT)/Tests/Conformance/conformance.py --jobs 2 $(CONFORMANCE)

.PHONY: format lint
format: ## rewrite the Swift sources in the one format
	@$(SWIFT) format --configuration $(ROOT)/.swift-format -i -r -p $(ROOT)/Sources $(ROOT)/Tests $(ROOT)/Package.swift
lint: ## format, declared imports
	@$(SWIFT) format lint --strict --configuration $(ROOT)/.swift-format -r -p $(ROOT)/Sources $(ROOT)/Tests $(ROOT)/Package.swift
	@$(ROOT)/.ci/check-imports
