"""What a test sees of TCP does not depend on the machine's settings: those of a network namespace, /proc/sys/net/ipv4/NAME."""

# (reno: the one that every kernel has and allows.)
PINNED = {
    "tcp_congestion_control": "reno",
    "ip_local_port_range": "32768 60999",
    "tcp_rmem": "4096 131072 6291456",
    "tcp_wmem": "4096 16384 4194304",
}
