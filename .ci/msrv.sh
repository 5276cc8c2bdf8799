#!/bin/sh
# The oldest Rust that Cargo.toml says is enough: for core, which has no dependencies, an older one than for the rest.
set -eu
cd "$(dirname "$0")/.."
check() {
    version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$1")
    shift
    [ -n "$version" ] || {
        echo "no rust-version is stated"
        exit 1
    }
    # The toolchain in use may be the one: what it has built already is not built again.
    case $(cargo --version) in
        "cargo $version."*)
            echo "Rust $version is the toolchain in use"
            cargo check --quiet "$@"
            return 0
            ;;
    esac
    # Without a third number rustup would take the last of a series, and not the oldest.
    case $version in
        *.*.*) ;;
        *) version=$version.0 ;;
    esac
    if ! cargo "+$version" --version >/dev/null 2>&1 &&
        ! rustup toolchain install "$version" --profile minimal >/dev/null 2>&1; then
        echo "SKIPPED: Rust $version: it is not there, and cannot be installed"
        return 0
    fi
    echo "Rust $version"
    cargo "+$version" check --quiet --target-dir target/msrv "$@"
}
check core/Cargo.toml -p condprog-core
check Cargo.toml --workspace --all-targets
