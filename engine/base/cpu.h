/* What the CPU can do and the operating system lets it do: an instruction set
 * counts only when its registers are saved across a context switch. Any thread. */
#ifndef WASTE_CPU_H
#define WASTE_CPU_H

#define WASTE_CPU_AVX2    1u /* AVX2, FMA, F16C */
#define WASTE_CPU_AVX512  2u /* AVX-512 F, BW, DQ, VL, VBMI and VNNI; implies AVX2 */
#define WASTE_CPU_NEON    4u /* AArch64's Advanced SIMD: every armv8-a has it */
#define WASTE_CPU_DOTPROD 8u /* and its dot product (SDOT, UDOT); implies the former */

/* The bits that hold on this machine; 0 on other architectures. */
unsigned waste_cpu_features(void);

#endif
