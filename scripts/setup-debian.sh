#!/usr/bin/env bash
# Brings a Debian machine to where Millpond can be built and tested. Only what is missing is installed; when nothing is,
# nothing is asked of the network and the call ends within a second.
#
#   scripts/setup-debian.sh          what `make demo` and `make test` need
#   scripts/setup-debian.sh s3       that, and the S3 server of `make test`
#   scripts/setup-debian.sh bench    that, Node and wabt for the peers of `make bench`, and perf
#   scripts/setup-debian.sh arm      that, and what `make test-arm` needs to build for 64-bit ARM and to run it here
set -euo pipefail
cd "$(dirname "$0")/.."

channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
venv=build/venv

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "these packages are missing and this is neither root nor is there sudo; run as root: $*"
    fi
}

# --- Debian packages: each is wanted for one file that is then there -------------------------------------------------
missing=()
want() { # PACKAGE FILE-OR-COMMAND
    case $2 in
        /*) [ -e "$2" ] || missing+=("$1") ;;
        *) command -v "$2" >/dev/null || missing+=("$1") ;;
    esac
}

want gcc cc                                             # links Rust programs
want g++ c++                                            # libFuzzer, of the fuzz targets
want libc6-dev /usr/include/stdio.h
want make make
want curl curl                                          # README's walk, and the end-to-end suite
want openssl openssl                                    # certificates for the end-to-end suite
want python3 python3
want clang-22 clang-22                                  # C guests
want lld-22 wasm-ld-22
want wasi-libc /usr/lib/wasm32-wasi/libc.a
want libclang-rt-22-dev-wasm32 /usr/lib/llvm-22/lib/clang/22/lib/wasi/libclang_rt.builtins-wasm32.a
python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
case ${1-} in
    '' | s3) ;;
    bench)
        want nodejs node
        want npm npm
        want wabt wasm2c
        want binutils size
        want linux-perf perf
        ;;
    arm)
        want qemu-user qemu-aarch64
        want gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
        want libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdio.h
        ;;
    *) die "unknown word \`$1\`: say nothing, \`s3\`, \`bench\` or \`arm\`" ;;
esac

if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || die "this is not a Debian system: install what these packages hold, then call again: ${missing[*]}"
    say "installing ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q update ||
        say "apt-get update failed; trying with the lists that are here"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qy install --no-install-recommends "${missing[@]}" ||
        die "apt-get could not install ${missing[*]}. clang 22 is in Debian 12's security archive: is it in your sources?"
fi

# --- The Rust toolchain of rust-toolchain.toml -----------------------------------------------------------------------
toolchain_is_here() {
    [ "$(rustc --version 2>/dev/null | cut -d' ' -f2)" = "$channel" ] &&
        [ -d "$(rustc --print target-libdir --target wasm32-wasip1)" ] &&
        [ -d "$(rustc --print target-libdir --target wasm32-wasip2)" ] &&
        cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1
}

if ! toolchain_is_here; then
    command -v rustup >/dev/null || die "rustup is missing: install it (https://rustup.rs), then call again"
    say "installing Rust $channel"
    rustup toolchain install "$channel" --profile minimal --component clippy --component rustfmt \
        --target wasm32-wasip1 --target wasm32-wasip2 ||
        die "Rust $channel could not be installed. If an earlier attempt was interrupted, \`rustup toolchain uninstall $channel\` and call again"
    toolchain_is_here || die "Rust $channel is installed but is not what \`rustc\` means here; see \`rustup show\`"
fi

arm=aarch64-unknown-linux-gnu
if [ "${1-}" = arm ] && [ ! -d "$(rustc --print target-libdir --target $arm)" ]; then
    command -v rustup >/dev/null || die "rustup is missing: install it (https://rustup.rs), then call again"
    say "installing Rust's libraries for $arm"
    rustup target add $arm
fi

# --- Python packages of the tests and examples, in a folder of their own; the wheels stay for the template python-http -
if ! cmp -s tests/requirements.txt "$venv/installed.txt"; then
    say "installing tests/requirements.txt into $venv"
    rm -rf "$venv" build/wheels
    python3 -m venv "$venv"
    pip=("$venv/bin/pip" --quiet --disable-pip-version-check)
    "${pip[@]}" download --require-hashes --only-binary :all: --dest build/wheels -r tests/requirements.txt
    "${pip[@]}" install --no-index --find-links build/wheels -r tests/requirements.txt
    cp tests/requirements.txt "$venv/installed.txt"
fi

if ! cmp -s tests/packages.txt build/wheels/packages.txt; then
    say "downloading what tests/packages.txt names"
    "$venv/bin/pip" --quiet --disable-pip-version-check download --require-hashes --only-binary :all: --dest build/wheels -r tests/packages.txt
    cp tests/packages.txt build/wheels/packages.txt
fi

# --- Packages of the templates: each is made a project in build/templates, and what its lock file names is brought here,
# --- so that the tests ask nothing of the network
prepare() { # TEMPLATE LOCK-FILE COMMAND...
    local from=crates/cli/templates/$1 to=build/templates/$1 lock=$2
    shift 2
    if ! cmp -s "$from/$lock" "$to.installed"; then
        say "installing what $from/$lock names"
        rm -rf "$to" "$to.installed"
        mkdir -p build/templates
        cp -rL "$from" "$to"
        grep -rlZ '{{name}}' "$to" | xargs -0 sed -i 's/{{name}}/pond/g'
        (cd "$to" && "$@")
        cp "$from/$lock" "$to.installed"
    fi
}

prepare rust-http Cargo.lock cargo fetch --quiet --locked --target wasm32-wasip2
if [ "$(node -p 'parseInt(process.versions.node)' 2>/dev/null || echo 0)" -ge 20 ] && command -v npm >/dev/null; then
    prepare js-http package-lock.json npm ci --no-audit --no-fund --loglevel=error --cache "$PWD/build/npm-cache"
else
    say "skipped: componentize-js, because Node 20 or later and npm are not here; JavaScript's example is not built"
fi

# --- An S3 server for the tests, which Go builds; Go checks what it downloads ------------------------------------------
if [ "${1-}" = s3 ]; then
    versitygw=v1.8.0
    if go version 2>/dev/null | grep -qE 'go1\.(2[5-9]|[3-9][0-9])'; then
        if ! [ -x "build/tools/bin/versitygw-$versitygw" ]; then
            say "building versitygw $versitygw"
            mkdir -p build/tools/bin
            GOBIN=$PWD/build/tools/bin GOFLAGS=-trimpath go install "github.com/versity/versitygw/cmd/versitygw@$versitygw"
            mv build/tools/bin/versitygw "build/tools/bin/versitygw-$versitygw"
            ln -sf "versitygw-$versitygw" build/tools/bin/versitygw
        fi
    else
        say "skipped: versitygw, because Go 1.25 or later is not here; tests of S3 are skipped"
    fi
fi
