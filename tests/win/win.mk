# The engine, the extension and unit tests for Windows: cross-built by mingw-w64, run
# under wine. make test takes the tests in once they are built; tests/win/test_windows.py
# says so when they are not.
#   make windows    that part alone, and what it needs installed

WIN_BUILD := build-win
WIN_LIB := $(CURDIR)/$(WIN_BUILD)/sysroot
DEB_WIN := gcc-mingw-w64-x86-64-posix wine wine64

# What is new there (base, the store's reads), what the compiler does otherwise (kernels),
# and text. The rest opens model after model, which takes wine minutes.
WIN_TESTS := $(addprefix test_,aside bank base cache cache_guesses chat_json chat_message chat_request \
  chat_xtml container cpus kernels kernels_experts kernels_fast lock manifest plat policy pool pretok quant \
  reader record reply rope router sampler slots stop tensors vq_pool)

# Without debug information, for the sake of the time it takes.
WIN_MAKE = +$(Q)$(MAKE) --no-print-directory BUILD=$(WIN_BUILD) SANITIZE= CFLAGS=-O2 \
  CC='x86_64-w64-mingw32-gcc-posix -isystem $(WIN_LIB)/include -B$(WIN_LIB)/lib/' \
  AR=x86_64-w64-mingw32-ar OBJCOPY=x86_64-w64-mingw32-objcopy

.PHONY: windows windows-build deps-windows

windows: deps-windows
	$(MAKE) $(JOBS) --no-print-directory windows-build
	WASTE_TEST_BUILD=$(BUILD) $(PROVE) --timer --exec tests/run tests/win/test_windows.py

# Machines without them build and test all the rest.
deps-windows:
ifneq ($(filter x86_64-linux%,$(TARGET)),)
	-$(call install,$(DEB_WIN))
endif

windows-build: $(WIN_BUILD)/prepared
	@echo $(WIN_TESTS) >$(WIN_BUILD)/programs
	$(WIN_MAKE) $$(test -s $(WIN_BUILD)/missing && echo nothing || \
	  echo all $(WIN_TESTS:%=$(WIN_BUILD)/tests/unit/%))

.PHONY: $(WIN_BUILD)/prepared
$(WIN_BUILD)/prepared:
	$(call prepare,tests/win/prepare.sh,$(WIN_BUILD),Windows)
