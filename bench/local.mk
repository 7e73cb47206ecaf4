# Benchmarks: built with everything, not installed.
