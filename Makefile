# WASTE: see README.md for the two commands a user needs.
#
#   make            build/waste.so and build/libwaste.a
#   make demo       install what is missing, build, convert the demo model, ask it
#   make test       install what is missing, build, run every test (ends in prove's summary)
#   make arm64      of these the unit tests on aarch64, under qemu-user
#   make windows    build-win/waste.dll, and unit tests under wine
#   make asan|ubsan|tsan   the same suite in its own build folder
#   make lint       formatting and static analysis
#   make install    PREFIX=/usr/local
#   make clean

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
AR ?= ar
OBJCOPY ?= objcopy
PYTHON ?= /usr/bin/python3
SANITIZE ?=
VERSION := $(shell sed -n 's/^\#define WASTE_VERSION  *"\(.*\)"/\1/p' engine/waste.h)

# No -march: the extension runs on any x86-64 or armv8; kernels for newer CPUs
# are separate files with their own flags.
CFLAGS ?= -O3 -g
# What a system has of its own is in files that end in its name.
TARGET := $(shell $(CC) -dumpmachine)
ifneq ($(findstring mingw,$(TARGET)),)
OTHER := posix
EXTENSION := waste.dll
# Nothing of the compiler's stays outside. Its stack is aligned to 16 bytes only, and it
# spills vectors of 32 and 64 as if it were to their size (docs/decisions.md).
SYSTEM_CFLAGS := -Wa,-muse-unaligned-vector-move
SYSTEM_STATIC := -static
SYSTEM_LDFLAGS := -static
else
OTHER := win
EXTENSION := waste.so
SYSTEM_LDFLAGS := -Wl,--no-undefined -Wl,-z,relro,-z,now
SYSTEM_CFLAGS := -fPIC
endif

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
STD := -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64
# -ffp-contract=off: a fused multiply-add on one machine and not on another
# would give different bits.
BASE := $(STD) $(WARN) $(SYSTEM_CFLAGS) -fvisibility=hidden -ffp-contract=off -pthread -MMD -MP
SAN := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all)
COMPILE = $(CC) $(BASE) $(SAN) $(CPPFLAGS) $(CFLAGS)

include engine/kernels/kernels.mk

ENGINE_SRC := $(filter-out %_$(OTHER).c,$(sort $(wildcard engine/*.c engine/*/*.c)))
EXT_SRC := $(sort $(wildcard ext/*.c))
ENGINE_OBJ := $(ENGINE_SRC:%.c=$(BUILD)/%.o) $(KERNELS_TWICE)
EXT_OBJ := $(EXT_SRC:%.c=$(BUILD)/%.o)

# Static archives of Debian's -dev packages, found through the compiler.
archive = $(shell $(CC) -print-file-name=lib$(1).a)
JANSSON_A := $(BUILD)/libjansson-shared.a
DEPS_A = $(JANSSON_A) $(call archive,deflate)

# A job per processor, unless the caller has said how many.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))

# One short line per step; V=1 shows whole commands.
Q := $(if $(V),,@)
say = $(if $(V),,@echo '  $(1)')

.DEFAULT_GOAL := all
.PHONY: all deps deps-test demo test check asan ubsan tsan lint install clean oracles

all: $(BUILD)/$(EXTENSION) $(BUILD)/libwaste.a

$(BUILD)/engine/%.o: engine/%.c
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(COMPILE) -Iengine -c $< -o $@

$(BUILD)/ext/%.o: ext/%.c
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(COMPILE) -Iengine -Iext -I$(BUILD)/gen -c $< -o $@

# jansson's file loader names stdin, which a shared object cannot reach without
# PIC; engine/base/json.c defines the stand-in (docs/decisions.md).
$(JANSSON_A):
	@mkdir -p $(@D)
	$(Q)$(OBJCOPY) --redefine-sym stdin=waste_json_unused_stdin $(call archive,jansson) $@

$(BUILD)/libwaste.a: $(ENGINE_OBJ)
	$(call say,AR $@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# The schema is compiled in.
$(BUILD)/gen/schema.h: sql/schema.sql
	@mkdir -p $(@D)
	$(Q){ echo '/* made from sql/schema.sql */'; echo 'static const char schema_sql[] ='; \
	  sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/' $<; echo ';'; } > $@

$(EXT_OBJ): $(BUILD)/gen/schema.h

$(BUILD)/$(EXTENSION): $(EXT_OBJ) $(BUILD)/libwaste.a $(JANSSON_A)
	$(call say,LD $@)
	$(Q)$(CC) -shared $(SAN) $(LDFLAGS) -o $@ $(EXT_OBJ) $(BUILD)/libwaste.a $(DEPS_A) \
	  -Wl,--exclude-libs,ALL $(SYSTEM_LDFLAGS) -lm -pthread

# The library is a static archive only, so its users need what it needs.
install: all
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 755 $(BUILD)/waste.so $(DESTDIR)$(PREFIX)/lib/waste.so
	install -m 644 $(BUILD)/libwaste.a $(DESTDIR)$(PREFIX)/lib/libwaste.a
	install -m 644 engine/waste.h $(DESTDIR)$(PREFIX)/include/waste.h
	{ echo 'prefix=$(PREFIX)'; echo 'libdir=$${prefix}/lib'; echo 'includedir=$${prefix}/include'; echo; \
	  echo 'Name: waste'; echo 'Description: mixture-of-experts models streamed from disk'; \
	  echo 'Version: $(VERSION)'; echo 'Requires: jansson libdeflate'; \
	  echo 'Libs: -L$${libdir} -lwaste -lm -pthread'; echo 'Cflags: -I$${includedir}'; \
	} > $(DESTDIR)$(PREFIX)/lib/pkgconfig/waste.pc

clean:
	rm -rf build examples/demo/demo.waste

# ---- what is missing on a fresh Debian or Ubuntu ------------------------

DEB_BUILD := gcc libc6-dev binutils libsqlite3-dev sqlite3 libjansson-dev libdeflate-dev
DEB_TEST := $(DEB_BUILD) libcmocka-dev perl python3 unicode-data pkg-config strace

# $(call install,packages[,optional]): nothing when all are there; apt-get otherwise.
# For what is optional nobody is asked for a password, and no mirror is waited for long.
define install
	@missing=; for p in $(1); do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	test -z "$$missing" && exit 0; \
	command -v apt-get >/dev/null || { echo "please install the equivalents of:$$missing"; exit 0; }; \
	sudo=; test "$$(id -u)" = 0 || sudo='sudo$(if $(2), -n)'; \
	echo "installing:$$missing"; \
	$(if $(2),timeout 120) $$sudo apt-get update -qq && \
	$(if $(2),timeout 300 $$sudo apt-get install -y -qq --no-install-recommends --download-only $$missing >/dev/null && )\
	DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$missing >/dev/null
endef

deps:
	$(call install,$(DEB_BUILD))

deps-test:
	$(call install,$(DEB_TEST))

# ---- the demo ---------------------------------------------------------------

demo: deps
	$(MAKE) $(JOBS) --no-print-directory all
	@echo 'sqlite3 < examples/demo/demo.sql'
	@rm -rf examples/demo/demo.waste
	@sqlite3 :memory: < examples/demo/demo.sql

include tests/tests.mk
include tests/bench/bench.mk

-include $(ENGINE_OBJ:.o=.d) $(EXT_OBJ:.o=.d)
