# The engine and its unit tests on aarch64, cross-built, under qemu-user. make test takes
# it in once it is built; tests/arm/test_neon.py says so when it is not.
#   make arm64    that part alone, and what it needs installed

ARM_BUILD := build-arm64
ARM_LIB := $(CURDIR)/$(ARM_BUILD)/sysroot/usr
DEB_ARM := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user

# Without debug information, for the sake of the time it takes.
ARM_MAKE = +$(Q)$(MAKE) --no-print-directory BUILD=$(ARM_BUILD) SANITIZE= CFLAGS=-O2 \
  CC='aarch64-linux-gnu-gcc -isystem $(ARM_LIB)/include -B$(ARM_LIB)/lib/aarch64-linux-gnu/' \
  AR=aarch64-linux-gnu-ar OBJCOPY=aarch64-linux-gnu-objcopy

.PHONY: arm64 arm64-build deps-arm64 unit-tests

unit-tests: $(UNIT_BIN)

arm64: deps-arm64
	$(MAKE) $(JOBS) --no-print-directory arm64-build
	WASTE_TEST_BUILD=$(BUILD) $(PROVE) --timer --exec tests/run tests/arm/test_neon.py

# Machines without them build and test all the rest.
deps-arm64:
ifneq ($(filter x86_64-linux%,$(shell $(CC) -dumpmachine)),)
	-$(call install,$(DEB_ARM))
endif

# $(ARM_BUILD)/missing holds the reason when there is nothing to build with.
arm64-build: $(ARM_BUILD)/prepared
	$(ARM_MAKE) $$(test -s $(ARM_BUILD)/missing && echo nothing || echo unit-tests)

.PHONY: $(ARM_BUILD)/prepared nothing
nothing:
$(ARM_BUILD)/prepared:
	@mkdir -p $(ARM_BUILD)
	@tests/arm/prepare.sh $(ARM_BUILD) 2>$(ARM_BUILD)/missing || { printf '  no aarch64 tests: '; cat $(ARM_BUILD)/missing; }
