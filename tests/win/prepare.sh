#!/bin/sh
# prepare.sh DIR: what building for Windows needs besides this tree, or the reason on
# stderr why it cannot be had here.
#
# Compiler and wine are packages of this machine (win.mk, deps-windows). Of jansson,
# libdeflate and cmocka Debian has no packages for mingw: apt fetches their sources, with
# lists of its own under DIR/apt, and they are built into DIR/sysroot. Nothing is installed.
# WINDOWS_SOURCES names a sources.list for apt with deb-src lines, where the machine's own
# repositories have no sources.
set -e
cannot() { echo "$*" >&2; exit 1; }
dir=$(mkdir -p "$1" && cd "$1" && pwd)
cc=x86_64-w64-mingw32-gcc-posix

for tool in $cc:gcc-mingw-w64-x86-64-posix wine:wine64; do
    command -v "${tool%:*}" >/dev/null || cannot "no ${tool%:*} (package ${tool#*:})"
done
header=$(echo '#include <sqlite3ext.h>' | ${HOSTCC:-cc} -E - 2>/dev/null | sed -n 's/^# 1 "\(.*sqlite3ext.h\)".*/\1/p' | head -1)
[ -n "$header" ] || cannot "no sqlite3ext.h (package libsqlite3-dev)"
[ ! -e "$dir/sysroot/complete" ] || exit 0
command -v apt-get >/dev/null || cannot "no apt-get to fetch the sources of jansson, libdeflate and cmocka with"

rm -rf "$dir/apt" "$dir/source" "$dir/sysroot"
mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/apt/from" "$dir/source" \
    "$dir/sysroot/include" "$dir/sysroot/lib"
cd "$dir/apt"
: >status
if [ -n "$WINDOWS_SOURCES" ]; then
    cp "$WINDOWS_SOURCES" from/
else # the machine's own repositories, asked for sources
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$list" ] || sed -e 's/^Types:.*/Types: deb-src/' -e 's/^deb /deb-src /' "$list" >"from/${list##*/}"
    done
fi
apt() {
    apt-get -qq -o Dir::State="$dir/apt" -o Dir::State::Lists="$dir/apt/lists" -o Dir::State::status="$dir/apt/status" \
        -o Dir::Cache="$dir/apt/cache" -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$dir/apt/from" \
        -o APT::Sandbox::User=root -o Acquire::http::Timeout=30 "$@"
}
apt update >log 2>&1 || true # a repository without sources is no harm if another has them
apt --download-only source jansson libdeflate cmocka >>log 2>&1 ||
    cannot "apt has no sources of jansson, libdeflate and cmocka here: $(grep '^E:' log | tail -1)"
for archive in *.orig.tar.*z; do tar -xf "$archive" -C "$dir/source"; done

# $1: library, then flags and sources
build() {
    name=$1
    shift
    $cc -O2 -c "$@" 2>"$dir/apt/log" || cannot "$name does not build: $(grep error "$dir/apt/log" | head -1)"
    x86_64-w64-mingw32-ar rcs "$dir/sysroot/lib/lib$name.a" ./*.o
}
cd "$dir/source"
sed -e 's/@json_inline@/inline/' -e 's/@json_have_[a-z_]*@/1/' jansson-*/src/jansson_config.h.in >"$dir/sysroot/include/jansson_config.h"
cp jansson-*/src/jansson.h libdeflate-*/libdeflate.h cmocka-*/include/cmocka*.h "$dir/sysroot/include/"
cp "$header" "$(dirname "$header")/sqlite3.h" "$dir/sysroot/include/"
cd "$dir"/source/jansson-*/
printf '#define %s\n' 'HAVE_SYS_TYPES_H 1' 'HAVE_STRTOLL 1' 'HAVE_LOCALECONV 1' 'USE_WINDOWS_CRYPTOAPI 1' \
    'INITIAL_HASHTABLE_ORDER 3' >src/jansson_private_config.h
build jansson -DHAVE_CONFIG_H -DHAVE_STDINT_H -I"$dir/sysroot/include" -Isrc src/*.c
cd "$dir"/source/libdeflate-*/
build deflate -I. lib/*.c lib/x86/*.c
cd "$dir"/source/cmocka-*/
build cmocka -std=gnu99 -D__USE_MINGW_ANSI_STDIO=1 -DHAVE_STDINT_H -DHAVE_INTTYPES_H -DHAVE_SIGNAL_H \
    -DHAVE_MALLOC_H -DHAVE_IO_H -DHAVE_TIME_H -DHAVE_STRUCT_TIMESPEC -Iinclude src/cmocka.c
cd "$dir"
rm -rf apt source
touch sysroot/complete
