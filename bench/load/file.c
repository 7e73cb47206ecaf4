/*
 * sockwarp-bench file: read(2) of a file that is in the page cache, from its beginning to its end, again and again. No
 * socket is there: what a preloaded library costs a program where it has nothing to do.
 */
#include "bench/load/load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READS_A_LOOK 64 /* between two looks at the clock */

/* The number of reads that gave bytes, 0 with errno if one failed. */
static uint64_t read_for(int fd, char *buf, size_t len, uint64_t end)
{
    uint64_t reads = 0;

    while (bench_now_ns() < end) {
        for (int i = 0; i < READS_A_LOOK; i++) {
            ssize_t n = read(fd, buf, len);
            if (n < 0 || (n == 0 && lseek(fd, 0, SEEK_SET) < 0))
                return 0;
            reads += n > 0;
        }
    }
    if (reads == 0)
        errno = ENODATA;
    return reads;
}

int bench_file(const struct bench_options *o)
{
    int fd = open(o->path, O_RDONLY | O_CLOEXEC);
    char *buf = malloc(o->req.len);

    if (fd < 0 || !buf) {
        fprintf(stderr, "sockwarp-bench: %s: %s\n", o->path, strerror(errno));
        free(buf);
        return 1;
    }
    double cpu = bench_cpu_s();
    uint64_t begin = bench_now_ns();
    uint64_t reads = read_for(fd, buf, o->req.len, begin + (uint64_t)o->time_ms * 1000000u);
    double seconds = (double)(bench_now_ns() - begin) / 1e9;
    if (reads == 0)
        fprintf(stderr, "sockwarp-bench: %s: %s\n", o->path, strerror(errno));
    else if (o->json)
        printf(
            "{\"mode\":\"file\",\"len\":%u,\"seconds\":%.6f,\"reads\":%llu,\"reads_per_s\":%.1f,\"client_cpu_s\":%.6f}\n",
            o->req.len, seconds, (unsigned long long)reads, (double)reads / seconds, bench_cpu_s() - cpu);
    else
        printf("file: reads of %u octets, %.3f s\n  %.0f reads/s\n", o->req.len, seconds, (double)reads / seconds);
    close(fd);
    free(buf);
    return reads == 0;
}
