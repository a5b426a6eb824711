/* What the CPU can do and the operating system lets it do: an instruction set
 * counts only when its registers are saved across a context switch. Any thread. */
#ifndef WASTE_CPU_H
#define WASTE_CPU_H

#define WASTE_CPU_AVX2     1u  /* AVX2, FMA, F16C */
#define WASTE_CPU_AVX512BW 2u  /* AVX-512 F, BW, DQ and VL; implies AVX2 */
#define WASTE_CPU_AVX512   4u  /* and VBMI and VNNI; implies the former */
#define WASTE_CPU_NEON     8u  /* AArch64's Advanced SIMD: every armv8-a has it */
#define WASTE_CPU_DOTPROD  16u /* and its dot product (SDOT, UDOT); implies the former */

/* The bits that hold on this machine; 0 on other architectures. */
unsigned waste_cpu_features(void);

#endif
