# Instruction sets of the fast kernel tables, one set of flags per file; nothing
# else is built for more than the architecture's baseline. Included by the top
# Makefile after BASE is set. (%o: a stem is never empty, and kernels_avx2.o counts.)
ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine)),)
$(BUILD)/engine/kernels/kernels_avx2%o: BASE += -mavx2 -mfma -mf16c
$(BUILD)/engine/kernels/kernels_avx512%o: BASE += -mavx2 -mfma -mf16c -mavx512f -mavx512bw \
  -mavx512dq -mavx512vl -mavx512vbmi -mavx512vnni
endif
ifneq ($(filter aarch64% arm64%,$(shell $(CC) -dumpmachine)),)
$(BUILD)/engine/kernels/kernels_neon_dot%o: BASE += -march=armv8.2-a+dotprod
endif
