# Tests: what is built for them and how they run. `make test` ends in prove's
# own summary.
#   tests/unit/test_*.c   one program a file, cmocka, linked with the engine
#   tests/tools/*.c       small programs that tests run
#   tests/fault/shim.c    a library that tests preload
#   tests/*/test_*.py     scripts that print TAP (tests/lib/tap.py), plain Python

UNIT_SRC := $(sort $(wildcard tests/unit/test_*.c))
TOOL_SRC := $(sort $(wildcard tests/tools/*.c))
UNIT_BIN := $(UNIT_SRC:%.c=$(BUILD)/%)
TOOL_BIN := $(TOOL_SRC:%.c=$(BUILD)/%)
FAULT_SHIM := $(if $(filter Linux,$(shell uname -s)),$(BUILD)/tests/fault/shim.so)
PY_TESTS := $(sort $(wildcard tests/*/test_*.py))
NEON_TEST := tests/arm/test_neon.py
PROVE ?= prove

$(BUILD)/tests/unit/%: tests/unit/%.c $(BUILD)/libwaste.a $(JANSSON_A)
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(COMPILE) -Iengine -Itests -DTEST_BUILD='"$(BUILD)"' $< -o $@ $(BUILD)/libwaste.a $(DEPS_A) -lcmocka $(SYSTEM_STATIC) -lm -pthread

$(BUILD)/tests/tools/%: tests/tools/%.c $(BUILD)/libwaste.a $(JANSSON_A)
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(COMPILE) -Iengine -Itests $< -o $@ $(BUILD)/libwaste.a $(DEPS_A) -lm -pthread

# Not sanitized, so that it can stand behind a sanitizer's runtime; and with pread
# and pread64 apart.
$(BUILD)/tests/fault/shim.so: tests/fault/shim.c
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(WARN) -O2 -g -fPIC -shared -pthread $< -o $@ -ldl

test: deps-test deps-arm64
	$(MAKE) $(JOBS) check

# The suite itself, without installing anything. Under a sanitizer nothing is run on
# aarch64; otherwise that takes the longest, and so begins first.
check: all $(UNIT_BIN) $(TOOL_BIN) $(FAULT_SHIM) $(if $(SANITIZE),,arm64-build)
	CMOCKA_MESSAGE_OUTPUT=TAP PYTHONDONTWRITEBYTECODE=1 WASTE_TEST_BUILD=$(BUILD) \
	  WASTE_TEST_SANITIZE=$(SANITIZE) $(PROVE) -j2 --timer --exec tests/run $(NEON_TEST) $(UNIT_BIN) $(filter-out $(NEON_TEST),$(PY_TESTS))

# What a build for other machines needs, SCRIPT FOLDER SYSTEM: FOLDER/missing is empty, or
# holds the reason why there is nothing to build with, which its tests then give.
define prepare
@mkdir -p $(2)
@if $(1) $(2) 2>$(2)/missing; then : >$(2)/missing; \
else test -s $(2)/missing || echo '$(1) failed' >$(2)/missing; \
  echo "  no tests on $(3): $$(tail -1 $(2)/missing)"; fi
endef

.PHONY: nothing
nothing:

include tests/arm/arm.mk
include tests/win/win.mk

# The same suite under a sanitizer, in its own build folder.
asan:
	$(MAKE) $(JOBS) check SANITIZE=address BUILD=build-asan
ubsan:
	$(MAKE) $(JOBS) check SANITIZE=undefined BUILD=build-ubsan
tsan:
	$(MAKE) $(JOBS) check SANITIZE=thread BUILD=build-tsan

lint:
	clang-format --dry-run --Werror $(wildcard engine/*.c engine/*/*.c) $(EXT_SRC) $(UNIT_SRC) $(TOOL_SRC) $(wildcard tests/fault/*.c) $(wildcard engine/*.h engine/*/*.h ext/*.h)
	$(MAKE) --no-print-directory CC=clang BUILD=build-clang all
	cppcheck --quiet --error-exitcode=1 --std=c11 --inline-suppr --suppressions-list=tests/cppcheck.txt \
	  -Iengine -Iext --enable=warning,portability engine ext

# Regenerates the committed answers of the oracles: real tiktoken (npm) and PyTorch.
oracles: all
	cd tests/oracle && npm install --no-audit --no-fund && node tokenizer.mjs
	$(PYTHON) tests/oracle/logits.py --all

-include $(UNIT_BIN:=.d) $(TOOL_BIN:=.d)
