# The engine and its unit tests on aarch64: cross-built, and run under qemu-user by
# tests/arm/test_neon.py, which says why where they cannot be.
#   make arm64    that part alone, and what it needs installed

ARM_BUILD := build-arm64
ARM_LIB := $(CURDIR)/$(ARM_BUILD)/sysroot/usr
DEB_ARM := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user

# Quickly built, without debug information: building and running take about as long.
ARM_MAKE = +$(Q)$(MAKE) --no-print-directory BUILD=$(ARM_BUILD) SANITIZE= CFLAGS=-O1 \
  CC='aarch64-linux-gnu-gcc -isystem $(ARM_LIB)/include -B$(ARM_LIB)/lib/aarch64-linux-gnu/' \
  AR=aarch64-linux-gnu-ar OBJCOPY=aarch64-linux-gnu-objcopy

.PHONY: arm64 arm64-build deps-arm64 unit-tests

unit-tests: $(UNIT_BIN)

arm64: deps-arm64
	$(MAKE) $(JOBS) --no-print-directory arm64-build
	WASTE_TEST_BUILD=$(BUILD) $(PROVE) --timer --exec tests/run tests/arm/test_neon.py

# Machines without them build and test all the rest. (uname: on a fresh machine there is
# no compiler yet that could be asked.)
deps-arm64:
ifeq ($(shell uname -sm),Linux x86_64)
	-$(call install,$(DEB_ARM),optional)
endif

arm64-build: $(ARM_BUILD)/prepared
	$(ARM_MAKE) $$(test -s $(ARM_BUILD)/missing && echo nothing || echo unit-tests)

.PHONY: $(ARM_BUILD)/prepared
$(ARM_BUILD)/prepared:
	$(call prepare,tests/arm/prepare.sh,$(ARM_BUILD),aarch64)
