# Instruction sets of the fast kernel tables, one set of flags per file; nothing
# else is built for more than the architecture's baseline. Included by the top
# Makefile after BASE is set. (%o: a stem is never empty, and kernels_avx2.o counts.)
ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine)),)
$(BUILD)/engine/kernels/kernels_avx2%o: BASE += -mavx2 -mfma -mf16c
# The AVX-512 table is for two kinds of CPU. What both share is built for the lesser;
# experts are built for each (kernels_avx512_vq.h), the second time under another name.
$(BUILD)/engine/kernels/kernels_avx512%o: BASE += -mavx2 -mfma -mf16c -mavx512f -mavx512bw \
  -mavx512dq -mavx512vl
$(BUILD)/engine/kernels/kernels_avx512_vq%o: BASE += -mavx512vbmi -mavx512vnni
$(BUILD)/engine/kernels/kernels_avx512_trunk%o: BASE += -mavx512vbmi -mavx512vnni
KERNELS_TWICE := $(patsubst engine/kernels/kernels_avx512_%.c,$(BUILD)/engine/kernels/kernels_avx512bw_%.o,\
  $(wildcard engine/kernels/kernels_avx512_vq*.c))
$(KERNELS_TWICE): $(BUILD)/engine/kernels/kernels_avx512bw_%.o: engine/kernels/kernels_avx512_%.c
	@mkdir -p $(@D)
	$(call say,CC $< without VBMI)
	$(Q)$(COMPILE) -Iengine -c $< -o $@
endif
ifneq ($(filter aarch64% arm64%,$(shell $(CC) -dumpmachine)),)
$(BUILD)/engine/kernels/kernels_neon_dot%o: BASE += -march=armv8.2-a+dotprod
endif
