/*
 * sockwarp's public constants, for programs that start others under it or read its statistics. Nothing to link: the
 * library is loaded with LD_PRELOAD (see sockwarp(1)).
 */
#ifndef SOCKWARP_H
#define SOCKWARP_H

#define SOCKWARP_ENV_POLICY "SOCKWARP_POLICY"
#define SOCKWARP_ENV_STATS "SOCKWARP_STATS"
#define SOCKWARP_ENV_LOG "SOCKWARP_LOG"
#define SOCKWARP_ENV_EXPLAIN "SOCKWARP_EXPLAIN"
#define SOCKWARP_ENV_DEVICE "SOCKWARP_DEVICE"
#define SOCKWARP_ENV_IO "SOCKWARP_IO"
#define SOCKWARP_ENV_HELLO_TIMEOUT_MS "SOCKWARP_HELLO_TIMEOUT_MS"
#define SOCKWARP_ENV_VERDICT_TTL_S "SOCKWARP_VERDICT_TTL_S"
#define SOCKWARP_ENV_LINGER_MS "SOCKWARP_LINGER_MS"
#define SOCKWARP_ENV_SPIN_US "SOCKWARP_SPIN_US"

#endif
