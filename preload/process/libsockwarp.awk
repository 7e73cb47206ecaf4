# calls.h and sockwarp.h -> linker version script. A call is a line SW_CALL(ret, name, (params), (args)); the return type has no comma.
BEGIN { print "{\n  global:" }
/^[ \t]*SW_CALL[ \t]*\(/ {
    split($0, field, ",")
    name = field[2]
    gsub(/[ \t]/, "", name)
    if (name !~ /^[A-Za-z_][A-Za-z_0-9]*$/) {
        printf "%s:%d: no call name in: %s\n", FILENAME, FNR, $0 >"/dev/stderr"
        bad = 1
    }
    if (!(name in seen))
        print "    " name ";"
    seen[name] = 1
    count++
}
# What programs may ask of the library: a declaration at the beginning of a line.
/^int sockwarp_[a-z_]+\(/ {
    sub(/\(.*/, "", $2)
    print "    " $2 ";"
}
END {
    print "  local: *;\n};"
    if (!count)
        print FILENAME ": no SW_CALL line found" >"/dev/stderr"
    exit (bad || !count) ? 1 : 0
}
