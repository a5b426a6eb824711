# Benchmarks. They print JSON lines, explained in tests/bench/model.c; results go
# into docs/measured.md with machine and date. Run on a quiet machine.
#
#   make bench
#       The kernels, one by one, against plain C and the memory of the same run.
#   make bench-model CONTAINER=DIR
#       A container at hand: decode, and prompts, at BENCH_BUDGETS.
#   make bench-stream
#       Streaming at floor + 1 working set, on random containers with the shapes of
#       Kimi-Linear-48B (19 GB) and of a slice of Kimi K3 (26 GB), made under
#       BENCH_DIR when they are not there and kept: remove them with
#       `make bench-clean`.
#   make bench-peer
#       Beside llama.cpp on the same weights, in turn: 6 layers of Kimi-Linear-48B
#       (3.8 GB) and the GGUF file made of them (4.2 GB), kept under BENCH_DIR. Needs
#       node and npm; node-llama-cpp with its prebuilt llama.cpp goes into
#       BUILD/peer. See tests/bench/peer/peer.py; PEER_ARGS are its options.
#
#   BENCH_DIR      where containers are made: on the disk to be measured, not on tmpfs
#   BENCH_KL, BENCH_K3   more options of mkbig, e.g. BENCH_KL="--layers 6 --experts 64"
#                  BENCH_K3="--layers 2 --experts 128" for small ones (1.8 and 4.8 GB);
#                  "none" leaves that model out
#   BENCH_BUDGETS  a list as of model.c's --budget
#   BENCH_DECODE, BENCH_PREFILL, BENCH_BATCH   how much (a prefill of 0: none)
#   BENCH_REPEAT   times each; the first is cold
#   BENCH_ARGS     more options of model.c, e.g. BENCH_ARGS="--precision exact"

BENCH_DIR ?= /tmp/waste-bench
BENCH_KL ?=
BENCH_K3 ?=
BENCH_BUDGETS ?= floor+1
BENCH_DECODE ?= 64
BENCH_PREFILL ?= 64
BENCH_BATCH ?= 1
BENCH_REPEAT ?= 2
BENCH_ARGS ?=

BENCH_SRC := $(sort $(wildcard tests/bench/*.c))
BENCH_PARTS := tests/bench/disk.c tests/bench/memory.c tests/bench/trace.c
BENCH_BIN := $(patsubst %.c,$(BUILD)/%,$(filter-out $(BENCH_PARTS),$(BENCH_SRC)))
MKBIG := $(BUILD)/tests/tools/mkbig
BENCH_MODEL := $(BUILD)/tests/bench/model

$(BUILD)/tests/bench/%.o: tests/bench/%.c
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(COMPILE) -Iengine -c $< -o $@

$(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(BENCH_PARTS:%.c=$(BUILD)/%.o) $(BUILD)/libwaste.a $(JANSSON_A)
	$(Q)$(CC) $(SAN) $(LDFLAGS) -o $@ $(filter %.o,$^) $(BUILD)/libwaste.a $(DEPS_A) -lm -pthread

.SECONDARY: $(BENCH_SRC:%.c=$(BUILD)/%.o) $(BUILD)/tests/bench/peer/mkgguf.o

bench_run = $(BENCH_MODEL) --container $(1) --budget $(BENCH_BUDGETS) --decode $(BENCH_DECODE) \
  --batch $(BENCH_BATCH) --repeat $(BENCH_REPEAT) \
  $(if $(filter-out 0,$(BENCH_PREFILL)),--prefill $(BENCH_PREFILL)) $(BENCH_ARGS)

# A container's folder is named after the options that made it. $(1): preset,
# $(2): options
bench_name = $(BENCH_DIR)/$(1)$(shell echo "$(2)" | tr -d ' ').waste
define bench_stream
	test -f $(call bench_name,$(1),$(2))/manifest.json || $(MKBIG) $(call bench_name,$(1),$(2)) --preset $(1) $(2) >&2
	$(call bench_run,$(call bench_name,$(1),$(2)))
endef

# Kernels: ns, GB/s, ratio to plain C and to what memory gives in the same run.
.PHONY: bench
bench: $(BUILD)/tests/bench/kernels
	$< $(BENCH_ARGS)

.PHONY: bench-model bench-stream bench-peer bench-clean

bench-model: $(BENCH_MODEL)
	@test -n "$(CONTAINER)" || { echo 'wanted: make bench-model CONTAINER=DIR' >&2; exit 2; }
	@$(call bench_run,$(CONTAINER))

bench-stream: $(BENCH_MODEL) $(MKBIG)
	@mkdir -p $(BENCH_DIR)
	@$(if $(filter none,$(BENCH_KL)),,$(call bench_stream,kimi-linear-48b,$(BENCH_KL)))
	@$(if $(filter none,$(BENCH_K3)),,$(call bench_stream,k3-slice,$(BENCH_K3)))

# As many layers as fit, and of the vocabulary the share that the whole model has.
PEER_SHAPE := --layers 6 --vocab 36864
PEER_VERSION := 3.22.1
PEER_ARGS ?=
PEER_WASTE = $(call bench_name,kimi-linear-48b,$(PEER_SHAPE))
PEER_GGUF = $(PEER_WASTE:.waste=.gguf)
PEER_MODULES := $(BUILD)/peer

$(BUILD)/tests/bench/peer/mkgguf.o: CPPFLAGS += -Itests

# Only the binaries for this processor without a GPU, and nothing that would compile.
$(PEER_MODULES)/package.json:
	mkdir -p $(@D)
	cd $(@D) && npm install --no-audit --no-fund --ignore-scripts --omit=optional \
	  node-llama-cpp@$(PEER_VERSION) @node-llama-cpp/linux-x64@$(PEER_VERSION) >&2

bench-peer: $(BENCH_MODEL) $(MKBIG) $(BUILD)/tests/bench/peer/mkgguf $(PEER_MODULES)/package.json
	@mkdir -p $(BENCH_DIR)
	@test -f $(PEER_WASTE)/manifest.json || $(MKBIG) $(PEER_WASTE) --preset kimi-linear-48b $(PEER_SHAPE) >&2
	@test -f $(PEER_GGUF) || { $(BUILD)/tests/bench/peer/mkgguf $(PEER_WASTE) $(PEER_GGUF).part >&2 && \
	  mv $(PEER_GGUF).part $(PEER_GGUF); }
	@WASTE_TEST_BUILD=$(BUILD) $(PYTHON) tests/bench/peer/peer.py $(PEER_WASTE) $(PEER_GGUF) $(PEER_MODULES) $(PEER_ARGS)

# Only what bench-stream and bench-peer make.
bench-clean:
	rm -rf $(BENCH_DIR)/kimi-linear-48b*.waste $(BENCH_DIR)/k3-slice*.waste
	rm -f $(BENCH_DIR)/kimi-linear-48b*.gguf $(BENCH_DIR)/kimi-linear-48b*.gguf.part

-include $(BENCH_SRC:%.c=$(BUILD)/%.d) $(BUILD)/tests/bench/peer/mkgguf.d
