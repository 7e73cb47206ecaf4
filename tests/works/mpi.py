"""An MPI program over TCP: Open MPI. "Only the servers": half of the processes are under sockwarp."""

import shim
from matrix import CLIENTS, SERVERS, entry

# Messages of many sizes from each to each, without waiting and in one order; sums over all; a large one around the ring.
SOURCE = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char octet(int from, int to, size_t n)
{
    return (unsigned char)(from * 31 + to * 17 + n * 7 + (n >> 8));
}

int main(int argc, char **argv)
{
    static const int sizes[] = {0, 1, 100, 4000, 70000, 1000000};
    int rank, count, bad = 0, all = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        MPI_Request *calls = calloc(2 * count, sizeof(*calls));
        unsigned char **in = calloc(count, sizeof(*in)), **out = calloc(count, sizeof(*out));
        for (int k = 0; k < count; k++) {
            in[k] = calloc(1, sizes[s] + 1);
            out[k] = malloc(sizes[s] + 1);
            for (int n = 0; n < sizes[s]; n++)
                out[k][n] = octet(rank, k, n);
            MPI_Irecv(in[k], sizes[s], MPI_BYTE, k, (int)s, MPI_COMM_WORLD, &calls[2 * k]);
            MPI_Isend(out[k], sizes[s], MPI_BYTE, k, (int)s, MPI_COMM_WORLD, &calls[2 * k + 1]);
        }
        MPI_Waitall(2 * count, calls, MPI_STATUSES_IGNORE);
        for (int k = 0; k < count; k++) {
            for (int n = 0; n < sizes[s]; n++)
                bad += in[k][n] != octet(k, rank, n);
            free(in[k]);
            free(out[k]);
        }
        free(in);
        free(out);
        free(calls);
    }
    for (int turn = 0; turn < 200; turn++) {
        long mine = rank + turn, sum = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        bad += sum != (long)count * turn + (long)count * (count - 1) / 2;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    int *large = calloc(2000000, sizeof(*large));
    for (int n = 0; rank == 0 && n < 2000000; n++)
        large[n] = n * 3;
    MPI_Bcast(large, 2000000, MPI_INT, 0, MPI_COMM_WORLD);
    for (int n = 0; n < 2000000; n++)
        bad += large[n] != n * 3;
    MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d processes, %d wrong\n", count, all);
    MPI_Finalize();
    return 0;
}
"""


@entry("Open MPI", "4 processes, --mca btl tcp,self: messages of all sizes, sums, a broadcast", needs=["mpirun.openmpi", "mpicc.openmpi"],
       version=["mpirun.openmpi", "--version"], at_least=4, sides=(SERVERS,),
       stays_plain={"no-local-shim": 16})  # to mpirun, which is not
def mpi_open(run):
    """Two processes of either side."""
    program = run.path("program")
    run.call("mpicc.openmpi", "-O1", "-o", program, run.write("program.c", SOURCE), plain=True)
    sides = [["-n", "2", *run.under([program], False, side)] for side in (SERVERS, CLIENTS)]
    said = run.call("mpirun.openmpi", *sides[0], ":", *sides[1], plain=True, env={
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_oob_tcp_if_include": "lo", "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_plm_rsh_agent": "false", "TMPDIR": shim.tmp})
    run.same(said, "4 processes, 0 wrong\n", "what the first process says")
    return "all messages and sums right"
