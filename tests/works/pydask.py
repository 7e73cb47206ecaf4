"""dask's distributed: a scheduler, two workers, whose nannies start them by spawn, and a client; all know each other."""

import shim
from matrix import PACKAGES, PYTHON, entry

CLIENT = r"""
import hashlib, sys
from distributed import Client, wait

def make(n):
    import random
    return random.Random(n).randbytes(300000)

def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()

if __name__ == "__main__":
    client = Client(sys.argv[1], timeout=300)
    client.wait_for_workers(2, 300)
    names = sorted(client.scheduler_info()["workers"])
    parts = [client.submit(make, n, workers=names[n % 2], pure=False) for n in range(40)]  # half of them on each worker
    wait(parts)
    sums = [client.submit(digest, *parts, workers=name, pure=False) for name in names]  # each fetches the other's
    whole = [make(n) for n in range(40)]
    right = client.gather(sums) == [digest(*whole)] * 2
    right += client.gather(parts) == whole
    right += sum(client.gather(client.map(lambda x: x * x, range(300)))) == sum(x * x for x in range(300))
    print(int(right), client.get_versions()["client"]["packages"]["distributed"])
    client.shutdown()
"""

RUN = "from distributed.cli.dask_%s import main; main()"


@entry("dask", "distributed: a scheduler, two workers with nannies, a client; what one worker has the other fetches",
       needs=[PACKAGES + "distributed"],
       version=[PYTHON, "-c", "import distributed; print(distributed.__version__)"], at_least=6, killed=20, stays_plain={"closed": 10})
def dask(run):
    port = shim.free_port()
    env = {"DASK_DISTRIBUTED__ADMIN__TICK__LIMIT": "1h", "HOME": run.folder}
    url = "tcp://127.0.0.1:%d" % port
    children = [run.serve(port, PYTHON, "-c", RUN % "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", env=env)]
    children += [run.start(PYTHON, "-c", RUN % "worker", url, "--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard",
                           "--memory-limit", "0", "--local-directory", run.path(name), env=env) for name in ("one", "two")]
    said = run.call(PYTHON, run.write("client.py", CLIENT), url, env=env)
    run.same(said.split()[:1], ["3"], "right results")
    for child in children:
        run.stop(child, status=None)
    return "12 MB there and back, 300 results right"
