# libc_calls.h -> options for the linker: what is called by these names goes to __wrap_NAME (preload/process/libc.c).
/^SW_LIBC\([A-Za-z_0-9]+\)$/ {
    sub(/^SW_LIBC\(/, "")
    sub(/\)$/, "")
    print "--wrap=" $0
    count++
    next
}
/^SW_LIBC/ {
    printf "%s:%d: no name in: %s\n", FILENAME, FNR, $0 >"/dev/stderr"
    bad = 1
}
END { exit (bad || !count) ? 1 : 0 }
