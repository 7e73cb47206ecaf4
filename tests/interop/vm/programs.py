"""What the virtual machine needs for programs over devices: verbs.test, mixed.test."""

import os
import shutil

import machine
import shim

PROGRAMS = ["iperf3", "redis-server", "redis-benchmark", "nginx", "curl", "rstream", "socat"]
NGINX = b"""
user root;
master_process off;
error_log /tmp/nginx.log;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path /tmp/nginx.1; proxy_temp_path /tmp/nginx.2; fastcgi_temp_path /tmp/nginx.3;
    uwsgi_temp_path /tmp/nginx.4; scgi_temp_path /tmp/nginx.5;
    server { listen 8080; root /tmp/www; }
}
"""


def add(a):
    a.program("opt/sockwarp/sockwarp", shim.LAUNCHER)
    a.program("usr/bin/sockwarp-bench", os.environ.get("SW_BENCH", os.path.join(shim.BUILD, "sockwarp-bench")))
    a.program("opt/sockwarp/.libs/libsockwarp.so", shim.LIBRARY)
    a.program("usr/bin/forks", shim.program("process/forks"))
    for name in PROGRAMS:
        a.program("usr/bin/" + name, shutil.which(name))
    a.copy("programs.sh", os.path.join(machine.HERE, "programs.sh"))
    a.add("etc/nginx.conf", NGINX)
    a.add("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
    a.add("etc/group", b"root:x:0:\n")
    for library in "libibverbs.so.1", "librdmacm.so.1":  # loaded when they are needed
        a.program(machine.LIBRARIES + "/" + library, machine.LIBRARIES + "/" + library)
