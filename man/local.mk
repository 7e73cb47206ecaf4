# Manual pages. tests/tools/man.test checks that they name everything there is.

dist_man_MANS += man/sockwarp.1
dist_man_MANS += man/sockwarp.7
dist_man_MANS += man/sockwarp_info.3
dist_man_MANS += man/sockwarp-protocol.7
dist_man_MANS += man/sockwarp.conf.5
# (sockwarp-bench is not installed, but by packages.)
EXTRA_DIST += man/sockwarp-bench.1
