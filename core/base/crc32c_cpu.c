/*
 * CRC32C: which of the instructions this CPU has. One place reads what the CPU reports; what follows from it is
 * computed apart, so that a test can compute it for any CPU.
 */
#include "core/base/crc32c_impl.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* By their numbers: the headers have them on their own architecture only. */
#define LEAF1_ECX_PCLMUL (1u << 1)
#define LEAF1_ECX_SSE42 (1u << 20)
#define LEAF1_ECX_OSXSAVE (1u << 27)
#define LEAF1_ECX_AVX (1u << 28)
#define LEAF7_EBX_AVX2 (1u << 5)
#define LEAF7_EBX_AVX512F (1u << 16)
#define LEAF7_ECX_VPCLMUL (1u << 10)
#define XCR0_AVX 0x06u    /* SSE and AVX */
#define XCR0_AVX512 0xe6u /* besides the masks and both parts of the zmm */
#define HWCAP_ARM_PMULL (1ul << 4)
#define HWCAP_ARM_CRC32 (1ul << 7)

static int has_all(unsigned value, unsigned bits)
{
    return (value & bits) == bits;
}

unsigned crc32c_features_x86(const struct crc32c_cpuid *c)
{
    unsigned f = 0;
    if (has_all(c->leaf1_ecx, LEAF1_ECX_SSE42))
        f |= CRC32C_CAN_SSE42;
    if (f && has_all(c->leaf1_ecx, LEAF1_ECX_PCLMUL))
        f |= CRC32C_CAN_PCLMUL;
    if (!(f & CRC32C_CAN_PCLMUL) || !has_all(c->leaf1_ecx, LEAF1_ECX_OSXSAVE | LEAF1_ECX_AVX) ||
        !has_all(c->leaf7_ecx, LEAF7_ECX_VPCLMUL))
        return f;
    if (has_all(c->leaf7_ebx, LEAF7_EBX_AVX2) && has_all(c->xcr0, XCR0_AVX))
        f |= CRC32C_CAN_VPCLMUL256;
    if ((f & CRC32C_CAN_VPCLMUL256) && has_all(c->leaf7_ebx, LEAF7_EBX_AVX512F) && has_all(c->xcr0, XCR0_AVX512))
        f |= CRC32C_CAN_VPCLMUL512;
    return f;
}

/* (A big-endian kernel's vectors would have to be turned round for PMULL; none is in use.) */
unsigned crc32c_features_arm(unsigned long hwcap, int little_endian)
{
    unsigned f = 0;
    if (hwcap & HWCAP_ARM_CRC32)
        f |= CRC32C_CAN_ARMV8;
    if (f && (hwcap & HWCAP_ARM_PMULL) && little_endian)
        f |= CRC32C_CAN_PMULL;
    return f;
}

#if defined(__x86_64__)

/* Asked of the CPU directly: __builtin_cpu_supports() depends on a constructor of its own. */
unsigned crc32c_features(void)
{
    struct crc32c_cpuid c = { 0, 0, 0, 0 };
    unsigned a, b, cx, d;
    if (__get_cpuid(1, &a, &b, &cx, &d))
        c.leaf1_ecx = cx;
    if (c.leaf1_ecx & LEAF1_ECX_OSXSAVE)
        __asm__ volatile("xgetbv" : "=a"(c.xcr0), "=d"(d) : "c"(0));
    if (__get_cpuid_count(7, 0, &a, &b, &cx, &d)) {
        c.leaf7_ebx = b;
        c.leaf7_ecx = cx;
    }
    return crc32c_features_x86(&c);
}

#elif defined(__aarch64__)

unsigned crc32c_features(void)
{
    return crc32c_features_arm(getauxval(AT_HWCAP), __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
}

#else

unsigned crc32c_features(void)
{
    return 0;
}

#endif
