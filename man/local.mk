# Manual pages: dist_man_MANS += man/sockwarp.1
