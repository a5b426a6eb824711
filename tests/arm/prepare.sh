#!/bin/sh
# prepare.sh DIR: what the unit tests on aarch64 need besides this tree, or the reason
# on stderr why they cannot run here.
#
# Compiler and qemu are packages of this machine (Makefile, deps-arm64). The libraries
# are arm64 packages: apt fetches them with lists of its own under DIR/apt, and they are
# unpacked into DIR/sysroot. dpkg is told nothing, and nothing is installed.
# ARM64_SOURCES names a sources.list for apt where the machine's own has no arm64.
set -e
cannot() { echo "$*" >&2; exit 1; }
dir=$(mkdir -p "$1" && cd "$1" && pwd)

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || cannot "cross-building is set up for Linux on x86-64"
for tool in aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64:qemu-user; do
    command -v "${tool%:*}" >/dev/null || cannot "no ${tool%:*} (package ${tool#*:})"
done
[ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ] || cannot "no libc for aarch64 (package libc6-dev-arm64-cross)"
[ ! -e "$dir/sysroot/complete" ] || exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || cannot "no apt-get to fetch arm64 libraries with"

rm -rf "$dir/apt" "$dir/sysroot"
mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/sysroot"
cd "$dir/apt"
: >status
apt() {
    timeout 180 apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
        -o Dir::State="$dir/apt" -o Dir::State::Lists="$dir/apt/lists" -o Dir::State::status="$dir/apt/status" \
        -o Dir::Cache="$dir/apt/cache" -o APT::Sandbox::User=root -o Acquire::http::Timeout=30 -o Acquire::Retries=1 \
        ${ARM64_SOURCES:+-o Dir::Etc::SourceList="$ARM64_SOURCES" -o Dir::Etc::SourceParts=-} "$@"
}
apt update >log 2>&1 || true # a source without arm64 is no harm if another has it
apt download libjansson-dev libdeflate-dev libcmocka-dev libcmocka0 >>log 2>&1 ||
    cannot "apt has no arm64 packages of jansson, libdeflate and cmocka here: $(grep '^E:' log | tail -1)"
for package in *.deb; do dpkg-deb -x "$package" "$dir/sysroot"; done
cd "$dir"
rm -rf apt
touch sysroot/complete
